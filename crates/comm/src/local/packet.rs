//! What is said at the door, as packets: each is sent whole or not at all, some with descriptors beside the bytes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::map::MOST_RANKS;

/// What a rank says when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) token: [u8; 16],
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) epoch: u32,
    pub(super) map: u64,
}

/// What it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// All have come: here are the segment, the processes of all ranks, and their kicks where they have some.
    Welcome { token: [u8; 16] },
    /// These ranks, by bit, did not come in time.
    Missing(u64),
    /// Size, epoch or program are not those of the group.
    Stranger,
    /// The rank came before.
    Taken,
    /// Rank 0 could not let all in: the system's number for what it lacked.
    Lacking(i32),
    /// This rank was lost when all had come: the system's number for what became of the connection to it.
    Lost { rank: u32, errno: i32 },
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.token);
        bytes[24..28].copy_from_slice(&self.rank.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.size.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[36..].copy_from_slice(&self.map.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Hello> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        let (rank, rest) = rest.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let map = rest.try_into().ok()?;
        let [rank, size, epoch] = [rank, size, epoch].map(|number| u32::from_le_bytes(*number));
        (magic == MAGIC).then_some(Hello { token: *token, rank, size, epoch, map: u64::from_le_bytes(map) })
    }
}

impl Answer {
    pub(super) fn encode(&self) -> [u8; ANSWER] {
        let mut bytes = [0; ANSWER];
        bytes[0] = match self {
            Answer::Welcome { token } => {
                bytes[1..].copy_from_slice(token);
                WELCOME
            }
            Answer::Missing(ranks) => {
                bytes[1..9].copy_from_slice(&ranks.to_le_bytes());
                MISSING
            }
            Answer::Stranger => STRANGER,
            Answer::Taken => TAKEN,
            Answer::Lacking(errno) => {
                bytes[1..5].copy_from_slice(&errno.to_le_bytes());
                LACKING
            }
            Answer::Lost { rank, errno } => {
                bytes[1..5].copy_from_slice(&rank.to_le_bytes());
                bytes[5..9].copy_from_slice(&errno.to_le_bytes());
                LOST
            }
        };
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Answer> {
        let (&kind, rest) = bytes.split_first()?;
        let token: [u8; 16] = rest.try_into().ok()?;
        match kind {
            WELCOME => Some(Answer::Welcome { token }),
            MISSING => Some(Answer::Missing(u64::from_le_bytes(*rest.first_chunk()?))),
            STRANGER => Some(Answer::Stranger),
            TAKEN => Some(Answer::Taken),
            LACKING => Some(Answer::Lacking(i32::from_le_bytes(*rest.first_chunk()?))),
            LOST => {
                let (rank, rest) = rest.split_first_chunk()?;
                let errno = i32::from_le_bytes(*rest.first_chunk()?);
                Some(Answer::Lost { rank: u32::from_le_bytes(*rank), errno })
            }
            _ => None,
        }
    }
}

/// Sends a packet with descriptors.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    })?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// The same, once there is room: so many descriptors of a user may be on their way to others as one process may have open, unless it is
/// privileged, and nobody says when one was taken.
pub(super) fn send_when_others_were_taken(
    socket: &OwnedFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<(), Errno> {
    loop {
        match send(socket, bytes, fds) {
            Err(Errno::TOOMANYREFS) if Instant::now() < deadline => thread::sleep(PAUSE),
            end => return end,
        }
    }
}

/// Waits for a packet, and returns its bytes and descriptors. The end of the connection is a reset.
pub(super) fn recv(socket: &OwnedFd, deadline: Instant) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    loop {
        match try_recv(socket) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            end => return end,
        }
        if !wait(&mut [PollFd::new(socket, PollFlags::IN)], deadline)? {
            return Err(Errno::TIMEDOUT);
        }
    }
}

/// Receives a packet that has come.
pub(super) fn try_recv(socket: &OwnedFd) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let (mut bytes, mut space) = ([0; LONGEST], [MaybeUninit::uninit(); SPACE]);
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let came = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags)?;
    let mut fds = vec![];
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if came.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    // What does not fit is of nobody who knows what we say.
    if came.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    // There is room for all descriptors that are ever sent, unless this process may have no more.
    if came.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::MFILE);
    }
    Ok((bytes[..came.bytes].to_vec(), fds))
}

/// Waits until a descriptor is ready; false when the deadline has passed.
pub(super) fn wait(fds: &mut [PollFd<'_>], deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
}

/// A rank has its place in the segment; all have.
pub(super) const READY: u8 = 5;
pub(super) const GO: u8 = 6;

const WELCOME: u8 = 1;
const MISSING: u8 = 2;
const STRANGER: u8 = 3;
const TAKEN: u8 = 4;
const LACKING: u8 = 7;
const LOST: u8 = 8;

/// Said first, with the version of what is said.
const MAGIC: &[u8; 8] = b"PHXDOOR1";
const HELLO: usize = 44;
const ANSWER: usize = 17;
const LONGEST: usize = 64;
/// How long to leave others to take what is on its way.
const PAUSE: Duration = Duration::from_millis(1);
/// Room for the segment, and the processes and kicks of all ranks.
const SPACE: usize = cmsg_space!(ScmRights(1 + 2 * MOST_RANKS));

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{Resource, getrlimit, setrlimit};

    use super::*;
    use crate::local::{Door, Gathering, Terms, attend};

    /// As whoever may not have more on the way than the limit says: root may, unless it is one of a namespace.
    #[test]
    #[expect(clippy::print_stderr, reason = "whoever runs the tests sees what was skipped")]
    fn descriptors_wait_for_room_on_the_way() {
        let mut ordinary = Command::new("unshare");
        ordinary.arg("--user").arg(std::env::current_exe().expect("this program"));
        ordinary.args(["--exact", "local::packet::tests::crowded", "--ignored", "--nocapture"]);
        match ordinary.output() {
            Ok(output) if output.stdout.is_empty() => eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr)),
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
            Err(error) => eprintln!("skipped, unshare: {error}"),
        }
    }

    #[test]
    #[ignore = "the other half of the one above, which starts it"]
    fn crowded() {
        let limit = Some(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(100));
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit, maximum: limit }).expect("less");
        let (sender, receiver) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
        let (sender, receiver) = (&sender, &receiver);
        let fds = [sender.as_fd(); 10];
        let soon = || Instant::now() + 2 * PAUSE;
        let sent = (0..20).take_while(|_| send_when_others_were_taken(sender, b"x", &fds, soon()).is_ok()).count();
        assert!(sent < 20, "there is no limit here");
        // A rank that brings what wakes it waits for room too.
        let door = Door::named(format!("phalanx-crowded-{}", std::process::id()));
        let terms = |rank| Terms { rank, members: (0..2).collect(), epoch: 0, token: [3; 16], map: 7, byte_len: 4096 };
        let (first, second) = (terms(0), terms(1));
        let _open = Gathering::open(&door, &first).expect("a free name");
        let late = Instant::now() + 50 * PAUSE;
        let told = attend(&door, &second, Some(sender.as_fd()), late).expect_err("there is no room");
        assert!(Instant::now() >= late, "{told}");
        thread::scope(|scope| {
            let late = Instant::now() + Duration::from_secs(60);
            let waiting = scope.spawn(move || send_when_others_were_taken(sender, b"y", &fds, late));
            (0..sent).for_each(|_| drop(recv(receiver, late).expect("it was sent")));
            assert_eq!(waiting.join().expect("no panic"), Ok(()));
            assert_eq!(recv(receiver, late).expect("it was sent").0, b"y");
        });
    }

    #[test]
    fn packets_come_back_whole_and_nonsense_is_none() {
        let hello = Hello { token: [7; 16], rank: 1, size: 2, epoch: 3, map: u64::MAX };
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Some(hello));
        assert_eq!(Hello::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!((0..HELLO).find_map(|len| Hello::decode(&bytes[..len])), None);
        assert_eq!(Hello::decode(&[0; HELLO]), None);
        let welcome = Answer::Welcome { token: [9; 16] };
        let lost = Answer::Lost { rank: 4, errno: 104 };
        for answer in [welcome, Answer::Missing(5), Answer::Stranger, Answer::Taken, Answer::Lacking(24), lost] {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes), Some(answer));
            assert_eq!((0..ANSWER).find_map(|len| Answer::decode(&bytes[..len])), None);
        }
        assert_eq!(Answer::decode(&[77; ANSWER]), None);
    }
}
