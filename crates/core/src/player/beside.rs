//! An offer beside a join: what this rank offers next is copied while what its only peer offered before is joined.

use super::memory::Memory;
use super::viewing::{Join, Number, bytes_of, checked, shown};
use super::{Task, lost};
use crate::link::{Lease, Mesh, Wanted};
use crate::reduce::{Beside, combine_beside, combine_past_caches};
use crate::schedule::Span;
use crate::{Error, Result};

/// Offers a span and joins, where nothing is missing for either; else does nothing, and says so by false.
pub(super) fn offer_and_pull_all(
    task: &Task<'_>,
    (spans, lease): (&[Span], Lease),
    join: &Join<'_>,
    memory: &mut Memory<'_, '_>,
    mesh: &mut Mesh,
) -> Result<bool> {
    let windows = mesh.windows().map_err(|error| lost(task.rank, error))?;
    let ([span], ([from], offer)) = (spans, join.from) else { return Ok(false) };
    if join.into.len == 0 || span.len == 0 || !span.is_apart_from(join.into) || offer.among_all() >= windows.offers() {
        return Ok(false);
    }
    let next = Number { place: windows.offers() - offer.first, ..offer };
    let head = task.head(next.in_heads());
    let part = bytes_of(task, from.start, join.into.len);
    let wanted = Wanted { rank: from.rank, offer: offer.among_all(), part: part.clone() };
    let is_past_caches = memory.joins_past_caches(join.into.place);
    let (target, around) = memory.split(join.into);
    let given = around.read(*span);
    let mine = (join.own.0 != join.into).then(|| around.read(join.own.0));
    let mut joined = Ok(());
    let made = windows.try_offer_beside(&head, given, lease, wanted, &mut |room, view| {
        let theirs =
            checked(task, (from.rank, offer.in_heads()), view, part.clone()).and_then(|seen| shown(from.rank, seen));
        joined = theirs.and_then(|theirs| {
            // Without room it was copied before.
            let beside = Beside { from: &given[..room.len()], room };
            let (reduce, dtype) = (task.join(join.whole), task.dtype);
            match mine {
                Some(mine) if is_past_caches => combine_past_caches(reduce, dtype, target, [mine, theirs], beside),
                _ => combine_beside(reduce, dtype, target, (mine, theirs), beside),
            }
            .map_err(|error| Error::setup("reduction", error))
        });
        joined.is_ok()
    });
    joined.map(|()| made)
}
