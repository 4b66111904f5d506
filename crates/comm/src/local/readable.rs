//! Which memory of this process the system reads for others: not secret memory, nor what a device maps, as the drivers of GPUs
//! do where they pin memory.

use std::io::IoSliceMut;
use std::time::{Duration, Instant};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getpid;

/// The stretches of memory that were found to be readable lately.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Readable {
    known: Vec<Stretch>,
    oldest: usize,
    /// Since when something has been known.
    since: Option<Instant>,
}

/// Memory without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    start: usize,
    end: usize,
    /// Up to where its bytes were tried.
    tried: usize,
}

impl Readable {
    /// Whether the system reads this part for others, as its ends tell. What was found to be readable is believed to stay so,
    /// and what follows it without a gap to be like it for a while: operations walk through memory in many short parts.
    pub(super) fn covers(&mut self, part: &[u8]) -> bool {
        self.forget_old(Instant::now());
        self.reaches(part.as_ptr().expose_provenance(), part.as_ptr_range().end.addr())
    }

    /// Forgets what is not known since just now: between operations memory may be given back, and other memory come to the same address.
    /// To find out anew in each operation would take a tenth of the time of a short one.
    fn forget_old(&mut self, now: Instant) {
        if self.since.is_some_and(|since| now.saturating_duration_since(since) > BELIEVED) {
            self.known.clear();
            (self.oldest, self.since) = (0, None);
        }
    }

    fn reaches(&mut self, start: usize, end: usize) -> bool {
        if start == end || self.known.iter().any(|known| known.start <= start && end <= known.end) {
            return true;
        }
        let before = self.known.iter().position(|known| known.start <= start && start <= known.end);
        let is_like_it = before.is_some_and(|at| end <= self.known[at].tried + ALIKE);
        if !(is_like_it || reads([start, end - 1])) {
            return false;
        }
        let Some(known) = before.map(|at| &mut self.known[at]) else {
            self.add(Stretch { start, end, tried: end });
            return true;
        };
        known.end = end;
        known.tried = if is_like_it { known.tried } else { end };
        true
    }

    /// Adds a stretch, if need be in the place of the oldest.
    fn add(&mut self, stretch: Stretch) {
        self.since.get_or_insert_with(Instant::now);
        if self.known.len() < KNOWN {
            return self.known.push(stretch);
        }
        self.known[self.oldest] = stretch;
        self.oldest = (self.oldest + 1) % KNOWN;
    }
}

/// Whether the system reads these two bytes of this process for others, as it does for the process itself.
fn reads(addresses: [usize; 2]) -> bool {
    let from = addresses.map(|base| RemoteIoVec { base, len: 1 });
    process_vm_readv(getpid(), &mut [IoSliceMut::new(&mut [0; 2])], &from) == Ok(2)
}

const KNOWN: usize = 8;
/// No program exchanges memory for some that a device has pinned in this time.
const BELIEVED: Duration = Duration::from_millis(1);
/// How far from a byte that was tried others are believed to be like it: a call of the system for each such step takes less than
/// a hundredth of the time in which so much is moved.
const ALIKE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_readable_from_end_to_end_and_known_then() {
        let memory = vec![7_u8; 3 * ALIKE];
        let mut readable = Readable::default();
        assert!(memory.chunks(1000).all(|part| readable.covers(part)));
        let [known] = readable.known[..] else { panic!("one stretch, however short the parts: {readable:?}") };
        assert_eq!(known.end - known.start, memory.len());
        assert!(known.tried - known.start > ALIKE, "not from its first byte alone");
        assert!(readable.covers(&memory) && readable.covers(&[]));
        let others: Vec<Vec<u8>> = (1..=2 * KNOWN).map(|len| vec![1; len << 12]).collect();
        assert!(others.iter().all(|other| readable.covers(other)));
    }

    #[test]
    fn what_the_system_does_not_read_is_not_covered() {
        let byte = 7_u8;
        let here = std::ptr::from_ref(&byte).expose_provenance();
        assert!(reads([here; 2]) && !reads([here, 8]) && !reads([8, here]) && !reads([usize::MAX, here]));
    }

    #[test]
    fn what_was_readable_is_not_believed_to_be_so_for_ever() {
        // As of memory that was there before.
        let known = Stretch { start: 8, end: 16, tried: 16 };
        let found = Instant::now();
        let mut readable = Readable { known: vec![known], oldest: 0, since: Some(found) };
        readable.forget_old(found + BELIEVED);
        assert!(readable.reaches(8, 16) && readable.reaches(8, 20));
        readable.forget_old(found + 2 * BELIEVED);
        assert!(!readable.reaches(8, 16) && !readable.reaches(8, 20));
    }
}
