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
//! program has it there, and stays for as long as the program. That does not come back, so all that was read before its word is its own.

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
        self.peers[peer].as_ref().is_some_and(|neighbour| self.has_word(peer, neighbour) && neighbour.lives())
    }

    /// Whether the word of a rank is where the rank has said.
    fn has_word(&self, peer: usize, neighbour: &Neighbour) -> bool {
        let [place, word] = [peer, 2 * self.peers.len() + peer].map(|at| self.reach[at].load(Ordering::Acquire));
        let mut bytes = [0; size_of::<u64>()];
        let is_read = usize::try_from(place).is_ok_and(|place| neighbour.read(place, &mut bytes).is_ok());
        is_read && u64::from_ne_bytes(bytes) == word
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
        match neighbour.read(address, into) {
            Ok(()) => Ok(()),
            Err(Errno::ESRCH) => Err(LinkError::Ended { rank }),
            // There was something where it was offered, in the program that is not there any more.
            Err(Errno::EFAULT) if !self.finds(rank) => Err(LinkError::Closed { rank: Some(rank) }),
            Err(Errno::EFAULT) => {
                Err(LinkError::corrupt(rank, format!("an offer at {address:#x}, where nothing is to be read")))
            }
            Err(errno) => Err(LinkError::Failed(format!("reading its process: {errno}"))),
        }
    }

    fn confirm(&mut self) -> Result<(), LinkError> {
        while self.unconfirmed != 0 {
            let rank = self.unconfirmed.trailing_zeros() as usize;
            self.unconfirmed &= self.unconfirmed - 1;
            let Some(neighbour) = &self.peers[rank] else { continue };
            // In this order: if it lives after that, it was this process that was read.
            let has_word = self.has_word(rank, neighbour);
            if !neighbour.lives() {
                return Err(LinkError::Ended { rank });
            }
            if !has_word {
                return Err(LinkError::Closed { rank: Some(rank) });
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

    fn read(&self, address: usize, into: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < into.len() {
            let base = address.checked_add(done).ok_or(Errno::EFAULT)?;
            let from = [RemoteIoVec { base, len: into.len() - done }];
            match process_vm_readv(self.pid, &mut [IoSliceMut::new(&mut into[done..])], &from)? {
                0 => return Err(Errno::EFAULT),
                read => done += read,
            }
        }
        Ok(())
    }

    /// Whether the process has not ended.
    fn lives(&self) -> bool {
        !has_ended(&self.process)
    }
}

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

    /// As where a process goes on with another program.
    #[test]
    fn what_was_read_where_the_ranks_word_is_not_any_more_is_nothing() {
        let mut ranks = ranks(2);
        ranks.iter_mut().for_each(Neighbourhood::look_around);
        let (given, mut taken) = ([7_u8; 100], [0; 100]);
        assert_eq!(ranks[0].fetch(1, given.as_ptr().expose_provenance(), &mut taken), Ok(()));
        let other = Box::new(0_u64);
        ranks[1].reach[1].store(ptr::from_ref(other.as_ref()).expose_provenance() as u64, Ordering::Release);
        let closed = Err(LinkError::Closed { rank: Some(1) });
        assert_eq!(ranks[0].confirm(), closed);
        assert_eq!(ranks[0].fetch(1, 8, &mut taken), closed, "nothing is there in that program");
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
