//! Which memory of this process the system reads for others: not secret memory, nor what a device maps, as the drivers of GPUs
//! do where they pin memory.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getpid;

/// The stretches of memory that were found to be readable lately.
#[derive(Debug, Default)]
pub(super) struct Readable {
    known: [Stretch; KNOWN],
    oldest: usize,
}

/// Memory without a gap.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    start: usize,
    end: usize,
    /// Up to where its bytes were tried.
    tried: usize,
}

impl Readable {
    /// Whether the system reads this part for others, as its ends tell. What was found to be readable once is believed to stay
    /// so, and what follows it without a gap to be like it for a while: operations walk through memory in many short parts.
    pub(super) fn covers(&mut self, part: &[u8]) -> bool {
        let (start, end) = (part.as_ptr().expose_provenance(), part.as_ptr_range().end.addr());
        if start == end || self.known.iter().any(|known| known.start <= start && end <= known.end) {
            return true;
        }
        let before = self.known.iter().position(|known| known.start <= start && start <= known.end);
        let is_like_it = before.is_some_and(|at| end <= self.known[at].tried + ALIKE);
        if !(is_like_it || reads(start) && reads(end - 1)) {
            return false;
        }
        let Some(known) = before.map(|at| &mut self.known[at]) else {
            self.known[self.oldest] = Stretch { start, end, tried: end };
            self.oldest = (self.oldest + 1) % KNOWN;
            return true;
        };
        known.end = end;
        known.tried = if is_like_it { known.tried } else { end };
        true
    }
}

/// Whether the system reads a byte of this process for others, as it does for the process itself.
fn reads(address: usize) -> bool {
    let from = [RemoteIoVec { base: address, len: 1 }];
    process_vm_readv(getpid(), &mut [IoSliceMut::new(&mut [0])], &from) == Ok(1)
}

const KNOWN: usize = 8;
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
        let [known, other, ..] = readable.known;
        assert_eq!((known.end - known.start, other.end), (memory.len(), 0), "one stretch, however short the parts");
        assert!(known.tried - known.start > ALIKE, "not from its first byte alone");
        assert!(readable.covers(&memory) && readable.covers(&[]));
        let others: Vec<Vec<u8>> = (1..=2 * KNOWN).map(|len| vec![1; len << 12]).collect();
        assert!(others.iter().all(|other| readable.covers(other)));
    }

    #[test]
    fn what_the_system_does_not_read_is_not_covered() {
        assert!(!reads(8) && !reads(usize::MAX));
        assert!(reads([7_u8].as_ptr().expose_provenance()));
    }
}
