//! Steps over windows: offers to the peers of this host, and pulls from theirs. Every offer begins with the fingerprint.

use super::memory::{Memory, Parts};
use super::{Progress, Task, corrupt, lost};
use crate::link::{Lease, Mesh, Seen, Windows};
use crate::reduce::{combine, combine_in_place};
use crate::schedule::{Part, Span};
use crate::{Error, Result};

/// Publishes spans as this rank's next offer.
pub(super) fn offer(
    task: &Task,
    (spans, lease): (&[Span], Lease),
    memory: &Memory<'_, '_>,
    windows: &mut dyn Windows,
) -> Result<Progress> {
    let head = task.fingerprint(task.rank, true).encode();
    let mut parts = Parts::new();
    parts.extend(spans.iter().map(|&span| memory.read(span)));
    let made = windows.try_offer(&head, &parts, lease).map_err(|error| lost(task.rank, error))?;
    Ok(if made { Progress::Done } else { Progress::Idle })
}

/// Copies a part of one peer's offer: `(peer, offer, first element)`.
pub(super) fn pull(
    task: &Task,
    (peer, offer, start): (usize, u64, usize),
    into: Span,
    memory: &mut Memory<'_, '_>,
    mesh: &mut Mesh,
) -> Result<Progress> {
    let windows = mesh.windows().map_err(|error| lost(peer, error))?;
    let Some(part) = view(task, windows, (peer, offer), start, into.len)? else {
        return Ok(Progress::Idle);
    };
    match part {
        Seen::Here(part) => memory.write(into).copy_from_slice(part),
        Seen::Away(address) => {
            windows.fetch(peer, address, memory.write(into)).map_err(|error| lost(peer, error))?;
        }
    }
    Ok(Progress::Done)
}

/// Joins parts of several peers' offers, `(parts, offer)`, with this rank's own, `(span, place among them)`, into
/// `(span, whether these are all inputs)`.
pub(super) fn pull_all(
    task: &Task,
    (from, offer): (&[Part], u64),
    (own, place): (Span, usize),
    (into, whole): (Span, bool),
    memory: &mut Memory<'_, '_>,
    mesh: &mut Mesh,
) -> Result<Progress> {
    let windows = mesh.windows().map_err(|error| lost(task.rank, error))?;
    let mut parts = Parts::new();
    for part in from {
        match view(task, windows, (part.rank, offer), part.start, into.len)? {
            Some(Seen::Here(bytes)) => parts.push(bytes),
            Some(Seen::Away(_)) => return Err(corrupt(part.rank, "an offer of what was to be shown elsewhere")),
            None => return Ok(Progress::Idle),
        }
    }
    let reduce = task.join(whole);
    let joined = memory.with_parts(into, &[own], |target, in_place, mine| match in_place {
        Some(_) => combine_in_place(reduce, task.dtype, target, place, &parts),
        None => {
            let mut all = Parts::new();
            all.extend(parts[..place].iter().chain(mine).chain(&parts[place..]).copied());
            combine(reduce, task.dtype, target, &all)
        }
    });
    joined.map_err(|error| Error::setup("reduction", error))?;
    Ok(Progress::Done)
}

/// A part of a peer's offer, once it is made. What the peer wrote is another process's input: nothing is taken on trust.
fn view<'a>(
    task: &Task,
    windows: &'a dyn Windows,
    (peer, offer): (usize, u64),
    start: usize,
    len: usize,
) -> Result<Option<Seen<'a>>> {
    let unit = task.dtype.byte_len();
    let part = start * unit..(start + len) * unit;
    let Some(view) = windows.view(peer, offer, part.clone()).map_err(|error| lost(peer, error))? else {
        return Ok(None);
    };
    task.compare(peer, view.head, &task.fingerprint(peer, false))?;
    view.part.map(Some).ok_or_else(|| corrupt(peer, format!("an offer that ends before byte {}", part.end)))
}
