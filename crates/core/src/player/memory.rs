//! The three places of a schedule as bytes, and the access that steps need to several spans of them at once.

use phalanx_mem::copy_past_caches;
use smallvec::SmallVec;

use super::{PastCaches, Task};
use crate::Op;
use crate::link::Copies;
use crate::schedule::{Place, Span};

/// The caller's buffers, as the player sees them during one poll.
#[derive(Debug)]
pub struct Data<'a> {
    /// What the caller gives; empty when the operation works in place.
    pub input: &'a [u8],
    /// What the caller gets.
    pub output: &'a mut [u8],
}

/// What is joined or published together: of a host's ranks mostly so few that it takes no memory. It is filled where it
/// was made: collected or made with a capacity it would be moved, and that is a copy.
pub(super) type Parts<'a> = SmallVec<[&'a [u8]; 10]>;

/// What is around a span that is written.
pub(super) struct Around<'a> {
    into: Span,
    byte_len: usize,
    input: &'a [u8],
    /// The other place that may be written.
    other: &'a [u8],
    /// What of its own place comes before it and after it.
    before: &'a [u8],
    after: &'a [u8],
}

impl<'a> Around<'a> {
    /// A span that is apart from the one that is written.
    #[inline]
    pub(super) fn read(&self, span: Span) -> &'a [u8] {
        let (place, from) = match span.place {
            Place::Input => (self.input, 0),
            place if place != self.into.place => (self.other, 0),
            _ if span.start < self.into.start => (self.before, 0),
            _ => (self.after, self.into.end()),
        };
        &place[(span.start - from) * self.byte_len..(span.end() - from) * self.byte_len]
    }
}

/// The caller's buffers and the player's scratch.
pub(super) struct Memory<'a, 'b> {
    pub(super) data: &'a mut Data<'b>,
    pub(super) scratch: &'a mut [u8],
    /// Bytes of one element.
    pub(super) byte_len: usize,
    op: &'a Op,
    past_caches: PastCaches,
}

impl<'a, 'b> Memory<'a, 'b> {
    /// What this task works in.
    pub(super) fn of(task: &Task<'a>, data: &'a mut Data<'b>, scratch: &'a mut [u8]) -> Memory<'a, 'b> {
        let Task { op, dtype, past_caches, .. } = *task;
        Memory { data, scratch, byte_len: dtype.byte_len(), op, past_caches }
    }

    fn past_caches(&self) -> Past {
        Past::of(self.op, self.data.input.len().max(self.data.output.len()), self.past_caches)
    }

    pub(super) fn read(&self, span: Span) -> &[u8] {
        let place = match span.place {
            Place::Input => self.data.input,
            Place::Output => &*self.data.output,
            Place::Scratch => &*self.scratch,
        };
        &place[self.start(span)..self.end(span)]
    }

    /// A span to write. The validity check has seen that no schedule writes the input.
    pub(super) fn write(&mut self, span: Span) -> &mut [u8] {
        let (start, end) = (self.start(span), self.end(span));
        &mut self.place_mut(span.place)[start..end]
    }

    pub(super) fn copy(&mut self, from: Span, into: Span) {
        let (start, end, at) = (self.start(from), self.end(from), self.start(into));
        if from.place == into.place {
            return self.place_mut(into.place).copy_within(start..end, at);
        }
        let copy = copies(self.past_caches().copied && into.place == Place::Output);
        let (target, around) = self.split(into);
        copy(target, around.read(from));
    }

    /// How what is pulled is copied there.
    pub(super) fn pulls(&self, into: Place) -> Copies {
        copies(self.past_caches().pulled && into == Place::Output)
    }

    /// Whether what is pulled to the caller's memory goes past the caches.
    pub(super) fn pulls_past_caches(&self) -> bool {
        self.past_caches().pulled
    }

    /// Whether what is joined is written past the caches there.
    pub(super) fn joins_past_caches(&self, into: Place) -> bool {
        self.past_caches().joined && into == Place::Output
    }

    /// A span to write, and what can be read meanwhile.
    #[inline]
    pub(super) fn split(&mut self, into: Span) -> (&mut [u8], Around<'_>) {
        let byte_len = self.byte_len;
        let (target, other): (&mut [u8], &[u8]) = match into.place {
            Place::Scratch => (self.scratch, &*self.data.output),
            _ => (&mut *self.data.output, &*self.scratch),
        };
        let (before, rest) = target.split_at_mut(into.start * byte_len);
        let (target, after) = rest.split_at_mut(into.len * byte_len);
        (target, Around { into, byte_len, input: self.data.input, other, before, after })
    }

    fn place_mut(&mut self, place: Place) -> &mut [u8] {
        match place {
            Place::Input => &mut [],
            Place::Output => self.data.output,
            Place::Scratch => self.scratch,
        }
    }

    fn start(&self, span: Span) -> usize {
        span.start * self.byte_len
    }

    fn end(&self, span: Span) -> usize {
        span.end() * self.byte_len
    }
}

/// What an operation writes past the caches to where the caller has it: that of which it reads nothing any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Past {
    /// What it copies in the rank's own memory.
    copied: bool,
    /// What it pulls from a peer, or writes for one that has lent its memory.
    pulled: bool,
    /// What it joins from several ranks' memory, elsewhere than in the place of one: that has been read, and is in the caches.
    joined: bool,
}

impl Past {
    /// Of an operation whose longer buffer is of so many bytes.
    fn of(op: &Op, byte_len: usize, from: PastCaches) -> Past {
        let PastCaches { own, beside, broadcast } = from;
        match op {
            Op::AllGather { .. } | Op::AllToAll { .. } => {
                Past { copied: byte_len >= own, pulled: byte_len >= beside, joined: false }
            }
            Op::ReduceScatter { .. } if byte_len >= beside => Past { joined: true, ..Past::default() },
            // What its root copies is what it then offers.
            Op::Broadcast { .. } if byte_len >= broadcast => Past { pulled: true, ..Past::default() },
            _ => Past::default(),
        }
    }
}

fn copies(is_past_caches: bool) -> Copies {
    if is_past_caches { copy_past_caches } else { <[u8]>::copy_from_slice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counts, ReduceOp};

    #[test]
    fn what_an_operation_reads_again_is_written_into_the_caches() {
        let (counts, reduce) = (Counts::Even(5), ReduceOp::Sum);
        let nothing = Past::default();
        let copied = Past { copied: true, ..nothing };
        let moved = Past { pulled: true, ..copied };
        let all_to_all = Op::AllToAll { give: counts.clone(), take: counts.clone() };
        for (op, from, expected) in [
            (Op::AllGather { counts: counts.clone() }, 50, [nothing, copied]),
            (Op::AllGather { counts: counts.clone() }, 100, [copied, moved]),
            (all_to_all.clone(), 50, [nothing, copied]),
            (all_to_all, 100, [copied, moved]),
            (Op::ReduceScatter { counts: counts.clone(), reduce }, 100, [nothing, Past { joined: true, ..nothing }]),
            (Op::Broadcast { count: 5, root: 0 }, 200, [nothing, Past { pulled: true, ..nothing }]),
            (Op::AllReduce { count: 5, reduce }, usize::MAX, [nothing; 2]),
            (Op::Gather { counts, root: 0 }, usize::MAX, [nothing; 2]),
        ] {
            let past_caches = PastCaches { own: 50, beside: 100, broadcast: 200 };
            assert_eq!([from - 1, from].map(|byte_len| Past::of(&op, byte_len, past_caches)), expected, "{op:?}");
        }
    }
}
