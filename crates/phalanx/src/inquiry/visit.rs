//! Visits: ranks are asked through their sockets, all at the same time, and what they say is heard within bounds.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use phalanx_trace::files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, test_kill_process};

use super::Neighbour;
use super::name::parse;

/// One question on its way.
pub(super) struct Visit {
    pub(super) neighbour: Neighbour,
    /// Gone once all was heard, or nothing more will be.
    stream: Option<UnixStream>,
    heard: Vec<u8>,
    is_too_long: bool,
}

/// What a rank says to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A page.
    Page(Vec<u8>),
    /// More than is heard of one rank, or of all that its user has.
    TooLong,
    /// Nothing in time, or no answer to this.
    Nothing,
}

impl Visit {
    /// Asks. Whoever is gone by now, or is not who the name says, is none; who cannot take the question will not answer it either.
    pub(super) fn begin(name: &str, path: &str) -> Option<Visit> {
        let mut neighbour = parse(name)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        match connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?) {
            Ok(()) => {}
            // Too many wait at its door already: it is stopped.
            Err(rustix::io::Errno::AGAIN) => return Some(Visit::with(neighbour, None)),
            Err(_) => return None,
        }
        let owner = getsockopt(&socket, PeerCredentials).ok().filter(|owner| owner.uid() == neighbour.uid)?;
        // rustix knows no process 0, which is what one is called that has no number here.
        match Pid::from_raw(owner.pid()) {
            // A child of a dead rank may hold its socket still.
            Some(pid) if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) => return None,
            // Its own number for itself may be of another namespace.
            Some(pid) => neighbour.pid = pid.as_raw_pid().try_into().unwrap_or(neighbour.pid),
            None => neighbour.is_elsewhere = true,
        }
        let mut stream = UnixStream::from(socket);
        let request = format!("GET {path} HTTP/1.1\r\nHost: phalanx\r\n\r\n");
        let stream = stream.write_all(request.as_bytes()).is_ok().then_some(stream);
        Some(Visit::with(neighbour, stream))
    }

    fn with(neighbour: Neighbour, stream: Option<UnixStream>) -> Visit {
        Visit { neighbour, stream, heard: Vec::new(), is_too_long: false }
    }

    /// Reads some of what there is, where it is no more than there is `room` for.
    fn hear(&mut self, bytes: &mut [u8], bounds: &Bounds, room: &mut usize) {
        let Some(stream) = &mut self.stream else { return };
        match stream.read(bytes) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Ok(0) => self.stream = None,
            Ok(count) if count <= *room && self.heard.len() + count <= bounds.one => {
                *room -= count;
                self.heard.extend_from_slice(&bytes[..count]);
            }
            // It broke off, or says too much.
            read => (self.stream, self.heard, self.is_too_long) = (None, Vec::new(), read.is_ok()),
        }
    }

    /// Who it was, and what it said, where all of that was heard.
    pub(super) fn end(self) -> (Neighbour, Said) {
        let page = if self.stream.is_none() { page(self.heard) } else { None };
        let nothing = if self.is_too_long { Said::TooLong } else { Said::Nothing };
        (self.neighbour, page.map_or(nothing, Said::Page))
    }
}

/// The page in an answer.
pub(super) fn page(mut answer: Vec<u8>) -> Option<Vec<u8>> {
    let end = answer.strip_prefix(FINE)?.windows(4).position(|window| window == b"\r\n\r\n")?;
    answer.drain(..FINE.len() + end + 4);
    Some(answer)
}

/// Whether one more rank is visited. Anybody can have any number of them: no user's may crowd out those of others.
pub(super) fn has_room(visits: &[Visit], name: &str, user: u32) -> bool {
    let Some(uid) = parse(name).map(|neighbour| neighbour.uid) else { return false };
    let known = visits.iter().filter(|visit| visit.neighbour.uid == uid).count();
    let has_room = visits.len() < MOST_VISITS && (uid == user || known < MOST_OF_A_STRANGER);
    if !has_room {
        log::debug!("{name} is not asked: {} ranks are, {known} of its user", visits.len());
    }
    has_room
}

/// Hears all, until everybody has answered or no time is `left`. All users have as much room for what their ranks say.
pub(super) fn listen(visits: &mut [Visit], bounds: &Bounds, left: impl Fn() -> Duration) {
    let mut rooms: HashMap<u32, usize> = visits.iter().map(|visit| (visit.neighbour.uid, 0)).collect();
    let share = bounds.all / rooms.len().max(1);
    rooms.values_mut().for_each(|room| *room = share);
    let mut bytes = vec![0; AT_ONCE];
    loop {
        let pause = left();
        let mut waited: Vec<PollFd<'_>> =
            visits.iter().filter_map(|visit| Some(PollFd::new(visit.stream.as_ref()?, PollFlags::IN))).collect();
        if waited.is_empty() || pause.is_zero() {
            return;
        }
        let polled = poll(&mut waited, Timespec::try_from(pause).ok().as_ref());
        if polled.is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        // In turns, so that nobody who goes on and on takes the time of the others.
        for visit in &mut *visits {
            if left().is_zero() {
                return;
            }
            visit.hear(&mut bytes, bounds, rooms.entry(visit.neighbour.uid).or_default());
        }
    }
}

/// How many bytes are heard at most: any user's process can be a rank, and say what it likes to whoever is root.
pub(super) struct Bounds {
    /// Of one rank.
    one: usize,
    /// Of all.
    all: usize,
}

const FINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
/// As much of one rank as a file of its dump may have, and what stands before that; of all, more than the ranks of a host say together.
pub(super) const BOUNDS: Bounds = Bounds { one: files::LONGEST as usize + LONGEST_HEAD, all: 1 << 30 };
/// More than stands before any page.
const LONGEST_HEAD: usize = 4 << 10;
const AT_ONCE: usize = 64 << 10;
/// Each takes a descriptor, of which a process has 1024 unless told otherwise.
const MOST_VISITS: usize = 896;
/// Of another user than the one who asks.
const MOST_OF_A_STRANGER: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(uid: u32, stream: Option<UnixStream>) -> Visit {
        stream.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
        Visit::with(parse(&format!("phalanx-{uid}-2-0-0-1-j")).unwrap(), stream)
    }

    /// One who has said this and is gone.
    fn said(uid: u32, words: &[u8]) -> Visit {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(words).unwrap();
        visit(uid, Some(near))
    }

    fn heard(visits: &[Visit]) -> Vec<usize> {
        visits.iter().map(|visit| visit.heard.len()).collect()
    }

    #[test]
    fn whoever_talks_without_end_is_heard_no_longer() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let talking = std::thread::spawn(move || while far.write_all(&[b'a'; 1 << 12]).is_ok() {});
        let mut visits = [visit(1, Some(near)), said(1, b"all")];
        listen(&mut visits, &Bounds { one: 1 << 20, all: 1 << 30 }, || Duration::MAX);
        assert_eq!((heard(&visits), visits[0].stream.is_none()), (vec![0, 3], true));
        talking.join().unwrap();
    }

    #[test]
    fn one_users_ranks_take_no_room_of_anothers() {
        let mut visits = [said(1, &[b'a'; 60]), said(1, &[b'a'; 60]), said(2, &[b'a'; 60])];
        listen(&mut visits, &Bounds { one: 100, all: 200 }, || Duration::MAX);
        assert_eq!(heard(&visits), [60, 0, 60]);
    }

    #[test]
    fn the_time_can_be_up_before_all_were_heard() {
        let looks = std::cell::Cell::new(0);
        let left = || {
            looks.set(looks.get() + 1);
            if looks.get() <= 2 { Duration::MAX } else { Duration::ZERO }
        };
        let mut visits = [said(1, b"one"), said(1, b"two")];
        listen(&mut visits, &BOUNDS, left);
        assert_eq!(heard(&visits), [3, 0]);
    }

    #[test]
    fn nobody_crowds_out_the_ranks_of_others() {
        let name = |uid: u32| format!("phalanx-{uid}-2-0-0-1-j");
        let mut visits: Vec<Visit> = (0..MOST_OF_A_STRANGER).map(|_| visit(7, None)).collect();
        assert_eq!([0, 7, 8].map(|uid| has_room(&visits, &name(uid), 0)), [true, false, true]);
        assert!(has_room(&visits, &name(7), 7), "one's own");
        visits.extend((visits.len()..MOST_VISITS).map(|_| visit(0, None)));
        assert!(!has_room(&visits, &name(0), 0));
    }

    #[test]
    fn an_answer_that_breaks_off_is_none() {
        let (near, _far) = UnixStream::pair().unwrap();
        let part = Visit { heard: [FINE, b"\r\n\r\n{"].concat(), ..visit(1, Some(near)) };
        assert_eq!(part.end().1, Said::Nothing);
    }

    #[test]
    fn an_answer_that_is_longer_than_any_is_told_from_none() {
        let mut visits = [said(1, &[FINE, b"\r\n\r\nlong enough"].concat()), said(1, b""), visit(1, None)];
        listen(&mut visits, &Bounds { one: FINE.len() + 8, all: 1 << 30 }, || Duration::MAX);
        assert_eq!(visits.map(|visit| visit.end().1), [Said::TooLong, Said::Nothing, Said::Nothing]);
    }

    #[test]
    fn as_much_is_heard_of_a_rank_as_its_dump_may_have_as_a_file() {
        assert!(BOUNDS.one as u64 > files::LONGEST && BOUNDS.all >= 2 * BOUNDS.one);
    }
}
