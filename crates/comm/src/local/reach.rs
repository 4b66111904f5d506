//! The processes of a host's ranks as memory to read: who can read whom, and reading it. Not when that is allowed.
//!
//! Every rank says in the segment at which address of its process its word is, and which. Once all have said so each looks for the
//! others' words there, and says in the segment which it has found. A rank whose memory all others can read may leave an offer in it.
//!
//! # Why what was read is the rank's
//!
//! Reading goes by the number of a process, and numbers are used again. The descriptor of the process, opened when the
//! ranks met, tells whether it still lives; if so after the reading, the number was its own all the time.
//!
//! A process that lives may go on with another program, whose memory would be read then. The word is drawn by chance, so that no other
//! program has it there, and stays for as long as the program. It is read behind the rest by the same call, for which the system takes the
//! process's memory once: both are of one program. Where it takes several calls, the word of the last is for all of them, because a program
//! does not come back.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use phalanx_core::link::LinkError;
use phalanx_mem::Cells;

use super::process::{has_ended, number_of};
use super::readable::Readable;
use crate::memory::Neighbours;

/// The ranks of a host as one of them sees their processes.
pub(crate) struct Neighbourhood {
    rank: usize,
    reach: Cells<AtomicU64>,
    /// By rank; none where a process cannot be named.
    peers: Vec<Option<Neighbour>>,
    /// The peers that were read and not yet seen to live since.
    unconfirmed: u64,
    /// Whether all peers have found this rank's word.
    is_open: bool,
    readable: Readable,
}

/// The process of one peer.
struct Neighbour {
    process: Arc<OwnedFd>,
    pid: Pid,
}

/// The word of all ranks of this process.
static WORD: OnceLock<u64> = OnceLock::new();

/// How many words `size` ranks need: an address, the ranks found, and what is at the address, for each.
pub(crate) fn words(size: usize) -> usize {
    3 * size
}

impl Neighbourhood {
    /// Shows where this rank's word is. The peers' processes are given by rank.
    pub(crate) fn new(rank: usize, reach: Cells<AtomicU64>, peers: &[(usize, Arc<OwnedFd>)]) -> Neighbourhood {
        let size = reach.len() / words(1);
        let neighbour = |rank: usize| {
            let (_, process) = peers.iter().find(|(peer, _)| *peer == rank)?;
            Neighbour::new(Arc::clone(process))
        };
        let word = WORD.get_or_init(|| fastrand::u64(..));
        reach[2 * size + rank].store(*word, Ordering::Release);
        reach[rank].store(ptr::from_ref(word).expose_provenance() as u64, Ordering::Release);
        let peers = (0..size).map(neighbour).collect();
        Neighbourhood { rank, reach, peers, unconfirmed: 0, is_open: false, readable: Readable::default() }
    }

    /// Looks for the peers' words, all of which have shown theirs, and says which it finds.
    pub(crate) fn look_around(&mut self) {
        let size = self.peers.len();
        let found = (0..size).filter(|&peer| self.finds(peer)).fold(0, |found, peer| found | 1 << peer);
        self.reach[size + self.rank].store(found, Ordering::Release);
    }

    fn finds(&self, peer: usize) -> bool {
        // If it lives after that, it was this process that was read.
        let is_found = |neighbour: &Neighbour| self.seek(peer, neighbour) == Ok(true) && neighbour.lives();
        self.peers[peer].as_ref().is_some_and(is_found)
    }

    /// Whether the word of a rank is where the rank has said.
    fn seek(&self, peer: usize, neighbour: &Neighbour) -> Result<bool, Errno> {
        self.read(peer, neighbour, 0, &mut [])
    }

    /// Fills `into` from this address of a rank's process, whatever process and program that is by now; whether it has the rank's word.
    fn read(&self, peer: usize, neighbour: &Neighbour, address: usize, into: &mut [u8]) -> Result<bool, Errno> {
        let [place, word] = [peer, 2 * self.peers.len() + peer].map(|at| self.reach[at].load(Ordering::Acquire));
        let place = usize::try_from(place).map_err(|_| Errno::EFAULT)?;
        Ok(neighbour.read(address, into, place)? == word)
    }
}

impl Neighbours for Neighbourhood {
    fn can_fetch(&mut self) -> bool {
        if !self.is_open {
            let size = self.peers.len();
            let finds = |peer: usize| self.reach[size + peer].load(Ordering::Acquire) & 1 << self.rank != 0;
            self.is_open = (0..size).filter(|&peer| peer != self.rank).all(finds);
        }
        self.is_open
    }

    fn can_fetch_from(&mut self, part: &[u8]) -> bool {
        self.readable.covers(part)
    }

    fn fetch(&mut self, rank: usize, address: usize, into: &mut [u8]) -> Result<(), LinkError> {
        let Some(neighbour) = self.peers.get(rank).and_then(Option::as_ref) else {
            return Err(LinkError::Failed(format!("rank {rank} is no process to be read")));
        };
        self.unconfirmed |= 1 << rank;
        let read = match self.read(rank, neighbour, address, into) {
            // The word alone tells whether nothing was there ever, or in another program.
            Err(Errno::EFAULT) => match self.seek(rank, neighbour) {
                Ok(true) => {
                    let what = format!("an offer at {address:#x}, where nothing is to be read");
                    return Err(LinkError::corrupt(rank, what));
                }
                Err(Errno::EFAULT) => Ok(false),
                other => other,
            },
            read => read,
        };
        match read {
            Ok(true) => Ok(()),
            Err(Errno::ESRCH) => Err(LinkError::Ended { rank }),
            // Another process has the number by now.
            Ok(false) | Err(Errno::EPERM) if !neighbour.lives() => Err(LinkError::Ended { rank }),
            Ok(false) => Err(LinkError::Adrift { rank }),
            // All could read it when they met, and mostly it is its own doing that they cannot any more.
            Err(Errno::EPERM) => Err(LinkError::corrupt(rank, NOT_ANY_MORE)),
            Err(errno) => Err(LinkError::Failed(format!("reading its process: {errno}"))),
        }
    }

    fn confirm(&mut self) -> Result<(), LinkError> {
        while self.unconfirmed != 0 {
            let rank = self.unconfirmed.trailing_zeros() as usize;
            self.unconfirmed &= self.unconfirmed - 1;
            if self.peers[rank].as_ref().is_some_and(|neighbour| !neighbour.lives()) {
                return Err(LinkError::Ended { rank });
            }
        }
        Ok(())
    }
}

impl Neighbour {
    /// None where the system does not tell the number.
    fn new(process: Arc<OwnedFd>) -> Option<Neighbour> {
        let pid = Pid::from_raw(number_of(&process)?);
        Some(Neighbour { process, pid })
    }

    /// Fills `into` from this address; which word is at `place` then.
    fn read(&self, address: usize, into: &mut [u8], place: usize) -> Result<u64, Errno> {
        let (mut done, mut word) = (0, [0_u8; size_of::<u64>()]);
        loop {
            let rest = into.len() - done;
            let base = address.checked_add(done).ok_or(Errno::EFAULT)?;
            let from = [RemoteIoVec { base, len: rest }, RemoteIoVec { base: place, len: word.len() }];
            let mut to = [IoSliceMut::new(&mut into[done..]), IoSliceMut::new(&mut word)];
            match process_vm_readv(self.pid, &mut to, &from)? {
                read if read == rest + size_of::<u64>() => return Ok(u64::from_ne_bytes(word)),
                // It goes on behind what was read, the word again with it.
                read if read > 0 && rest > 0 => done += read.min(rest),
                _ => return Err(Errno::EFAULT),
            }
        }
    }

    /// Whether the process has not ended.
    fn lives(&self) -> bool {
        !has_ended(&self.process)
    }
}

/// What is wrong with an offer in a process that does not let this one read any more.
const NOT_ANY_MORE: &str =
    "an offer in a process that may not be read any more: it runs another program, or has changed who may";

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use phalanx_mem::Segment;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;

    fn descriptor(pid: rustix::process::Pid) -> Arc<OwnedFd> {
        Arc::new(pidfd_open(pid, PidfdFlags::empty()).expect("it lives"))
    }

    /// Ranks of this very process, which may read itself.
    fn ranks(size: usize) -> Vec<Neighbourhood> {
        let segment = Segment::create(words(size) * size_of::<u64>()).expect("memfd");
        let rank = |rank: usize| {
            let view = Segment::open(segment.fd().try_clone_to_owned().expect("free")).expect("sealed");
            let reach = Cells::in_segment(Arc::new(view), 0, words(size)).expect("free");
            let peers: Vec<_> =
                (0..size).filter(|&peer| peer != rank).map(|peer| (peer, descriptor(getpid()))).collect();
            Neighbourhood::new(rank, reach, &peers)
        };
        (0..size).map(rank).collect()
    }

    #[test]
    fn ranks_that_all_have_found_may_be_read() {
        let mut ranks = ranks(3);
        assert!(!ranks[0].can_fetch(), "nobody has looked");
        ranks[0].look_around();
        ranks[1].look_around();
        assert!(!ranks[0].can_fetch() && !ranks[1].can_fetch() && ranks[2].can_fetch());
        ranks[2].look_around();
        assert!(ranks.iter_mut().all(Neighbours::can_fetch));
        let (given, mut taken) = ([7_u8; 10_000], [0; 10_000]);
        assert_eq!(ranks[1].fetch(2, given.as_ptr().expose_provenance(), &mut taken), Ok(()));
        assert_eq!((taken, ranks[1].confirm()), (given, Ok(())));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let mut ranks = ranks(2);
        let refused = ranks[0].fetch(1, usize::MAX - 3, &mut [0; 8]);
        assert!(matches!(refused, Err(LinkError::Corrupt { .. })), "{refused:?}");
        let refused = ranks[0].fetch(1, 8, &mut [0; 8]);
        assert!(matches!(refused, Err(LinkError::Corrupt { .. })), "{refused:?}");
        assert!(ranks[0].fetch(0, 8, &mut [0; 8]).is_err(), "its own process is no neighbour");
        assert!(ranks[0].fetch(2, 8, &mut [0; 8]).is_err());
    }

    #[test]
    fn a_word_that_is_another_closes_the_rank() {
        let mut ranks = ranks(2);
        let other = Box::new(0_u64);
        ranks[1].reach[1].store(ptr::from_ref(other.as_ref()).expose_provenance() as u64, Ordering::Release);
        ranks.iter_mut().for_each(Neighbourhood::look_around);
        assert!(ranks[0].can_fetch() && !ranks[1].can_fetch());
    }

    /// As where a process goes on with another program, which has another word there or nothing at all.
    #[test]
    fn what_is_read_where_the_ranks_word_is_not_any_more_is_nothing() {
        let mut ranks = ranks(2);
        ranks.iter_mut().for_each(Neighbourhood::look_around);
        let (given, mut taken) = ([7_u8; 100], [0; 100]);
        let address = given.as_ptr().expose_provenance();
        let other = Box::new(0_u64);
        for place in [ptr::from_ref(other.as_ref()).expose_provenance() as u64, 8] {
            let before = ranks[1].reach[1].load(Ordering::Acquire);
            assert_eq!(ranks[0].fetch(1, address, &mut taken), Ok(()));
            ranks[1].reach[1].store(place, Ordering::Release);
            assert_eq!(ranks[0].confirm(), Ok(()), "read before, of a process that lives");
            assert_eq!(ranks[0].fetch(1, address, &mut taken), Err(LinkError::Adrift { rank: 1 }));
            assert_eq!(
                ranks[0].fetch(1, 8, &mut taken),
                Err(LinkError::Adrift { rank: 1 }),
                "nothing is there in that program"
            );
            ranks[1].reach[1].store(before, Ordering::Release);
        }
    }

    /// The system gives what is there up to where it ends.
    #[test]
    fn an_offer_of_which_only_the_beginning_is_there_is_an_error() {
        let mut ranks = ranks(2);
        ranks.iter_mut().for_each(Neighbourhood::look_around);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("of this process");
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).expect("it has one");
        let end = stack.split(['-', ' ']).nth(1).expect("from where to where");
        let end = usize::from_str_radix(end, 16).expect("an address");
        assert_eq!(ranks[0].fetch(1, end - 8, &mut [0; 8]), Ok(()));
        let refused = ranks[0].fetch(1, end - 8, &mut [0; 16]);
        assert!(matches!(refused, Err(LinkError::Corrupt { .. })), "{refused:?}");
    }

    #[test]
    fn a_process_that_ended_is_told() {
        let mut child: Child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a pid");
        let mut rank = Neighbourhood::new(0, Cells::on_heap(words(2)).expect("memory"), &[(1, descriptor(pid))]);
        child.kill().expect("it lives");
        child.wait().expect("a child");
        let closed = Err(LinkError::Ended { rank: 1 });
        assert_eq!(rank.fetch(1, 8, &mut [0; 8]), closed);
        assert_eq!(rank.confirm(), closed);
        assert_eq!(rank.confirm(), Ok(()), "told once");
    }
}
