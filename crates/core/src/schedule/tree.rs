//! Binomial trees, pipelined by segments: log2 levels, the root is team number 0.

use super::draft::Draft;
use super::slices::Slices;
use super::team::Team;
use super::{Place, Span, Then};

/// Member 0 ends with the reduction in `data`, which must be its own to write; the others' data stays as it is.
pub(super) fn reduce(draft: &mut Draft, team: &Team, data: Span, segments: usize) {
    let Links { parent, children } = Links::of(team);
    let sum = if team.me() == 0 || children.is_empty() { data } else { draft.scratch(data.len) };
    for segment in 0..segments {
        let piece = sum.piece(segment, segments);
        draft.copy(data.piece(segment, segments), piece);
        for &child in children.iter().rev() {
            draft.recv(team.rank(child), piece, Then::Fold);
        }
        if let Some(parent) = parent {
            draft.send(team.rank(parent), piece);
        }
    }
}

/// Every member ends with member 0's `data`.
pub(super) fn broadcast(draft: &mut Draft, team: &Team, data: Span, segments: usize) {
    let Links { parent, children } = Links::of(team);
    for segment in 0..segments {
        let piece = data.piece(segment, segments);
        if let Some(parent) = parent {
            draft.recv(team.rank(parent), piece, Then::Store);
        }
        for &child in &children {
            draft.send(team.rank(child), piece);
        }
    }
}

/// Member 0 ends with every member's slice in `all`; member `i` gives `mine`, of the length of slice `i`.
///
/// `all` is cut by rank, so a subtree, whose ranks are neighbours around the circle, is at most two runs of it.
pub(super) fn gather(draft: &mut Draft, team: &Team, mine: Span, all: &Slices) {
    let Links { parent, children } = Links::of(team);
    let rooms = Rooms::of(draft, team, all);
    draft.copy(mine, rooms.own);
    for &child in children.iter().rev() {
        for run in rooms.runs(team, child) {
            draft.recv(team.rank(child), run, Then::Store);
        }
    }
    if let Some(parent) = parent {
        for run in rooms.runs(team, team.me()) {
            draft.send(team.rank(parent), run);
        }
    }
}

/// Member `i` ends with slice `i` of member 0's `all` in `mine`.
pub(super) fn scatter(draft: &mut Draft, team: &Team, all: &Slices, mine: Span) {
    let Links { parent, children } = Links::of(team);
    let rooms = Rooms::of(draft, team, all);
    if let Some(parent) = parent {
        for run in rooms.runs(team, team.me()) {
            draft.recv(team.rank(parent), run, Then::Store);
        }
    }
    for &child in &children {
        for run in rooms.runs(team, child) {
            draft.send(team.rank(child), run);
        }
    }
    draft.copy(rooms.own, mine);
}

/// Where a member stands in the tree.
struct Links {
    parent: Option<usize>,
    /// The largest subtree first.
    children: Vec<usize>,
}

impl Links {
    fn of(team: &Team) -> Links {
        let me = team.me();
        let reach = reach(me, team.len());
        let steps = (0..usize::BITS).map(|bit| 1 << bit).take_while(|&step| step < reach);
        let mut children: Vec<usize> = steps.map(|step| me + step).filter(|&child| child < team.len()).collect();
        children.reverse();
        Links { parent: (me > 0).then(|| me & (me - 1)), children }
    }
}

/// How many team numbers, from `member` on, its subtree may hold.
fn reach(member: usize, len: usize) -> usize {
    if member == 0 { len.next_power_of_two() } else { 1 << member.trailing_zeros() }
}

/// The memory in which a member keeps its subtree's slices: the root's whole buffer, or scratch of the subtree's size.
struct Rooms {
    slices: Slices,
    own: Span,
    /// Whether the slices stand in rank order (at the root) rather than in the order of my subtree.
    by_rank: bool,
    first: usize,
}

impl Rooms {
    fn of(draft: &mut Draft, team: &Team, all: &Slices) -> Rooms {
        let me = team.me();
        if me == 0 {
            return Rooms { slices: all.clone(), own: all.of(team.rank(0)), by_rank: true, first: 0 };
        }
        let end = (me + reach(me, team.len())).min(team.len());
        let order = &team.ranks()[me..end];
        let packed = all.reordered(order, Place::Scratch);
        let room = draft.scratch(packed.whole().len);
        let slices = packed.moved(Place::Scratch, room.start);
        Rooms { own: slices.of(0), slices, by_rank: false, first: me }
    }

    /// The slices of `member`'s subtree: two runs, cut where the ranks begin anew, so that both ends cut alike.
    fn runs(&self, team: &Team, member: usize) -> [Span; 2] {
        let end = (member + reach(member, team.len())).min(team.len());
        let wrap = (member..end).find(|&number| team.rank(number) < team.rank(member)).unwrap_or(end);
        [self.run(team, member, wrap), self.run(team, wrap, end)]
    }

    fn run(&self, team: &Team, from: usize, to: usize) -> Span {
        match (from == to, self.by_rank) {
            (true, _) => self.slices.run(0, 0),
            (false, true) => self.slices.run(team.rank(from), team.rank(to - 1) + 1),
            (false, false) => self.slices.run(from - self.first, to - self.first),
        }
    }
}
