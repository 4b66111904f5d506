//! The three places of a schedule as bytes, and the access that steps need to several spans of them at once.

use phalanx_mem::copy_past_caches;
use smallvec::SmallVec;

use super::Task;
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

/// The caller's buffers and the player's scratch.
pub(super) struct Memory<'a, 'b> {
    pub(super) data: &'a mut Data<'b>,
    pub(super) scratch: &'a mut [u8],
    /// Bytes of one element.
    pub(super) byte_len: usize,
    /// Whether to write past the caches to where the caller has it.
    is_past_caches: bool,
}

impl<'a, 'b> Memory<'a, 'b> {
    /// What this task works in.
    pub(super) fn of(task: &Task, data: &'a mut Data<'b>, scratch: &'a mut [u8]) -> Memory<'a, 'b> {
        let is_past_caches = is_past_caches(task, data.input.len().max(data.output.len()));
        Memory { data, scratch, byte_len: task.dtype.byte_len(), is_past_caches }
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
        let copy = self.copies(into.place);
        self.with_parts(into, &[from], |target, _, parts| copy(target, parts[0]));
    }

    /// Whether to write past the caches there.
    pub(super) fn is_past_caches(&self, place: Place) -> bool {
        self.is_past_caches && place == Place::Output
    }

    /// How to copy there.
    pub(super) fn copies(&self, place: Place) -> Copies {
        if self.is_past_caches(place) { copy_past_caches } else { <[u8]>::copy_from_slice }
    }

    /// Calls `join(target, position of the target among the parts, the other parts in order)`.
    pub(super) fn with_parts<R>(
        &mut self,
        into: Span,
        parts: &[Span],
        join: impl FnOnce(&mut [u8], Option<usize>, &[&[u8]]) -> R,
    ) -> R {
        let byte_len = self.byte_len;
        let (target, other): (&mut [u8], &[u8]) = match into.place {
            Place::Scratch => (self.scratch, &*self.data.output),
            _ => (&mut *self.data.output, &*self.scratch),
        };
        let input = self.data.input;
        let (before, rest) = target.split_at_mut(into.start * byte_len);
        let (target, after) = rest.split_at_mut(into.len * byte_len);
        let (before, after) = (&*before, &*after);
        let find = |part: &Span| {
            let (place, from) = match part.place {
                Place::Input => (input, 0),
                place if place != into.place => (other, 0),
                _ if part.start < into.start => (before, 0),
                _ => (after, into.end()),
            };
            &place[(part.start - from) * byte_len..(part.end() - from) * byte_len]
        };
        let position = parts.iter().position(|part| *part == into);
        let mut others = Parts::new();
        others.extend(parts.iter().filter(|part| **part != into).map(find));
        join(target, position, &others)
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

/// Whether an operation writes its result past the caches, where its longer buffer is of so many bytes. What is joined in its place has been
/// read there and is in the caches.
fn is_past_caches(task: &Task, byte_len: usize) -> bool {
    match task.op {
        Op::AllGather { .. } | Op::AllToAll { .. } | Op::ReduceScatter { .. } => byte_len >= task.past_caches.beside,
        Op::Broadcast { .. } => byte_len >= task.past_caches.in_place,
        _ => false,
    }
}
