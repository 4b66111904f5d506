//! Direct: members of one host read each other's windows, so that each folds its own slice of everybody's data.
//!
//! Every member makes the same number of offers, empty ones included: an offer also says that all pulls before it are
//! done, which is what lets a slot be used again. Each segment must fit a slot of the window.

use super::Span;
use super::draft::Draft;
use super::slices::Slices;
use super::team::Team;

/// Every member ends with the whole reduction in place; each folds one slice and reads the others' results.
pub(super) fn all_reduce(draft: &mut Draft, team: &Team, data: Span, segments: usize, whole: bool) {
    for segment in 0..segments {
        let piece = data.piece(segment, segments);
        let slices = Slices::even(piece, team.len());
        let mine = slices.of(team.me());
        let offer = draft.offer(vec![piece]);
        draft.pull_all(team.ranks(), offer, mine.start - piece.start, mine, whole);
        collect(draft, team, mine, &slices);
    }
}

/// Every member ends with the whole reduction in place; each folds all of it: for small data.
pub(super) fn all_reduce_at_once(draft: &mut Draft, team: &Team, data: Span, segments: usize, whole: bool) {
    for segment in 0..segments {
        let piece = data.piece(segment, segments);
        let offer = draft.offer(vec![piece]);
        draft.pull_all(team.ranks(), offer, 0, piece, whole);
    }
}

/// Member 0 ends with the reduction in `data`, which must be its own to write; the others' data stays as it is.
pub(super) fn reduce(draft: &mut Draft, team: &Team, data: Span, segments: usize, whole: bool) {
    let at_root = team.me() == 0;
    let room = draft.scratch(if at_root { 0 } else { data.len.div_ceil(segments).div_ceil(team.len()) });
    for segment in 0..segments {
        let piece = data.piece(segment, segments);
        let slices = Slices::even(piece, team.len());
        let mine = slices.of(team.me());
        let result = if at_root { mine } else { Span { len: mine.len, ..room } };
        let offer = draft.offer(vec![piece]);
        draft.pull_all(&by_rank(team), offer, mine.start - piece.start, result, whole);
        let offer = draft.offer(vec![result]);
        for member in others(team).filter(|_| at_root) {
            draft.pull(team.rank(member), offer, 0, slices.of(member));
        }
    }
}

/// Every member ends with member 0's `data`.
pub(super) fn broadcast(draft: &mut Draft, team: &Team, data: Span, segments: usize) {
    for segment in 0..segments {
        let piece = data.piece(segment, segments);
        let at_root = team.me() == 0;
        let offer = draft.offer(if at_root { vec![piece] } else { vec![] });
        if !at_root {
            draft.pull(team.rank(0), offer, 0, piece);
        } else if segment == 0 {
            hear(draft, team, team.after(1), offer);
        }
    }
}

/// Every member ends with every slice, given that member `i` has slice `i` in place.
pub(super) fn all_gather(draft: &mut Draft, team: &Team, data: &Slices, segments: usize) {
    for segment in 0..segments {
        let offer = draft.offer(vec![data.of(team.me()).piece(segment, segments)]);
        for member in others(team) {
            draft.pull(team.rank(member), offer, 0, data.of(member).piece(segment, segments));
        }
    }
}

/// Member `i` ends with slice `i` of the reduction in `into`, which may be slice `i` of `data` itself.
pub(super) fn reduce_scatter(draft: &mut Draft, team: &Team, data: &Slices, into: Span, segments: usize, whole: bool) {
    for segment in 0..segments {
        let pieces = pieces(data, team.len(), segment, segments);
        let start = pieces[..team.me()].iter().map(|piece| piece.len).sum();
        let offer = draft.offer(pieces);
        draft.pull_all(team.ranks(), offer, start, into.piece(segment, segments), whole);
    }
}

/// Slice `j` of member `i`'s `give` becomes slice `i` of member `j`'s `take`; all slices are of one length.
pub(super) fn all_to_all(draft: &mut Draft, team: &Team, give: &Slices, take: &Slices, segments: usize) {
    draft.copy(give.of(team.me()), take.of(team.me()));
    for segment in 0..segments {
        let pieces = pieces(give, team.len(), segment, segments);
        let start = pieces[..team.me()].iter().map(|piece| piece.len).sum();
        let offer = draft.offer(pieces);
        for member in others(team) {
            draft.pull(team.rank(member), offer, start, take.of(member).piece(segment, segments));
        }
    }
}

/// Member 0 ends with every member's slice in `all`, which is cut by rank.
pub(super) fn gather(draft: &mut Draft, team: &Team, mine: Span, all: &Slices, segments: usize) {
    for segment in 0..segments {
        let offer = draft.offer(vec![mine.piece(segment, segments)]);
        for member in others(team).filter(|_| team.me() == 0) {
            let rank = team.rank(member);
            draft.pull(rank, offer, 0, all.of(rank).piece(segment, segments));
        }
        if segment == 0 && team.me() > 0 {
            hear(draft, team, 0, offer);
        }
    }
    if team.me() == 0 {
        draft.copy(mine, all.of(team.rank(0)));
    }
}

/// Member `i` ends with its slice of member 0's `all`, which is cut by rank, in `mine`.
pub(super) fn scatter(draft: &mut Draft, team: &Team, all: &Slices, mine: Span, segments: usize) {
    let my_rank = team.rank(team.me());
    for segment in 0..segments {
        let pieces = pieces(all, team.len(), segment, segments);
        let start = pieces[..my_rank].iter().map(|piece| piece.len).sum();
        let offer = draft.offer(if team.me() == 0 { pieces } else { vec![] });
        if team.me() > 0 {
            draft.pull(team.rank(0), offer, start, mine.piece(segment, segments));
        } else if segment == 0 {
            hear(draft, team, team.after(1), offer);
        }
    }
    if team.me() == 0 {
        draft.copy(all.of(my_rank), mine);
    }
}

/// No member leaves before every member has come.
pub(super) fn barrier(draft: &mut Draft, team: &Team) {
    let nothing = draft.scratch(0);
    let offer = draft.offer(vec![]);
    for member in others(team) {
        draft.pull(team.rank(member), offer, 0, nothing);
    }
}

/// Reads nothing of a member's offer but its fingerprint. Nothing is left behind in a window, so whoever only gives would
/// never hear that the others called something else.
fn hear(draft: &mut Draft, team: &Team, member: usize, offer: usize) {
    if member != team.me() {
        let nothing = draft.scratch(0);
        draft.pull(team.rank(member), offer, 0, nothing);
    }
}

/// Publishes this member's result and reads the others'.
fn collect(draft: &mut Draft, team: &Team, mine: Span, slices: &Slices) {
    let offer = draft.offer(vec![mine]);
    for member in others(team) {
        draft.pull(team.rank(member), offer, 0, slices.of(member));
    }
}

/// The other members, the next one first, so that not everybody reads the same window at once.
fn others(team: &Team) -> impl Iterator<Item = usize> {
    (1..team.len()).map(|distance| team.after(distance))
}

/// The same piece of every slice.
fn pieces(slices: &Slices, parts: usize, segment: usize, segments: usize) -> Vec<Span> {
    (0..parts).map(|part| slices.of(part).piece(segment, segments)).collect()
}

/// The team's ranks in rank order, so that a rotated team folds as the others do.
fn by_rank(team: &Team) -> Vec<usize> {
    let mut ranks = team.ranks().to_vec();
    ranks.sort_unstable();
    ranks
}
