//! Direct: members of one host read each other's windows, so that each folds its own slice of everybody's data.
//!
//! Every member makes the same number of offers, empty ones included: an offer also says that all pulls before it are
//! done, which is what lets a slot be used again. Each segment must fit a slot of the window.

use super::Span;
use super::draft::Draft;
use super::slices::Slices;
use super::team::Team;

/// Every member ends with the whole reduction of `data` in `into`, which may be the same; each folds one slice and reads
/// the others' results.
pub(super) fn all_reduce(draft: &mut Draft, team: &Team, (data, into): (Span, Span), segments: usize, whole: bool) {
    let slices = |span: Span, segment| Slices::even(span.piece(segment, segments), team.len());
    let parts = |segment| slices(data, segment).spans();
    let offer = |draft: &mut Draft, segment| draft.offer(without(team.me(), parts(segment)));
    ahead(draft, segments, offer, |draft, segment, offer| {
        let results = slices(into, segment);
        let result = results.of(team.me());
        fold(draft, team, (&parts(segment), offer), result, whole);
        collect(draft, team, result, &results);
    });
}

/// The same where each folds all of it: for small data, and for two.
pub(super) fn all_reduce_at_once(
    draft: &mut Draft,
    team: &Team,
    (data, into): (Span, Span),
    segments: usize,
    whole: bool,
) {
    let offer = |draft: &mut Draft, segment| match vec![data.piece(segment, segments)] {
        // A rank has its result while the others still read.
        written if data == into => draft.offer_copy(written),
        kept => draft.offer(kept),
    };
    ahead_by(2, draft, segments, offer, |draft, segment, offer| {
        let [given, result] = [data, into].map(|span| span.piece(segment, segments));
        draft.pull_all(by_rank(team), offer, |_| 0, (given, result), whole);
    });
}

/// Member 0 ends with the reduction in `data`, which must be its own to write; the others' data stays as it is.
pub(super) fn reduce(draft: &mut Draft, team: &Team, data: Span, segments: usize, whole: bool) {
    let at_root = team.me() == 0;
    let room = draft.scratch(if at_root { 0 } else { data.len.div_ceil(segments).div_ceil(team.len()) });
    for segment in 0..segments {
        let slices = Slices::even(data.piece(segment, segments), team.len());
        let mine = slices.of(team.me());
        let result = if at_root { mine } else { Span { len: mine.len, ..room } };
        let parts = slices.spans();
        let given = draft.offer(without(team.me(), parts.clone()));
        fold(draft, team, (&parts, given), result, whole);
        let offer = draft.offer_copy(vec![result]);
        for member in others(team).filter(|_| at_root) {
            draft.pull(team.rank(member), offer, 0, slices.of(member));
        }
    }
}

/// Every member ends with member 0's `data`.
pub(super) fn broadcast(draft: &mut Draft, team: &Team, data: Span, segments: usize) {
    let at_root = team.me() == 0;
    let piece = |segment| data.piece(segment, segments);
    let offer = |draft: &mut Draft, segment| draft.offer(if at_root { vec![piece(segment)] } else { vec![] });
    ahead(draft, segments, offer, |draft, segment, offer| {
        if !at_root {
            draft.pull(team.rank(0), offer, 0, piece(segment));
        } else if segment == 0 {
            hear(draft, team, team.after(1), offer);
        }
    });
}

/// Every member ends with every slice of `data`, of which it gives its own, which may be in its place already.
pub(super) fn all_gather(draft: &mut Draft, team: &Team, given: Span, data: &Slices, segments: usize) {
    // What is given, not what is copied of it: lines that were just written take the peers longer to read.
    let offer = |draft: &mut Draft, segment| draft.offer_to_copy(vec![given.piece(segment, segments)]);
    ahead(draft, segments, offer, |draft, segment, offer| {
        draft.copy(given.piece(segment, segments), data.of(team.me()).piece(segment, segments));
        for member in others(team) {
            draft.pull(team.rank(member), offer, 0, data.of(member).piece(segment, segments));
        }
    });
}

/// Member `i` ends with slice `i` of the reduction in `into`, which may be slice `i` of `data` itself.
pub(super) fn reduce_scatter(draft: &mut Draft, team: &Team, data: &Slices, into: Span, segments: usize, whole: bool) {
    let parts = |segment| data.pieces(segment, segments);
    let offer = |draft: &mut Draft, segment| draft.offer(without(team.me(), parts(segment)));
    ahead(draft, segments, offer, |draft, segment, offer| {
        fold(draft, team, (&parts(segment), offer), into.piece(segment, segments), whole);
    });
}

/// Slice `j` of member `i`'s `give` becomes slice `i` of member `j`'s `take`; all slices are of one length.
pub(super) fn all_to_all(draft: &mut Draft, team: &Team, give: &Slices, take: &Slices, segments: usize) {
    let parts = |segment| give.pieces(segment, segments);
    let offer = |draft: &mut Draft, segment| draft.offer_to_copy(without(team.me(), parts(segment)));
    ahead(draft, segments, offer, |draft, segment, offer| {
        draft.copy(parts(segment)[team.me()], take.of(team.me()).piece(segment, segments));
        for member in others(team) {
            let start = start_of(team.me(), member, &parts(segment));
            draft.pull(team.rank(member), offer, start, take.of(member).piece(segment, segments));
        }
    });
}

/// Member 0 ends with every member's slice in `all`, which is cut by rank.
pub(super) fn gather(draft: &mut Draft, team: &Team, mine: Span, all: &Slices, segments: usize) {
    let offer = |draft: &mut Draft, segment| draft.offer(vec![mine.piece(segment, segments)]);
    ahead(draft, segments, offer, |draft, segment, offer| {
        for member in others(team).filter(|_| team.me() == 0) {
            let rank = team.rank(member);
            draft.pull(rank, offer, 0, all.of(rank).piece(segment, segments));
        }
        if segment == 0 && team.me() > 0 {
            hear(draft, team, 0, offer);
        }
    });
    if team.me() == 0 {
        draft.copy(mine, all.of(team.rank(0)));
    }
}

/// Member `i` ends with its slice of member 0's `all`, which is cut by rank, in `mine`.
pub(super) fn scatter(draft: &mut Draft, team: &Team, all: &Slices, mine: Span, segments: usize) {
    let my_rank = team.rank(team.me());
    let parts = |segment| all.pieces(segment, segments);
    let offer = |draft: &mut Draft, segment| {
        draft.offer(if team.me() == 0 { without(my_rank, parts(segment)) } else { vec![] })
    };
    ahead(draft, segments, offer, |draft, segment, offer| {
        if team.me() > 0 {
            let start = start_of(my_rank, team.rank(0), &parts(segment));
            draft.pull(team.rank(0), offer, start, mine.piece(segment, segments));
        } else if segment == 0 {
            hear(draft, team, team.after(1), offer);
        }
    });
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

/// Offers each segment before the one in front of it is read, so that nobody waits for what could be there already.
fn ahead(
    draft: &mut Draft,
    segments: usize,
    offer: impl Fn(&mut Draft, usize) -> usize,
    read: impl Fn(&mut Draft, usize, usize),
) {
    ahead_by(1, draft, segments, offer, read);
}

/// The same so many segments ahead, which an offer beside a join needs two of: both ranks make theirs at once, and neither is to
/// wait for the end of the other's.
fn ahead_by(
    distance: usize,
    draft: &mut Draft,
    segments: usize,
    offer: impl Fn(&mut Draft, usize) -> usize,
    read: impl Fn(&mut Draft, usize, usize),
) {
    let mut made = vec![];
    for segment in 0..segments {
        while made.len() < segments.min(segment + 1 + distance) {
            made.push(offer(draft, made.len()));
        }
        read(draft, segment, made[segment]);
    }
}

/// Joins one's own part with what the others published of it, each without its own.
fn fold(draft: &mut Draft, team: &Team, (parts, offer): (&[Span], usize), into: Span, whole: bool) {
    let number = |rank| team.number(rank).unwrap_or_default();
    let start = |peer| start_of(team.me(), number(peer), parts);
    draft.pull_all(by_rank(team), offer, start, (parts[team.me()], into), whole);
}

/// All pieces but the one that its owner keeps.
fn without(owner: usize, mut pieces: Vec<Span>) -> Vec<Span> {
    pieces.remove(owner);
    pieces
}

/// Where a piece begins in the offer of an owner who keeps its own.
fn start_of(piece: usize, owner: usize, pieces: &[Span]) -> usize {
    let before = pieces[..piece].iter().enumerate().filter(|(number, _)| *number != owner);
    before.map(|(_, piece)| piece.len).sum()
}

/// The other members, the next one first, so that not everybody reads the same window at once.
fn others(team: &Team) -> impl Iterator<Item = usize> {
    (1..team.len()).map(|distance| team.after(distance))
}

/// The team's ranks in rank order, so that a rotated team folds as the others do, and this rank.
fn by_rank(team: &Team) -> (Vec<usize>, usize) {
    let mut ranks = team.ranks().to_vec();
    ranks.sort_unstable();
    (ranks, team.rank(team.me()))
}
