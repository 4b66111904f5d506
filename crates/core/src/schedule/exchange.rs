//! Pairwise exchange: in step k every member sends to the one k after it and receives from the one k before it.
//!
//! As many bytes as the ring, but every input of a slice comes to its owner as it was, so that the owner joins them all
//! at once: wide accumulators, one rounding, and integer averages are possible.

use super::draft::Draft;
use super::slices::Slices;
use super::team::Team;
use super::{Recv, Send, Span, Then};

/// Member `i` ends with slice `i` of the reduction in `into`, which may be slice `i` of `data` itself.
///
/// Scratch holds one segment of the slice from every other member.
pub(super) fn reduce_scatter(draft: &mut Draft, team: &Team, data: &Slices, into: Span, segments: usize, whole: bool) {
    let mine = data.of(team.me());
    let rooms: Vec<Span> = (1..team.len()).map(|_| draft.scratch(mine.len.div_ceil(segments))).collect();
    for segment in 0..segments {
        let piece = mine.piece(segment, segments);
        let mut parts = vec![piece; team.len()];
        for distance in 1..team.len() {
            let (to, from) = (team.after(distance), team.before(distance));
            parts[from] = Span { len: piece.len, ..rooms[distance - 1] };
            draft.swap(
                Send { to: team.rank(to), span: data.of(to).piece(segment, segments) },
                Recv { from: team.rank(from), span: parts[from], then: Then::Store },
            );
        }
        draft.combine(into.piece(segment, segments), parts, whole);
    }
}

/// Every member ends with every slice, given that member `i` has slice `i` in place.
pub(super) fn all_gather(draft: &mut Draft, team: &Team, data: &Slices, segments: usize) {
    let mine = data.of(team.me());
    for segment in 0..segments {
        for distance in 1..team.len() {
            let (to, from) = (team.after(distance), team.before(distance));
            draft.swap(
                Send { to: team.rank(to), span: mine.piece(segment, segments) },
                Recv { from: team.rank(from), span: data.of(from).piece(segment, segments), then: Then::Store },
            );
        }
    }
}

/// Slice `j` of member `i`'s `give` becomes slice `i` of member `j`'s `take`.
pub(super) fn all_to_all(draft: &mut Draft, team: &Team, give: &Slices, take: &Slices, segments: usize) {
    draft.copy(give.of(team.me()), take.of(team.me()));
    for segment in 0..segments {
        for distance in 1..team.len() {
            let (to, from) = (team.after(distance), team.before(distance));
            draft.swap_always(
                Send { to: team.rank(to), span: give.of(to).piece(segment, segments) },
                Recv { from: team.rank(from), span: take.of(from).piece(segment, segments), then: Then::Store },
            );
        }
    }
}

/// Member 0 ends with every member's slice in `all`: each sends its own, one after the other.
pub(super) fn gather(draft: &mut Draft, team: &Team, mine: Span, all: &Slices) {
    if team.me() > 0 {
        return draft.send(team.rank(0), mine);
    }
    draft.copy(mine, all.of(team.rank(0)));
    for member in 1..team.len() {
        let rank = team.rank(member);
        draft.recv(rank, all.of(rank), Then::Store);
    }
}

/// Member `i` ends with slice `i` of member 0's `all` in `mine`: the root sends one after the other.
pub(super) fn scatter(draft: &mut Draft, team: &Team, all: &Slices, mine: Span) {
    if team.me() > 0 {
        return draft.recv(team.rank(0), mine, Then::Store);
    }
    for member in 1..team.len() {
        let rank = team.rank(member);
        draft.send(rank, all.of(rank));
    }
    draft.copy(all.of(team.rank(0)), mine);
}
