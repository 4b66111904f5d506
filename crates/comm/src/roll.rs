//! The roll of a group: which collective each rank has begun under which number, so that no disagreement goes unseen.
//!
//! Frames and offers say the same, but only to those who look at them: a rank that looks for an offer sees no frame, and
//! nobody looks at what a second root of a broadcast offers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use phalanx_core::{Fingerprint, Result};

/// The last collectives of every rank, by their numbers.
///
/// A rank writes its own entry before it reads the others', all in one order: of two ranks that look, the later one sees
/// the earlier one's entry. Ranks look when they have waited for long, and at once where one may be done without waiting.
#[derive(Debug)]
pub(crate) struct Roll {
    ranks: Vec<Page>,
}

/// The entries of one rank, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Page {
    /// Each entry in short, which is all that is looked at while all agree.
    digests: [AtomicU64; KEPT],
    entries: Mutex<[Option<Fingerprint>; KEPT]>,
}

impl Roll {
    /// A roll of this many ranks that have begun nothing yet.
    pub(crate) fn new(size: usize) -> Roll {
        let page = || Page { digests: std::array::from_fn(|_| AtomicU64::new(0)), entries: Mutex::new([None; KEPT]) };
        Roll { ranks: (0..size).map(|_| page()).collect() }
    }

    /// Writes down that `rank` begins a collective.
    pub(crate) fn begin(&self, rank: usize, print: &Fingerprint) {
        let (place, page) = (print.sequence as usize % KEPT, &self.ranks[rank]);
        page.entries.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(*print);
        page.digests[place].store(digest(print), Ordering::SeqCst);
    }

    /// That no other rank began another collective under the same number.
    pub(crate) fn compare(&self, rank: usize, print: &Fingerprint) -> Result<()> {
        let (place, digest) = (print.sequence as usize % KEPT, digest(print));
        for (peer, page) in self.ranks.iter().enumerate() {
            let theirs = page.digests[place].load(Ordering::SeqCst);
            if theirs != digest && theirs >> 32 == digest >> 32 {
                page.compare(peer, rank, print)?;
            }
        }
        Ok(())
    }

    /// The ranks that have not come to a number yet.
    pub(crate) fn absent(&self, sequence: u32) -> Vec<usize> {
        (0..self.ranks.len()).filter(|&rank| !self.ranks[rank].has_begun(sequence)).collect()
    }
}

impl Page {
    fn has_begun(&self, sequence: u32) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Numbers wrap, and an entry may have given way to one of a rank far ahead.
        entries[sequence as usize % KEPT].is_some_and(|entry| entry.sequence.wrapping_sub(sequence) <= u32::MAX / 2)
    }

    /// Compares the entry of `peer`, if it has come to the number at all.
    fn compare(&self, peer: usize, rank: usize, print: &Fingerprint) -> Result<()> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = entries[print.sequence as usize % KEPT].filter(|theirs| theirs.sequence == print.sequence);
        theirs.and_then(|theirs| print.disagreement(&theirs, rank, peer, true)).map_or(Ok(()), Err)
    }
}

/// A fingerprint in short: its number above, a hash of the rest below, never 0. Fingerprints that differ have other hashes
/// but for one chance in 2^31, and then frames and offers still tell.
fn digest(print: &Fingerprint) -> u64 {
    let bytes = print.encode();
    let word = |bytes: &[u8]| bytes.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    let mixed = bytes
        .chunks_exact(8)
        .map(word)
        .fold(1, |mixed: u64, word| (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    u64::from(print.sequence) << 32 | mixed >> 32 | 1
}

/// How far a rank that only gives may run ahead of the others and still be compared with them.
const KEPT: usize = 64;
