//! Steps over windows: offers to the peers of this host, and pulls from theirs. Every offer begins with the fingerprint.

use std::ops::Range;

use super::memory::{Memory, Parts};
use super::{Progress, Task, corrupt, lost};
use crate::link::{Lease, Mesh, Seen, View, Windows};
use crate::reduce::{Beside, combine, combine_in_place, combine_past_caches};
use crate::schedule::{Part, Span, Step};
use crate::{Error, Result};

/// Which offer: the number of its operation's first, and how many come between.
#[derive(Clone, Copy)]
pub(super) struct Number {
    pub(super) first: u64,
    pub(super) place: u64,
}

impl Number {
    /// Among all offers of the rank.
    pub(super) fn among_all(self) -> u64 {
        self.first + self.place
    }

    /// Among those of its operation, as heads say it: what is lent before them has a place too.
    pub(super) fn in_heads(self) -> u8 {
        (self.place + 1) as u8
    }
}

/// Publishes spans as this rank's next offer in the operation whose first had this number.
pub(super) fn offer(
    task: &Task<'_>,
    first: u64,
    (spans, lease): (&[Span], Lease),
    memory: &Memory<'_, '_>,
    windows: &mut dyn Windows,
) -> Result<Progress> {
    let head = task.head(Number { first, place: windows.offers() - first }.in_heads());
    let mut parts = Parts::new();
    parts.extend(spans.iter().map(|&span| memory.read(span)));
    let made = windows.try_offer(&head, &parts, lease).map_err(|error| lost(task.rank, error))?;
    Ok(if made { Progress::Done } else { Progress::Idle })
}

/// Copies a part of one peer's offer: `(peer, offer, first element)`.
pub(super) fn pull(
    task: &Task<'_>,
    (peer, offer, start): (usize, Number, usize),
    into: Span,
    memory: &mut Memory<'_, '_>,
    mesh: &mut Mesh,
) -> Result<Progress> {
    let windows = mesh.windows().map_err(|error| lost(peer, error))?;
    let Some(part) = view(task, windows, (peer, offer), start, into.len)? else {
        return Ok(Progress::Idle);
    };
    match part {
        Seen::Here(part) => windows.copy(memory.pulls(into.place), memory.write(into), part),
        Seen::Away(address) => {
            windows.fetch(peer, address, memory.write(into)).map_err(|error| lost(peer, error))?;
        }
    }
    Ok(Progress::Done)
}

/// A step that joins parts of several peers' offers with this rank's own.
pub(super) struct Join<'a> {
    /// Where the peers' parts are, and in which of their offers.
    pub(super) from: (&'a [Part], Number),
    /// What this rank adds, and its place among the operands.
    pub(super) own: (Span, usize),
    pub(super) into: Span,
    /// Whether these are all inputs.
    pub(super) whole: bool,
}

impl Join<'_> {
    /// What a step joins of an operation whose first offer has this number; none where it is another kind of step.
    pub(super) fn of(step: &Step, first: u64) -> Option<Join<'_>> {
        let Step::PullAll { from, offer, own, place, into, whole } = step else { return None };
        let offer = Number { first, place: *offer as u64 };
        Some(Join { from: (from, offer), own: (*own, *place), into: *into, whole: *whole })
    }
}

/// Joins, once everything for it is offered.
pub(super) fn pull_all(
    task: &Task<'_>,
    join: &Join<'_>,
    memory: &mut Memory<'_, '_>,
    mesh: &mut Mesh,
) -> Result<Progress> {
    let windows = mesh.windows().map_err(|error| lost(task.rank, error))?;
    let (from, offer) = join.from;
    let mut parts = Parts::new();
    for part in from {
        match view(task, windows, (part.rank, offer), part.start, join.into.len)? {
            Some(seen) => parts.push(shown(part.rank, seen)?),
            None => return Ok(Progress::Idle),
        }
    }
    let ((own, place), reduce, is_past_caches) =
        (join.own, task.join(join.whole), memory.joins_past_caches(join.into.place));
    let (target, around) = memory.split(join.into);
    let joined = if own == join.into {
        combine_in_place(reduce, task.dtype, target, place, &parts)
    } else {
        parts.insert(place, around.read(own));
        match parts[..] {
            [first, second] if is_past_caches => {
                combine_past_caches(reduce, task.dtype, target, [first, second], Beside::nothing())
            }
            _ => combine(reduce, task.dtype, target, &parts),
        }
    };
    joined.map_err(|error| Error::setup("reduction", error))?;
    Ok(Progress::Done)
}

/// Bytes that can be read where they are, as those must that are joined.
pub(super) fn shown(peer: usize, seen: Seen<'_>) -> Result<&[u8]> {
    match seen {
        Seen::Here(bytes) => Ok(bytes),
        Seen::Away(_) => Err(corrupt(peer, "an offer of what was to be shown elsewhere")),
    }
}

/// A part of a peer's offer, once it is made.
fn view<'a>(
    task: &Task<'_>,
    windows: &'a dyn Windows,
    (peer, offer): (usize, Number),
    start: usize,
    len: usize,
) -> Result<Option<Seen<'a>>> {
    let part = bytes_of(task, start, len);
    let view = windows.view(peer, offer.among_all(), part.clone()).map_err(|error| lost(peer, error))?;
    view.map(|view| checked(task, (peer, offer.in_heads()), view, part)).transpose()
}

/// The part of a peer's offer at this place in the operation, as it was asked for. What the peer wrote is another process's input: nothing is taken on trust.
pub(super) fn checked<'a>(
    task: &Task<'_>,
    (peer, place): (usize, u8),
    view: View<'a>,
    part: Range<usize>,
) -> Result<Seen<'a>> {
    task.compare_head(peer, view.head, place)?;
    view.part.ok_or_else(|| corrupt(peer, format!("an offer that ends before byte {}", part.end)))
}

/// So many elements from this one on, as bytes.
pub(super) fn bytes_of(task: &Task<'_>, start: usize, len: usize) -> Range<usize> {
    let unit = task.dtype.byte_len();
    start * unit..(start + len) * unit
}
