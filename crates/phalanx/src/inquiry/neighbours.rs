//! The other side: the ranks of this host that this user may ask, and what they answer. A rank that is stopped is there and says nothing.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use phalanx_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, geteuid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::account::{Account, FORMAT};

/// A rank on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Neighbour {
    /// Its process; where that [is elsewhere](Neighbour::is_elsewhere), by the number that it has there.
    pub pid: u32,
    /// Whose process that is.
    pub uid: u32,
    /// Counts the worlds of its process.
    pub world: u32,
    /// The job's name, perhaps only its beginning.
    pub job: String,
    /// Its number in the world, as of the last change before it was stopped.
    pub rank: usize,
    /// How many ranks the world has.
    pub world_size: usize,
    /// What it answers; none where it does not in time, or not in words that this version understands.
    pub account: Option<Account>,
    /// Whether the job's name may go on.
    #[serde(default)]
    pub job_is_cut: bool,
    /// Whether its process is in another PID namespace, as in another container that shares this one's network: it cannot be seen from here,
    /// and processes of several namespaces may have one number.
    #[serde(default)]
    pub is_elsewhere: bool,
    /// Tells its PID namespace from others of this host; 0 where the rank does not say.
    #[serde(default)]
    pub namespace: u32,
}

impl Neighbour {
    /// Whether it is a rank of this job, as far as anybody can say: of one that does not answer the name may be known in part.
    pub fn is_of(&self, job: &str) -> bool {
        match &self.account {
            Some(account) => account.job == job,
            None => self.job == job || self.job_is_cut && job.starts_with(&self.job),
        }
    }
}

/// Asks all ranks of this user on this host how they stand; those of all users, where this user is root. They have this long to answer.
/// The order is by job and rank.
///
/// Seen are ranks in this network namespace whose `PHALANX_TOP` is not 0, whoever started them: at most 896, and of a user who is not this one 256.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), when the kernel does not list its sockets.
pub fn neighbours(patience: Duration) -> Result<Vec<Neighbour>> {
    let told = ask(PATH, patience).map_err(|error| Error::setup("the ranks of this host", error))?.into_iter();
    Ok(told.map(|(neighbour, page)| Neighbour { account: page.as_deref().and_then(account), ..neighbour }).collect())
}

/// Asks the same ranks for one of their pages; what each says, if it does in time. The order is by job and rank.
pub(crate) fn ask(path: &str, patience: Duration) -> io::Result<Vec<(Neighbour, Option<Vec<u8>>)>> {
    let (began, user) = (Instant::now(), geteuid().as_raw());
    let mut visits: Vec<Visit> = Vec::new();
    for name in names(&fs::read(SOCKETS)?, user) {
        if has_room(&visits, &name, user) {
            visits.extend(Visit::begin(&name, path));
        }
    }
    listen(&mut visits, &BOUNDS, || patience.saturating_sub(began.elapsed()));
    let mut told: Vec<_> = visits.into_iter().map(Visit::end).collect();
    told.sort_by(|(one, _), (other, _)| {
        let process = |neighbour: &Neighbour| (neighbour.pid, neighbour.namespace, neighbour.world);
        let key = |neighbour: &Neighbour| (neighbour.job.clone(), neighbour.rank, process(neighbour));
        key(one).cmp(&key(other))
    });
    Ok(told)
}

/// What the socket of a job's rank is called, where `number` counts the worlds of this process.
pub(super) fn name(job: &str, (rank, size): (usize, usize), number: u32) -> Vec<u8> {
    name_in(own_namespace(), job, (rank, size), number)
}

fn name_in(namespace: u32, job: &str, (rank, size): (usize, usize), number: u32) -> Vec<u8> {
    let (uid, pid) = (geteuid().as_raw(), std::process::id());
    let mut name = format!("{PREFIX}{uid}-{pid}.{namespace}-{number}-{rank}-{size}-{job}").into_bytes();
    name.truncate(LONGEST_NAME);
    name
}

/// Containers that share this host's network have its names of sockets too, and processes of the same numbers in them.
fn own_namespace() -> u32 {
    fs::metadata("/proc/self/ns/pid").ok().and_then(|namespace| namespace.ino().try_into().ok()).unwrap_or_default()
}

/// The names of listening sockets of this user's ranks, in the kernel's list of sockets. It has those of everybody, with any bytes in their
/// names; those of ranks are text.
fn names(sockets: &[u8], user: u32) -> Vec<String> {
    let listening = |line: &[u8]| {
        let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
        let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
        let name = words.nth(3)?.strip_prefix('@')?;
        let (neighbour, is_ours) = (parse(name)?, flags & ACCEPTS != 0);
        (is_ours && (neighbour.uid == user || user == ROOT)).then(|| name.to_owned())
    };
    sockets.split(|&byte| byte == b'\n').filter_map(listening).collect()
}

/// What a name says. Ranks of an older version name no namespace.
fn parse(name: &str) -> Option<Neighbour> {
    let mut words = name.strip_prefix(PREFIX)?.splitn(6, '-');
    let uid = words.next()?.parse().ok()?;
    let process = words.next()?;
    let (pid, namespace) = process.split_once('.').unwrap_or((process, "0"));
    let (pid, namespace) = (pid.parse().ok()?, namespace.parse().ok()?);
    let mut number = || words.next()?.parse::<u32>().ok();
    let (world, rank, world_size) = (number()?, number()? as usize, number()? as usize);
    let (job, job_is_cut) = (words.next()?.to_owned(), name.len() >= LONGEST_NAME);
    let (account, is_elsewhere) = (None, false);
    Some(Neighbour { pid, uid, world, rank, world_size, job, account, job_is_cut, is_elsewhere, namespace })
}

/// Whether one more rank is visited. Anybody can have any number of them: no user's may crowd out those of others.
fn has_room(visits: &[Visit], name: &str, user: u32) -> bool {
    let Some(uid) = parse(name).map(|neighbour| neighbour.uid) else { return false };
    let known = visits.iter().filter(|visit| visit.neighbour.uid == uid).count();
    let has_room = visits.len() < MOST_VISITS && (uid == user || known < MOST_OF_A_STRANGER);
    if !has_room {
        log::debug!("{name} is not asked: {} ranks are, {known} of its user", visits.len());
    }
    has_room
}

/// One question on its way.
struct Visit {
    neighbour: Neighbour,
    /// Gone once all was heard, or nothing more will be.
    stream: Option<UnixStream>,
    heard: Vec<u8>,
}

impl Visit {
    /// Asks. Whoever is gone by now, or is not who the name says, is none; who cannot take the question will not answer it either.
    fn begin(name: &str, path: &str) -> Option<Visit> {
        let mut neighbour = parse(name)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        match connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?) {
            Ok(()) => {}
            // Too many wait at its door already: it is stopped.
            Err(rustix::io::Errno::AGAIN) => return Some(Visit { neighbour, stream: None, heard: Vec::new() }),
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
        Some(Visit { neighbour, stream, heard: Vec::new() })
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
            // It broke off, or says more than any rank does.
            _ => (self.stream, self.heard) = (None, Vec::new()),
        }
    }

    /// Who it was, and the page, where all of it was heard.
    fn end(self) -> (Neighbour, Option<Vec<u8>>) {
        let said = if self.stream.is_none() { &self.heard[..] } else { &[] };
        let page = said.strip_prefix(FINE).and_then(|rest| {
            let end = rest.windows(4).position(|window| window == b"\r\n\r\n")?;
            Some(rest[end + 4..].to_vec())
        });
        (self.neighbour, page)
    }
}

/// The account on a page, in words that this version understands.
fn account(page: &[u8]) -> Option<Account> {
    serde_json::from_slice(page).ok().filter(|account: &Account| account.format <= FORMAT)
}

/// Hears all, until everybody has answered or no time is `left`. All users have as much room for what their ranks say.
fn listen(visits: &mut [Visit], bounds: &Bounds, left: impl Fn() -> Duration) {
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
struct Bounds {
    /// Of one rank.
    one: usize,
    /// Of all.
    all: usize,
}

/// Where an account is asked for, and a dump of what the groups have recorded.
pub(super) const PATH: &str = "/account";
pub(crate) const TRACE_PATH: &str = "/trace";
const FINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
const PREFIX: &str = "phalanx-";
/// As long as the kernel lets a name be.
const LONGEST_NAME: usize = 107;
const SOCKETS: &str = "/proc/net/unix";
/// The kernel's flag of sockets that listen.
const ACCEPTS: u32 = 1 << 16;
const ROOT: u32 = 0;
/// More than any rank says, and than the ranks of a host say together.
const BOUNDS: Bounds = Bounds { one: 64 << 20, all: 1 << 30 };
const AT_ONCE: usize = 64 << 10;
/// Each takes a descriptor, of which a process has 1024 unless told otherwise.
const MOST_VISITS: usize = 896;
/// Of another user than the one who asks.
const MOST_OF_A_STRANGER: usize = 256;

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    const LIST: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 1 @phalanx-1000-42-0-3-8-my-job
0000000000000000: 00000003 00000000 00000000 0001 03 2 @phalanx-1000-42-0-3-8-my-job
0000000000000000: 00000002 00000000 00010000 0001 01 3 @phalanx-1001-43-0-0-1-other
0000000000000000: 00000002 00000000 00010000 0001 01 4 /run/phalanx-1000-42-0-3-8-x
0000000000000000: 00000002 00000000 00010000 0001 01 5
0000000000000000: 00000002 00000000 00010000 0001 01 6 @phalanx-1000-x-0-3-8-job
0000000000000000: 00000002 00000000 00010000 0001 01 7 @phalanx-1000-42-0-3-8
garbage
";

    #[test]
    fn sockets_of_ranks_are_told_from_others() {
        let names = |user| names(LIST.as_bytes(), user);
        assert_eq!(names(1000), ["phalanx-1000-42-0-3-8-my-job"]);
        assert_eq!(names(ROOT).len(), 2);
        assert!(names(7).is_empty());
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_other() {
        let foreign = b"0000000000000000: 00000002 00000000 00010000 0001 01 8 @\xff\xfebinary\n";
        let sockets = [LIST.as_bytes(), foreign, LIST.as_bytes()].concat();
        assert_eq!(names(&sockets, 1000), ["phalanx-1000-42-0-3-8-my-job"; 2]);
    }

    #[test]
    fn a_socket_whose_name_is_no_text_keeps_nobody_from_asking() {
        let name = [b"\xff\xfephalanx-", std::process::id().to_string().as_bytes()].concat();
        let _foreign = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        ask(PATH, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_name_says_who_it_is() {
        let neighbour = parse("phalanx-1000-42-0-3-8-my-job").unwrap();
        assert_eq!((neighbour.uid, neighbour.pid, neighbour.rank, neighbour.world_size), (1000, 42, 3, 8));
        assert_eq!(neighbour.job, "my-job");
    }

    /// As in containers that share the network of their host.
    #[test]
    fn processes_of_one_number_in_two_namespaces_are_called_differently() {
        let says = |namespace| {
            let name = String::from_utf8(name_in(namespace, "my-job", (3, 8), 0)).unwrap();
            let neighbour = parse(&name).unwrap();
            assert_eq!((neighbour.pid, neighbour.rank, &*neighbour.job), (std::process::id(), 3, "my-job"));
            (name, neighbour.namespace)
        };
        let (one, other) = (says(7), says(u32::MAX));
        assert_ne!(one.0, other.0);
        assert_eq!((one.1, other.1), (7, u32::MAX));
        assert_ne!(own_namespace(), 0);
    }

    #[test]
    fn a_job_is_known_by_all_of_its_name_unless_that_is_cut() {
        let night = parse("phalanx-1000-42-0-3-8-night").unwrap();
        assert!(night.is_of("night") && !night.is_of("nightly") && !night.is_of("nigh"));
        let long = "n".repeat(LONGEST_NAME);
        let name = String::from_utf8(name(&long, (3, 8), 0)).unwrap();
        let cut = parse(&name).unwrap();
        assert!(cut.job.len() < long.len() && cut.is_of(&long) && !cut.is_of("night"));
    }

    fn visit(uid: u32, stream: Option<UnixStream>) -> Visit {
        stream.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
        Visit { neighbour: parse(&format!("phalanx-{uid}-2-0-0-1-j")).unwrap(), stream, heard: Vec::new() }
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
        assert_eq!([ROOT, 7, 8].map(|uid| has_room(&visits, &name(uid), ROOT)), [true, false, true]);
        assert!(has_room(&visits, &name(7), 7), "one's own");
        visits.extend((visits.len()..MOST_VISITS).map(|_| visit(ROOT, None)));
        assert!(!has_room(&visits, &name(ROOT), ROOT));
    }

    #[test]
    fn an_answer_that_breaks_off_is_none() {
        let (near, _far) = UnixStream::pair().unwrap();
        let part = Visit { heard: [FINE, b"\r\n\r\n{"].concat(), ..visit(1, Some(near)) };
        assert_eq!(part.end().1, None);
    }

    #[test]
    fn an_answer_that_is_none_is_not_believed() {
        let end = |heard: &str| {
            Visit { heard: heard.as_bytes().to_vec(), ..visit(1, None) }.end().1.as_deref().and_then(account)
        };
        let text = |format: u32| {
            format!(
                "{{\"format\":{format},\"job\":\"j\",\"rank\":0,\"world_size\":1,\"local_rank\":0,\"host_name\":\"h\",\
                 \"pid\":2,\"metrics\":null,\"groups\":[]}}"
            )
        };
        assert!(end(&format!("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", text(FORMAT))).is_some());
        for heard in [
            String::new(),
            "HTTP/1.1 200 OK\r\n\r\n".to_owned(),
            format!("HTTP/1.1 404 Not Found\r\n\r\n{}", text(FORMAT)),
            format!("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", text(FORMAT + 1)),
        ] {
            assert!(end(&heard).is_none(), "{heard}");
        }
    }
}
