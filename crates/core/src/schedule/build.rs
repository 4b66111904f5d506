//! From an operation to one rank's schedule: which phases, over which memory.

use super::draft::Draft;
use super::lend::{FROM_BYTE_LEN, Lending, Source};
use super::levels::Levels;
use super::slices::Slices;
use super::team::Team;
use super::{Algorithm, Place, Schedule, Span, barrier, chain, direct, exchange, halving, ring, tree};
use crate::reduce::ReduceOp;
use crate::{Counts, DType, Layout, Op};

/// Everything a schedule is decided from.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Who is where.
    pub layout: &'a Layout,
    /// What is to be done.
    pub op: &'a Op,
    /// The type of the elements.
    pub dtype: DType,
    /// Whether the input stands in the output buffer.
    pub in_place: bool,
    /// How it is to be done.
    pub algorithm: Algorithm,
    /// In how many pieces the data travels; at least 1.
    pub segments: usize,
    /// Whether ranks of one host have windows to each other, for the two-level algorithm.
    pub windows: bool,
}

/// One rank's schedule, unless the algorithm cannot play the operation ([`Algorithm::plays`]).
pub fn build(plan: &Plan<'_>) -> Option<Schedule> {
    if !plan.algorithm.plays(plan.op, plan.dtype) || plan.segments == 0 {
        return None;
    }
    let mut draft = Draft::new(plan.op.reduce());
    match plan.op {
        Op::AllReduce { count, .. } => plan.all_reduce(&mut draft, *count),
        Op::Reduce { count, root, .. } => plan.reduce(&mut draft, *count, *root),
        Op::Broadcast { count, root } => plan.broadcast(&mut draft, *count, *root),
        Op::AllGather { counts } => plan.all_gather(&mut draft, counts),
        Op::ReduceScatter { counts, .. } => plan.reduce_scatter(&mut draft, counts),
        Op::AllToAll { give, take } => plan.all_to_all(&mut draft, give, take),
        Op::Gather { counts, root } => plan.gather(&mut draft, counts, *root),
        Op::Scatter { counts, root } => plan.scatter(&mut draft, counts, *root),
        Op::Barrier => plan.barrier(&mut draft),
        Op::Send { .. } | Op::Recv { .. } => return None,
    }
    Some(draft.finish(plan.algorithm, plan.lending()))
}

impl Plan<'_> {
    fn all_reduce(&self, draft: &mut Draft, count: usize) {
        let (team, data, segments) = (&self.team(), Place::Output.span(0, count), self.segments);
        let mut given = self.input_place().span(0, count);
        if self.is_scaled() || !self.algorithm.reads_windows() {
            draft.copy(given, data);
            given = data;
        }
        draft.scale(data);
        let slices = Slices::even(data, team.len());
        let mine = slices.of(team.me());
        match self.algorithm {
            Algorithm::Halving => halving::all_reduce(draft, team, &slices, true),
            Algorithm::Doubling => halving::all_reduce_doubling(draft, team, data, true),
            Algorithm::Direct => direct::all_reduce(draft, team, (given, data), segments, true),
            Algorithm::AtOnce => direct::all_reduce_at_once(draft, team, (given, data), segments, true),
            Algorithm::TwoLevel => self.levels(0).all_reduce(draft, data, segments),
            Algorithm::Exchange => {
                exchange::reduce_scatter(draft, team, &slices, mine, segments, true);
                exchange::all_gather(draft, team, &slices, segments);
            }
            Algorithm::Tree => {
                tree::reduce(draft, team, data, segments);
                if team.me() == 0 {
                    draft.complete(data);
                }
                tree::broadcast(draft, team, data, segments);
            }
            _ => {
                ring::reduce_scatter(draft, team, &slices, segments);
                draft.complete(mine);
                ring::all_gather(draft, team, &slices, segments);
            }
        }
    }

    fn reduce(&self, draft: &mut Draft, count: usize, root: usize) {
        let (team, segments) = (self.team().rooted(root), self.segments);
        let at_root = team.me() == 0;
        let given = self.input_place().span(0, count);
        let mut data = given;
        if at_root {
            data = Place::Output.span(0, count);
            draft.copy(given, data);
        } else if self.is_scaled() {
            data = draft.scratch(count);
            draft.copy(given, data);
        }
        draft.scale(data);
        match self.algorithm {
            Algorithm::Chain => chain::reduce(draft, &team, data, segments),
            Algorithm::Exchange => return self.reduce_by_exchange(draft, &team, data),
            Algorithm::Direct => return direct::reduce(draft, &team, data, segments, true),
            Algorithm::TwoLevel => self.levels(root).reduce(draft, root, data, segments),
            _ => tree::reduce(draft, &team, data, segments),
        }
        if at_root {
            draft.complete(data);
        }
    }

    /// Every rank joins one slice and sends it to the root.
    fn reduce_by_exchange(&self, draft: &mut Draft, rooted: &Team, data: Span) {
        let team = self.team();
        let slices = Slices::even(data, team.len());
        let mine = slices.of(team.me());
        let result = if rooted.me() == 0 { mine } else { draft.scratch(mine.len) };
        exchange::reduce_scatter(draft, &team, &slices, result, self.segments, true);
        exchange::gather(draft, rooted, result, &slices);
    }

    fn broadcast(&self, draft: &mut Draft, count: usize, root: usize) {
        let (team, data, segments) = (self.team().rooted(root), Place::Output.span(0, count), self.segments);
        if team.me() == 0 {
            self.fetch(draft, Place::Input.span(0, count), data);
        }
        match self.algorithm {
            Algorithm::Chain => chain::broadcast(draft, &team, data, segments),
            Algorithm::Direct => direct::broadcast(draft, &team, data, segments),
            Algorithm::TwoLevel => self.levels(root).broadcast(draft, root, data, segments),
            Algorithm::Ring => {
                let slices = Slices::even(data, team.len());
                tree::scatter(draft, &team, &slices, slices.of(self.layout.rank()));
                ring::all_gather(draft, &self.team(), &slices, segments);
            }
            _ => tree::broadcast(draft, &team, data, segments),
        }
    }

    fn all_gather(&self, draft: &mut Draft, counts: &Counts) {
        let (team, segments) = (&self.team(), self.segments);
        let data = Slices::counted(Place::Output, counts, team.len());
        let mine = data.of(team.me());
        if self.algorithm == Algorithm::Direct {
            let given = if self.in_place { mine } else { Place::Input.span(0, mine.len) };
            return direct::all_gather(draft, team, given, &data, segments);
        }
        self.fetch(draft, Place::Input.span(0, mine.len), mine);
        match self.algorithm {
            Algorithm::Halving => halving::all_gather(draft, team, &data),
            Algorithm::Exchange => exchange::all_gather(draft, team, &data, segments),
            Algorithm::TwoLevel => self.levels(0).all_gather(draft, &data, segments),
            _ => ring::all_gather(draft, team, &data, segments),
        }
    }

    fn reduce_scatter(&self, draft: &mut Draft, counts: &Counts) {
        let (team, segments) = (&self.team(), self.segments);
        let given = Slices::counted(self.input_place(), counts, team.len());
        let into = if self.in_place { given.of(team.me()) } else { Place::Output.span(0, counts.of(team.me())) };
        let data = self.contribution(draft, given);
        match self.algorithm {
            Algorithm::Exchange => exchange::reduce_scatter(draft, team, &data, into, segments, true),
            Algorithm::Direct => direct::reduce_scatter(draft, team, &data, into, segments, true),
            Algorithm::Ring if self.in_place => ring::reduce_scatter(draft, team, &data, segments),
            Algorithm::Ring => ring::reduce_scatter_into(draft, team, &data, into, segments),
            Algorithm::TwoLevel => return self.levels(0).reduce_scatter(draft, &data, into, segments),
            _ => {
                halving::reduce_scatter(draft, team, &data);
                draft.copy(data.of(team.me()), into);
            }
        }
        if !matches!(self.algorithm, Algorithm::Exchange | Algorithm::Direct) {
            draft.complete(into);
        }
    }

    /// This rank's data, copied to scratch where the caller's must stay as it is and the algorithm or a factor writes it.
    fn contribution(&self, draft: &mut Draft, given: Slices) -> Slices {
        let writes = matches!(self.algorithm, Algorithm::Halving | Algorithm::TwoLevel) || self.is_scaled();
        let data = if writes && !self.in_place {
            let room = draft.scratch(given.whole().len);
            draft.copy(given.whole(), room);
            given.moved(Place::Scratch, room.start)
        } else {
            given
        };
        if writes {
            draft.scale(data.whole());
        }
        data
    }

    fn all_to_all(&self, draft: &mut Draft, give: &Counts, take: &Counts) {
        let team = &self.team();
        let give = Slices::counted(Place::Input, give, team.len());
        let take = Slices::counted(Place::Output, take, team.len());
        match self.algorithm {
            Algorithm::Direct => direct::all_to_all(draft, team, &give, &take, self.segments),
            _ => exchange::all_to_all(draft, team, &give, &take, self.segments),
        }
    }

    fn gather(&self, draft: &mut Draft, counts: &Counts, root: usize) {
        let team = self.team().rooted(root);
        let mine = Place::Input.span(0, counts.of(self.layout.rank()));
        let all = Slices::counted(Place::Output, counts, team.len());
        match self.algorithm {
            Algorithm::Direct => direct::gather(draft, &team, mine, &all, self.segments),
            Algorithm::Exchange => exchange::gather(draft, &team, mine, &all),
            _ => tree::gather(draft, &team, mine, &all),
        }
    }

    fn scatter(&self, draft: &mut Draft, counts: &Counts, root: usize) {
        let team = self.team().rooted(root);
        let mine = Place::Output.span(0, counts.of(self.layout.rank()));
        let all = Slices::counted(Place::Input, counts, team.len());
        match self.algorithm {
            Algorithm::Direct => direct::scatter(draft, &team, &all, mine, self.segments),
            Algorithm::Exchange => exchange::scatter(draft, &team, &all, mine),
            _ => tree::scatter(draft, &team, &all, mine),
        }
    }

    fn barrier(&self, draft: &mut Draft) {
        match self.algorithm {
            Algorithm::Direct => direct::barrier(draft, &self.team()),
            _ => barrier::disseminate(draft, &self.team()),
        }
    }

    /// How this is done where all ranks can lend their memory; none where it is not asked whether they can. All ranks answer alike.
    fn lending(&self) -> Option<Lending> {
        let rank = self.layout.rank();
        let (count, source, gives) = match *self.op {
            Op::AllReduce { count, .. } if !self.is_scaled() => (count, Source::All, true),
            Op::Broadcast { count, root } => (count, Source::Rank(root), rank == root),
            _ => return None,
        };
        let is_long = self.segments > 1 || count.saturating_mul(self.dtype.byte_len()) >= FROM_BYTE_LEN;
        let data = Place::Output.span(0, count);
        (self.algorithm.reads_windows() && count > 0 && is_long && self.layout.size() > 1).then(|| Lending {
            room: (self.in_place || !gives).then_some(data),
            slice: Slices::even(data, self.layout.size()).of(rank),
            source,
        })
    }

    fn team(&self) -> Team {
        Team::all(self.layout.rank(), self.layout.size())
    }

    fn levels(&self, root: usize) -> Levels<'_> {
        Levels::of(self.layout, root, self.windows)
    }

    fn input_place(&self) -> Place {
        if self.in_place { Place::Output } else { Place::Input }
    }

    /// Brings the input to where an operation in place expects it.
    fn fetch(&self, draft: &mut Draft, input: Span, into: Span) {
        if !self.in_place {
            draft.copy(input, into);
        }
    }

    fn is_scaled(&self) -> bool {
        self.op.reduce() == Some(ReduceOp::PreMulSum)
    }
}
