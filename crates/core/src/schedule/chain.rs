//! Chains: a tree of one branch, for large data in many segments. Team number 0 is the root.

use super::draft::Draft;
use super::team::Team;
use super::{Recv, Send, Span, Then};

/// Member 0 ends with the reduction in `data`, which must be its own to write; the others' data stays as it is.
pub(super) fn reduce(draft: &mut Draft, team: &Team, data: Span, segments: usize) {
    let (me, last) = (team.me(), team.len() - 1);
    // One piece goes out while the next one arrives.
    let is_between = me > 0 && me < last;
    let rooms: Vec<Span> =
        (0..segments.min(2)).filter(|_| is_between).map(|_| draft.scratch(data.len.div_ceil(segments))).collect();
    let sum = |segment: usize| {
        let piece = data.piece(segment, segments);
        if is_between { Span { len: piece.len, ..rooms[segment % 2] } } else { piece }
    };
    for segment in 0..=segments {
        if segment < segments {
            draft.copy(data.piece(segment, segments), sum(segment));
        }
        let recv = (me < last && segment < segments).then(|| Recv {
            from: team.rank(me + 1),
            span: sum(segment),
            then: Then::Fold,
        });
        let send = before(segment).filter(|_| me > 0).map(|done| Send { to: team.rank(me - 1), span: sum(done) });
        draft.moving(send, recv);
    }
}

/// Every member ends with member 0's `data`.
pub(super) fn broadcast(draft: &mut Draft, team: &Team, data: Span, segments: usize) {
    let (me, last) = (team.me(), team.len() - 1);
    for segment in 0..=segments {
        let recv = (me > 0 && segment < segments).then(|| Recv {
            from: team.rank(me - 1),
            span: data.piece(segment, segments),
            then: Then::Store,
        });
        let send = before(segment)
            .filter(|_| me < last)
            .map(|done| Send { to: team.rank(me + 1), span: data.piece(done, segments) });
        draft.moving(send, recv);
    }
}

/// The segment before this one: what is passed on while this one arrives.
fn before(segment: usize) -> Option<usize> {
    segment.checked_sub(1)
}
