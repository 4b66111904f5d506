//! The ring: every member talks to its two neighbours only, and each slice travels once around.

use super::draft::Draft;
use super::slices::Slices;
use super::team::Team;
use super::{Recv, Send, Span, Then};

/// Member `i` ends with slice `i` of the reduction, in place; the other slices hold partial results.
pub(super) fn reduce_scatter(draft: &mut Draft, team: &Team, data: &Slices, segments: usize) {
    around(team, |send, recv| {
        pass_on(draft, team, data.of(send), data.of(recv), Then::Fold, segments);
    });
}

/// Member `i` ends with slice `i` of the reduction in `into`; `data` stays as it is.
///
/// The partial result travels through two scratch slices in turn: one is sent while the next is received.
pub(super) fn reduce_scatter_into(draft: &mut Draft, team: &Team, data: &Slices, into: Span, segments: usize) {
    let longest = data.longest();
    let rooms = [draft.scratch(longest), draft.scratch(longest)];
    let mut sending = data.of(team.before(1));
    let mut turn = 0;
    around(team, |_, recv| {
        let last = recv == team.me();
        let arriving = if last { into } else { Span { len: data.of(recv).len, ..rooms[turn] } };
        draft.copy(data.of(recv), arriving);
        pass_on(draft, team, sending, arriving, Then::Fold, segments);
        sending = arriving;
        turn = 1 - turn;
    });
    if team.len() == 1 {
        draft.copy(data.of(0), into);
    }
}

/// Every member ends with every slice, given that member `i` has slice `i` in place.
pub(super) fn all_gather(draft: &mut Draft, team: &Team, data: &Slices, segments: usize) {
    for distance in 0..team.len() - 1 {
        let (send, recv) = (team.before(distance), team.before(distance + 1));
        pass_on(draft, team, data.of(send), data.of(recv), Then::Store, segments);
    }
}

/// Calls `turn(sent slice, received slice)` for each step of a reduction; the last one receives this member's own.
fn around(team: &Team, mut turn: impl FnMut(usize, usize)) {
    for distance in 1..team.len() {
        turn(team.before(distance), team.before(distance + 1));
    }
}

/// Sends `out` to the next neighbour while `arriving` comes from the one before, piece by piece.
fn pass_on(draft: &mut Draft, team: &Team, out: Span, arriving: Span, then: Then, segments: usize) {
    let (next, previous) = (team.rank(team.after(1)), team.rank(team.before(1)));
    for piece in 0..segments {
        draft.swap(
            Send { to: next, span: out.piece(piece, segments) },
            Recv { from: previous, span: arriving.piece(piece, segments), then },
        );
    }
}
