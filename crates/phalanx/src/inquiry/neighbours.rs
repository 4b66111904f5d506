//! The other side: the ranks of this host that this user may ask, and what they answer. A rank that is stopped is there and says nothing.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{geteuid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::account::{Account, FORMAT};

/// A rank on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Neighbour {
    /// Its process.
    pub pid: u32,
    /// Whose process that is.
    pub uid: u32,
    /// Counts the worlds of its process.
    pub world: u32,
    /// The job's name, perhaps only its beginning.
    pub job: String,
    /// Its number in the world when it joined.
    pub rank: usize,
    /// How many ranks the world had then.
    pub world_size: usize,
    /// What it answers; none where it does not in time, or not in words that this version understands.
    pub account: Option<Account>,
}

/// Asks all ranks of this user on this host how they stand; those of all users, where this user is root. They have this long to answer.
/// The order is by job and rank.
///
/// Seen are ranks in this network namespace whose `PHALANX_TOP` is not 0, whoever started them.
///
/// # Errors
///
/// When the kernel does not list its sockets.
pub fn neighbours(patience: Duration) -> io::Result<Vec<Neighbour>> {
    let told = ask(PATH, patience)?.into_iter();
    Ok(told.map(|(neighbour, page)| Neighbour { account: page.as_deref().and_then(account), ..neighbour }).collect())
}

/// Asks the same ranks for one of their pages; what each says, if it does in time. The order is by job and rank.
pub(crate) fn ask(path: &str, patience: Duration) -> io::Result<Vec<(Neighbour, Option<Vec<u8>>)>> {
    let names = names(&fs::read_to_string(SOCKETS)?, geteuid().as_raw());
    let mut visits: Vec<Visit> = names.iter().filter_map(|name| Visit::begin(name, path)).collect();
    listen(&mut visits, Instant::now() + patience);
    let mut told: Vec<_> = visits.into_iter().map(Visit::end).collect();
    told.sort_by(|(one, _), (other, _)| {
        let key = |neighbour: &Neighbour| (neighbour.job.clone(), neighbour.rank, neighbour.pid, neighbour.world);
        key(one).cmp(&key(other))
    });
    Ok(told)
}

/// What the socket of a job's rank is called, where `number` counts the worlds of this process.
pub(super) fn name(job: &str, (rank, size): (usize, usize), number: u32) -> Vec<u8> {
    let (uid, pid) = (geteuid().as_raw(), std::process::id());
    let mut name = format!("{PREFIX}{uid}-{pid}-{number}-{rank}-{size}-{job}").into_bytes();
    name.truncate(LONGEST_NAME);
    name
}

/// The names of listening sockets of this user's ranks, in the kernel's list of sockets.
fn names(sockets: &str, user: u32) -> Vec<String> {
    let listening = |line: &str| {
        let mut words = line.split_whitespace();
        let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
        let name = words.nth(3)?.strip_prefix('@')?;
        let (neighbour, is_ours) = (parse(name)?, flags & ACCEPTS != 0);
        (is_ours && (neighbour.uid == user || user == ROOT)).then(|| name.to_owned())
    };
    sockets.lines().filter_map(listening).collect()
}

/// What a name says.
fn parse(name: &str) -> Option<Neighbour> {
    let mut words = name.strip_prefix(PREFIX)?.splitn(6, '-');
    let mut number = || words.next()?.parse().ok();
    let (uid, pid, world) = (number()?, number()?, number()?);
    let (rank, world_size) = (number()? as usize, number()? as usize);
    Some(Neighbour { pid, uid, world, rank, world_size, job: words.next()?.to_owned(), account: None })
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
        let owner = socket_peercred(&socket).ok()?;
        // A child of a dead rank may hold its socket still.
        if owner.uid.as_raw() != neighbour.uid || test_kill_process(owner.pid) == Err(rustix::io::Errno::SRCH) {
            return None;
        }
        // Its own number for itself may be of another namespace.
        neighbour.pid = owner.pid.as_raw_nonzero().get().try_into().unwrap_or(neighbour.pid);
        let mut stream = UnixStream::from(socket);
        let request = format!("GET {path} HTTP/1.1\r\nHost: phalanx\r\n\r\n");
        let stream = stream.write_all(request.as_bytes()).is_ok().then_some(stream);
        Some(Visit { neighbour, stream, heard: Vec::new() })
    }

    /// Reads what there is.
    fn hear(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let room = MOST_HEARD.saturating_sub(self.heard.len() as u64);
        match stream.take(room).read_to_end(&mut self.heard) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            _ => self.stream = None,
        }
    }

    /// Who it was, and the page.
    fn end(self) -> (Neighbour, Option<Vec<u8>>) {
        let page = self.heard.strip_prefix(FINE).and_then(|rest| {
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

/// Hears all, until everybody has answered or the time is up.
fn listen(visits: &mut [Visit], deadline: Instant) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waited: Vec<PollFd<'_>> =
            visits.iter().filter_map(|visit| Some(PollFd::new(visit.stream.as_ref()?, PollFlags::IN))).collect();
        if waited.is_empty() || left.is_zero() {
            return;
        }
        let polled = poll(&mut waited, Timespec::try_from(left).ok().as_ref());
        if polled.is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        visits.iter_mut().for_each(Visit::hear);
    }
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
/// More than any account has.
const MOST_HEARD: u64 = 64 << 20;

#[cfg(test)]
mod tests {
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
        assert_eq!(names(LIST, 1000), ["phalanx-1000-42-0-3-8-my-job"]);
        assert_eq!(names(LIST, ROOT).len(), 2);
        assert!(names(LIST, 7).is_empty());
    }

    #[test]
    fn a_name_says_who_it_is() {
        let neighbour = parse("phalanx-1000-42-0-3-8-my-job").unwrap();
        assert_eq!((neighbour.uid, neighbour.pid, neighbour.rank, neighbour.world_size), (1000, 42, 3, 8));
        assert_eq!(neighbour.job, "my-job");
    }

    #[test]
    fn an_answer_that_is_none_is_not_believed() {
        let end = |heard: &str| {
            let neighbour = parse("phalanx-1-2-0-0-1-j").unwrap();
            Visit { neighbour, stream: None, heard: heard.as_bytes().to_vec() }.end().1.as_deref().and_then(account)
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
