//! Recursive halving and doubling: log2 steps between members at doubling distances.
//!
//! Titled note "The cube": when the team's size is no power of two, the first members pair up until it is. One of each
//! pair stands for both in the cube; the other hands its data in before and is handed the result after. Pairs are
//! neighbours, so each corner of the cube owns neighbouring slices.

use super::draft::Draft;
use super::slices::Slices;
use super::team::Team;
use super::{Recv, Send, Span, Then};

/// Every member ends with the whole reduction in place, by halving and doubling. `whole` says that it is complete.
pub(super) fn all_reduce(draft: &mut Draft, team: &Team, data: &Slices, whole: bool) {
    let cube = Cube::of(team);
    cube.hand_in(draft, data.whole(), Then::Fold);
    if let Some(corner) = cube.corner {
        cube.halve(draft, data);
        if whole {
            draft.complete(cube.owned(data, corner, corner + 1));
        }
        cube.double(draft, data);
    }
    cube.hand_out(draft, data.whole());
}

/// Every member ends with the whole reduction in place, by swapping all of it at every step: for small data.
pub(super) fn all_reduce_doubling(draft: &mut Draft, team: &Team, data: Span, whole: bool) {
    let cube = Cube::of(team);
    cube.hand_in(draft, data, Then::Fold);
    if let Some(corner) = cube.corner {
        let room = draft.scratch(data.len);
        for step in 0..cube.corners.ilog2() {
            let peer = cube.rank(corner ^ (1 << step));
            draft.swap(Send { to: peer, span: data }, Recv { from: peer, span: room, then: Then::Store });
            draft.combine(data, vec![data, room], false);
        }
        if whole {
            draft.complete(data);
        }
    }
    cube.hand_out(draft, data);
}

/// Member `i` ends with slice `i` of the reduction, in place; the other slices hold partial results.
pub(super) fn reduce_scatter(draft: &mut Draft, team: &Team, data: &Slices) {
    let cube = Cube::of(team);
    cube.hand_in(draft, data.whole(), Then::Fold);
    if cube.corner.is_some() {
        cube.halve(draft, data);
    }
    match cube.partner {
        Some(partner) if cube.corner.is_some() => draft.send(team.rank(partner), data.of(partner)),
        Some(partner) => draft.recv(team.rank(partner), data.of(team.me()), Then::Store),
        None => {}
    }
}

/// Every member ends with every slice, given that member `i` has slice `i` in place.
pub(super) fn all_gather(draft: &mut Draft, team: &Team, data: &Slices) {
    let cube = Cube::of(team);
    match cube.partner {
        Some(partner) if cube.corner.is_some() => draft.recv(team.rank(partner), data.of(partner), Then::Store),
        Some(partner) => draft.send(team.rank(partner), data.of(team.me())),
        None => {}
    }
    if cube.corner.is_some() {
        cube.double(draft, data);
    }
    let extra = if cube.corner.is_some() { cube.partner } else { Some(team.me()) };
    if let Some(extra) = extra.filter(|_| cube.partner.is_some()) {
        cube.hand_out(draft, data.run(0, extra));
        cube.hand_out(draft, data.run(extra + 1, team.len()));
    }
}

/// See the note "The cube".
struct Cube<'a> {
    team: &'a Team,
    corners: usize,
    pairs: usize,
    /// My corner, unless my partner stands for me.
    corner: Option<usize>,
    /// The other of my pair.
    partner: Option<usize>,
}

impl Cube<'_> {
    fn of(team: &Team) -> Cube<'_> {
        let corners = 1 << team.len().ilog2();
        let pairs = team.len() - corners;
        let me = team.me();
        let (corner, partner) = match me {
            me if me >= 2 * pairs => (Some(me - pairs), None),
            me if me % 2 == 0 => (Some(me / 2), Some(me + 1)),
            me => (None, Some(me - 1)),
        };
        Cube { team, corners, pairs, corner, partner }
    }

    /// The team number that stands at a corner, and so its first slice.
    fn first(&self, corner: usize) -> usize {
        if corner < self.pairs { 2 * corner } else { corner + self.pairs }
    }

    fn rank(&self, corner: usize) -> usize {
        self.team.rank(self.first(corner))
    }

    /// The slices of the corners `from..to`.
    fn owned(&self, data: &Slices, from: usize, to: usize) -> Span {
        data.run(self.first(from), self.first(to))
    }

    /// Whoever is stood for hands its data in.
    fn hand_in(&self, draft: &mut Draft, data: Span, then: Then) {
        match (self.partner, self.corner) {
            (Some(partner), Some(_)) => draft.recv(self.team.rank(partner), data, then),
            (Some(partner), None) => draft.send(self.team.rank(partner), data),
            (None, _) => {}
        }
    }

    /// Whoever is stood for is handed the result.
    fn hand_out(&self, draft: &mut Draft, data: Span) {
        match (self.partner, self.corner) {
            (Some(partner), Some(_)) => draft.send(self.team.rank(partner), data),
            (Some(partner), None) => draft.recv(self.team.rank(partner), data, Then::Store),
            (None, _) => {}
        }
    }

    /// At each step the other half of my range goes to the peer across, which sends its share of mine.
    fn halve(&self, draft: &mut Draft, data: &Slices) {
        let mut width = self.corners / 2;
        while width > 0 {
            let (peer, mine, theirs) = self.across(data, width);
            draft.swap(Send { to: peer, span: theirs }, Recv { from: peer, span: mine, then: Then::Fold });
            width /= 2;
        }
    }

    /// The steps of [`Cube::halve`] backwards: my range goes to the peer across, which sends its own.
    fn double(&self, draft: &mut Draft, data: &Slices) {
        let mut width = 1;
        while width < self.corners {
            let (peer, mine, theirs) = self.across(data, width);
            draft.swap(Send { to: peer, span: mine }, Recv { from: peer, span: theirs, then: Then::Store });
            width *= 2;
        }
    }

    /// The peer at distance `width`, the range that contains my corner, and the one that contains the peer's.
    fn across(&self, data: &Slices, width: usize) -> (usize, Span, Span) {
        let corner = self.corner.unwrap_or_default();
        let range = |corner: usize| {
            let start = corner / width * width;
            self.owned(data, start, start + width)
        };
        (self.rank(corner ^ width), range(corner), range(corner ^ width))
    }
}
