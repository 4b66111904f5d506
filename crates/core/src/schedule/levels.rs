//! Two levels: first inside every host, then between hosts, so that the slow links carry each byte once a host.

use super::draft::Draft;
use super::slices::Slices;
use super::team::Team;
use super::{Recv, Send, Span, Then, direct, exchange, halving, ring, tree};
use crate::Layout;

/// The two levels of a group as one rank sees them.
pub(super) struct Levels<'a> {
    layout: &'a Layout,
    /// This host's ranks, the one that stands for it first.
    local: Team,
    /// Those that stand for their hosts; absent for everybody else.
    across: Option<Team>,
    /// Whether this host's ranks have windows to each other.
    windows: bool,
}

impl Levels<'_> {
    /// The levels seen from `layout`'s rank. `root` stands for its host; its first rank stands for every other.
    pub(super) fn of(layout: &Layout, root: usize, windows: bool) -> Levels<'_> {
        let stands = |leader: usize| {
            if layout.hosts()[leader] == layout.hosts()[root] { root } else { leader }
        };
        let heads: Vec<usize> = layout.leaders().iter().copied().map(stands).collect();
        let me = layout.rank();
        let mates = Team::of(layout.host_mates(me).to_vec(), me).unwrap_or_else(|| Team::all(0, 1));
        let is_ours = |head: &&usize| layout.hosts()[**head] == layout.hosts()[me];
        let head = heads.iter().find(is_ours).and_then(|&head| mates.number(head)).unwrap_or(0);
        let across = Team::of(heads, me);
        // Who is alone on its host has nobody to show anything to.
        let windows = windows && mates.len() > 1;
        Levels { layout, local: mates.rooted(head), across, windows }
    }

    /// Every rank ends with the whole reduction in place.
    pub(super) fn all_reduce(&self, draft: &mut Draft, data: Span, segments: usize) {
        match self.columns() {
            Some(column) => self.all_reduce_in_columns(draft, &column, data, segments),
            None => self.all_reduce_by_heads(draft, data, segments),
        }
    }

    /// The root ends with the reduction in `data`, which must be its own to write; the others' data stays as it is.
    pub(super) fn reduce(&self, draft: &mut Draft, root: usize, data: Span, segments: usize) {
        let mut sum = data;
        if self.across.is_some() && self.layout.rank() != root {
            sum = draft.scratch(data.len);
            draft.copy(data, sum);
        }
        self.reduce_inside(draft, sum, segments);
        if let Some(heads) = &self.across {
            tree::reduce(draft, &rooted_at(heads, root), sum, segments);
        }
    }

    /// Every rank ends with the root's `data`.
    pub(super) fn broadcast(&self, draft: &mut Draft, root: usize, data: Span, segments: usize) {
        if let Some(heads) = &self.across {
            tree::broadcast(draft, &rooted_at(heads, root), data, segments);
        }
        self.broadcast_inside(draft, data, segments);
    }

    /// Every rank ends with every slice, given that each has its own in place.
    pub(super) fn all_gather(&self, draft: &mut Draft, data: &Slices, segments: usize) {
        exchange::gather(draft, &self.local, data.of(self.layout.rank()), data);
        if let Some(heads) = &self.across {
            for distance in 0..heads.len() - 1 {
                let block = |number| self.layout.host_mates(heads.rank(number));
                let (send, recv) = (block(heads.before(distance)), block(heads.before(distance + 1)));
                let (next, previous) = (heads.rank(heads.after(1)), heads.rank(heads.before(1)));
                swap_blocks(draft, data, (next, send), (previous, recv), Then::Store);
            }
        }
        self.broadcast_inside(draft, data.whole(), segments);
    }

    /// Every rank ends with its slice of the reduction in `into`; `sums` is a copy of its data that may be written.
    pub(super) fn reduce_scatter(&self, draft: &mut Draft, sums: &Slices, into: Span, segments: usize) {
        self.reduce_inside(draft, sums.whole(), segments);
        if let Some(heads) = &self.across {
            let mine = self.layout.host_mates(self.layout.rank());
            for distance in 1..heads.len() {
                let (to, from) = (heads.rank(heads.after(distance)), heads.rank(heads.before(distance)));
                swap_blocks(draft, sums, (to, self.layout.host_mates(to)), (from, mine), Then::Fold);
            }
            mine.iter().for_each(|&rank| draft.complete(sums.of(rank)));
        }
        exchange::scatter(draft, &self.local, sums, into);
    }

    /// The ranks that hold my place on their hosts, if every host has as many ranks as mine.
    fn columns(&self) -> Option<Team> {
        let hosts = self.layout.leaders().iter().map(|&leader| self.layout.host_mates(leader));
        let mine = self.local.number(self.layout.rank())?;
        let column = hosts.map(|mates| (mates.len() == self.local.len()).then(|| mates[mine]));
        Team::of(column.collect::<Option<Vec<_>>>()?, self.layout.rank())
    }

    /// Every rank of a host carries one slice across.
    fn all_reduce_in_columns(&self, draft: &mut Draft, column: &Team, data: Span, segments: usize) {
        let slices = Slices::even(data, self.local.len());
        let mine = slices.of(self.local.me());
        if self.windows {
            direct::reduce_scatter(draft, &self.local, &slices, mine, segments, false);
        } else {
            ring::reduce_scatter(draft, &self.local, &slices, segments);
        }
        halving::all_reduce(draft, column, &Slices::even(mine, column.len()), false);
        draft.complete(mine);
        if self.windows {
            direct::all_gather(draft, &self.local, slices.of(self.local.me()), &slices, segments);
        } else {
            ring::all_gather(draft, &self.local, &slices, segments);
        }
    }

    /// One rank of a host carries everything across.
    fn all_reduce_by_heads(&self, draft: &mut Draft, data: Span, segments: usize) {
        self.reduce_inside(draft, data, segments);
        if let Some(heads) = &self.across {
            halving::all_reduce(draft, heads, &Slices::even(data, heads.len()), true);
        }
        self.broadcast_inside(draft, data, segments);
    }

    fn reduce_inside(&self, draft: &mut Draft, data: Span, segments: usize) {
        if self.windows {
            direct::reduce(draft, &self.local, data, segments, false);
        } else {
            tree::reduce(draft, &self.local, data, segments);
        }
    }

    fn broadcast_inside(&self, draft: &mut Draft, data: Span, segments: usize) {
        if self.windows {
            direct::broadcast(draft, &self.local, data, segments);
        } else {
            tree::broadcast(draft, &self.local, data, segments);
        }
    }
}

/// The team with this rank first.
fn rooted_at(team: &Team, rank: usize) -> Team {
    team.rooted(team.number(rank).unwrap_or(0))
}

/// Sends the slices of some ranks to one peer while those of others come from another.
fn swap_blocks(draft: &mut Draft, data: &Slices, out: (usize, &[usize]), into: (usize, &[usize]), then: Then) {
    for index in 0..out.1.len().max(into.1.len()) {
        let send = out.1.get(index).map(|&rank| Send { to: out.0, span: data.of(rank) });
        let recv = into.1.get(index).map(|&rank| Recv { from: into.0, span: data.of(rank), then });
        draft.moving(send, recv);
    }
}
