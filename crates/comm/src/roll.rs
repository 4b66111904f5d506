//! The roll of a group: which collective each rank has begun under which number, so that no disagreement goes unseen; and whom
//! it says that it waits for.
//!
//! Frames and offers say the same, but only to those who look at them: a rank that looks for an offer sees no frame, and
//! nobody looks at what a second root of a broadcast offers.

use std::sync::atomic::{AtomicU64, Ordering};

use phalanx_core::{Error, Fingerprint, OpKind, PeerReason, Result};
use phalanx_mem::{Cells, record};

use crate::waits;

/// The last collectives of every rank, by their numbers. Ranks of several processes share it in a segment.
///
/// A rank writes its own entry before it reads the others', all in one order: of two ranks that look, the later one sees
/// the earlier one's entry. Ranks look when they have waited for long, and at once where one may be done without waiting.
#[derive(Debug)]
pub(crate) struct Roll {
    cells: Cells<AtomicU64>,
    /// The number of the last collective that a rank of this process began, and one more.
    latest: AtomicU64,
}

/// The entries of one rank, on cache lines of its own.
struct Page<'a> {
    /// Each entry in short, which is all that is looked at while all agree.
    digests: &'a [AtomicU64],
    entries: &'a [AtomicU64],
    /// What it says of a wait: see `waits`.
    wait: &'a [AtomicU64],
}

/// How many words the roll of `size` ranks takes.
pub(crate) fn words(size: usize) -> usize {
    size * PAGE
}

impl Roll {
    /// The roll in these cells, [`words`] of them.
    pub(crate) fn new(cells: Cells<AtomicU64>) -> Roll {
        Roll { cells, latest: AtomicU64::new(0) }
    }

    /// Writes down that `rank`, of this process, begins a collective.
    pub(crate) fn begin(&self, rank: usize, print: &Fingerprint) {
        self.note(rank, print);
        self.latest.store(u64::from(print.sequence) + 1, Ordering::Release);
    }

    /// Writes down what a rank has begun.
    pub(crate) fn note(&self, rank: usize, print: &Fingerprint) {
        let (place, page) = (print.sequence as usize % KEPT, self.page(rank));
        record::write(page.entry(place), print.words());
        page.digests[place].store(digest(print), Ordering::SeqCst);
    }

    /// That no other rank began another collective under the same number.
    pub(crate) fn compare(&self, rank: usize, print: &Fingerprint) -> Result<()> {
        let (place, digest) = (print.sequence as usize % KEPT, digest(print));
        for peer in 0..self.size() {
            let page = self.page(peer);
            let theirs = page.digests[place].load(Ordering::SeqCst);
            if theirs != NOTHING && theirs != digest && theirs >> 32 == digest >> 32 {
                page.compare(peer, rank, print)?;
            }
        }
        Ok(())
    }

    /// The same for a collective that `rank` began before, against what a peer is known to have begun under its number.
    pub(crate) fn compare_past(&self, rank: usize, peer: usize, theirs: &Fingerprint) -> Result<()> {
        let words = record::read(self.page(rank).entry(theirs.sequence as usize % KEPT));
        let ours =
            words.and_then(|words| Fingerprint::of_words(words).ok()).filter(|ours| ours.sequence == theirs.sequence);
        let differs = |ours: Fingerprint| {
            // A frame of an all-to-all says what goes between the two.
            let count = if ours.op == OpKind::AllToAll { ours.count } else { theirs.count };
            ours.disagreement(&Fingerprint { count, ..*theirs }, rank, peer, true)
        };
        ours.and_then(differs).map_or(Ok(()), Err)
    }

    /// The ranks that have not come to a number yet.
    pub(crate) fn absent(&self, sequence: u32) -> Vec<usize> {
        (0..self.size()).filter(|&rank| !self.page(rank).has_begun(sequence)).collect()
    }

    /// The last collective that a rank is known to have begun.
    pub(crate) fn last(&self, rank: usize) -> Option<Fingerprint> {
        let page = self.page(rank);
        let prints = (0..KEPT).filter(|place| page.digests[*place].load(Ordering::SeqCst) != NOTHING);
        let prints = prints.filter_map(|place| Fingerprint::of_words(record::read(page.entry(place))?).ok());
        // Numbers wrap.
        prints.reduce(|last, next| if next.sequence.wrapping_sub(last.sequence) <= KEPT as u32 { next } else { last })
    }

    /// The number of the last collective that this process's rank began, and one more.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// The last collectives that this process's `rank` began, without the first `told` of all, and at most this many; and how many it has
    /// begun, of which these are the last.
    pub(crate) fn begun(&self, rank: usize, told: u64, most: usize) -> (Vec<Fingerprint>, u64) {
        let (page, latest) = (self.page(rank), self.latest());
        // Numbers wrap, and then all that is kept counts as new.
        let first = if told > latest { 0 } else { told };
        let numbers = first.max(latest.saturating_sub(most.min(KEPT) as u64))..latest;
        let print = |number: u64| {
            let print = Fingerprint::of_words(record::read(page.entry(number as usize % KEPT))?).ok()?;
            (u64::from(print.sequence) == number).then_some(print)
        };
        (numbers.filter_map(print).collect(), latest)
    }

    /// Writes down what a rank says of a wait.
    pub(crate) fn set_wait(&self, rank: usize, words: [u64; waits::WORDS]) {
        record::write(self.page(rank).wait, words);
    }

    /// What a rank says of a wait.
    pub(crate) fn wait(&self, rank: usize) -> Option<[u64; waits::WORDS]> {
        record::read(self.page(rank).wait)
    }

    fn size(&self) -> usize {
        self.cells.len() / PAGE
    }

    fn page(&self, rank: usize) -> Page<'_> {
        let (digests, rest) = self.cells[rank * PAGE..(rank + 1) * PAGE].split_at(KEPT);
        let (entries, rest) = rest.split_at(KEPT * ENTRY);
        Page { digests, entries, wait: &rest[..WAIT] }
    }
}

impl<'a> Page<'a> {
    fn entry(&self, place: usize) -> &'a [AtomicU64] {
        &self.entries[place * ENTRY..(place + 1) * ENTRY]
    }

    fn has_begun(&self, sequence: u32) -> bool {
        let digest = self.digests[sequence as usize % KEPT].load(Ordering::SeqCst);
        // Numbers wrap, and an entry may have given way to one of a rank far ahead.
        digest != NOTHING && ((digest >> 32) as u32).wrapping_sub(sequence) <= u32::MAX / 2
    }

    /// Compares the entry of `peer`, if it has come to the number at all. One that is just being written tells nothing
    /// yet, and one that says nothing in our words is no entry of a rank of ours.
    fn compare(&self, peer: usize, rank: usize, print: &Fingerprint) -> Result<()> {
        let Some(words) = record::read(self.entry(print.sequence as usize % KEPT)) else {
            return Ok(());
        };
        let theirs = Fingerprint::of_words(words)
            .map_err(|bad| Error::peer(peer, PeerReason::Corrupt, format!("an entry in the roll is {bad}")))?;
        let differs = || print.disagreement(&theirs, rank, peer, true);
        (theirs.sequence == print.sequence).then(differs).flatten().map_or(Ok(()), Err)
    }
}

/// A fingerprint in short: its number above, a hash of the rest below, never [`NOTHING`]. Fingerprints that differ have other hashes
/// but for one chance in 2^31, and then frames and offers still tell.
fn digest(print: &Fingerprint) -> u64 {
    let mixed = print
        .words()
        .into_iter()
        .fold(1, |mixed: u64, word| (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    u64::from(print.sequence) << 32 | mixed >> 32 | 1
}

/// The digest of a place in which nothing was begun.
const NOTHING: u64 = 0;
/// How far a rank that only gives may run ahead of the others and still be compared with them.
const KEPT: usize = 64;
/// The words of a fingerprint, of its record, of the record of a wait, and of a page, which is whole lines.
const ENTRY: usize = record::cells(Fingerprint::WORDS);
const WAIT: usize = record::cells(waits::WORDS);
const PAGE: usize = (KEPT * (1 + ENTRY) + WAIT).next_multiple_of(phalanx_mem::LINE / size_of::<u64>());

#[cfg(test)]
mod tests {
    use phalanx_core::{DType, Op, ReduceOp};

    use super::*;

    fn roll() -> Roll {
        Roll::new(Cells::on_heap(words(3)).expect("memory"))
    }

    fn print(sequence: u32, count: usize) -> Fingerprint {
        Fingerprint::of(&Op::AllReduce { count, reduce: ReduceOp::Sum }, DType::F32, 3, 7, sequence)
    }

    #[test]
    fn words_hold_a_print() {
        assert_eq!(Fingerprint::of_words(print(9, 100).words()), Ok(print(9, 100)));
        assert!(Fingerprint::of_words([0; Fingerprint::WORDS]).is_err());
    }

    #[test]
    fn a_disagreement_is_told_by_whoever_looks_later() {
        let roll = roll();
        roll.begin(0, &print(5, 100));
        assert_eq!(roll.compare(0, &print(5, 100)), Ok(()));
        assert_eq!(roll.absent(5), [1, 2]);
        roll.begin(2, &print(5, 101));
        let error = roll.compare(2, &print(5, 101)).expect_err("another count");
        assert_eq!(error.to_string(), "operation 5: rank 2 called with count 101, rank 0 with count 100");
        assert_eq!(roll.absent(5), [1]);
        assert_eq!((roll.last(0), roll.last(1)), (Some(print(5, 100)), None));
        (u32::MAX - 70..=u32::MAX).chain(0..3).for_each(|sequence| roll.note(1, &print(sequence, 1)));
        assert_eq!(roll.last(1), Some(print(2, 1)));
        assert!(roll.absent(5_u32.wrapping_sub(KEPT as u32)).is_empty(), "all are far ahead");
    }

    #[test]
    fn a_disagreement_of_the_past_is_found_by_what_the_peer_says_of_it() {
        let roll = roll();
        (4..6).for_each(|sequence| roll.begin(0, &print(sequence, 100)));
        let last = (vec![print(5, 100)], 6);
        assert_eq!((roll.begun(0, 5, 64), roll.begun(0, 0, 1)), (last.clone(), last));
        assert_eq!(roll.begun(0, 0, 64), (vec![print(4, 100), print(5, 100)], 6));
        assert_eq!(roll.begun(0, 6, 64), (vec![], 6), "all is told");
        assert_eq!(roll.compare_past(0, 2, &print(4, 100)), Ok(()));
        assert_eq!(roll.compare_past(0, 2, &print(4 + KEPT as u32, 7)), Ok(()), "not begun yet");
        let error = roll.compare_past(0, 2, &print(4, 7)).expect_err("another count");
        assert_eq!(error.to_string(), "operation 4: rank 0 called with count 100, rank 2 with count 7");
    }

    #[test]
    fn a_writer_that_died_or_lies_neither_hangs_nor_panics() {
        let roll = roll();
        roll.begin(1, &print(0, 8));
        let page = roll.page(1);
        page.entry(0)[0].fetch_add(1, Ordering::Relaxed);
        assert_eq!(roll.compare(0, &print(0, 9)), Ok(()), "half written tells nothing");
        page.entry(0)[0].fetch_add(1, Ordering::Relaxed);
        page.entry(0)[1].store(u64::MAX, Ordering::Relaxed);
        let error = roll.compare(0, &print(0, 9)).expect_err("no entry");
        assert!(error.to_string().starts_with("rank 1 sent corrupt data: an entry in the roll"), "{error}");
    }
}
