//! Tables on the device that say what is carried where, and their launches. Every table of a unit is made here.

use std::ops::Range;

use phalanx_core::{DType, Error, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process, Span, Stream};
use phalanx_nccl::group::DeviceBuffer;
use phalanx_nccl::kernels::{Carry, Plan, Stretch};

use super::deck::Deck;
use crate::layout::{Row, Span as Piece};

/// Where the parts of something lie in memory of their own, one after the other.
#[derive(Debug)]
pub(super) struct Places {
    /// By number: where one begins, and its bytes.
    places: Vec<Option<(usize, usize)>>,
    pub(super) byte_len: usize,
}

/// Stretches that go from one type to another in one launch.
pub(super) struct Table<C: Cuda> {
    from: DType,
    to: DType,
    plan: Plan,
    memory: DeviceBuffer<C>,
}

/// Everything that is carried from one memory to another, a table for each pair of types.
pub(super) struct TableSet<C: Cuda>(Vec<Table<C>>);

/// A stretch and its types.
pub(super) type Typed = (DType, DType, Stretch);

impl Places {
    pub(super) fn new(byte_lens: impl Iterator<Item = Option<usize>>) -> Places {
        let mut end = 0_usize;
        let place = |byte_len: Option<usize>| {
            let start = end;
            end = start + byte_len?.next_multiple_of(ALIGN);
            byte_len.map(|byte_len| (start, byte_len))
        };
        let places = byte_lens.map(place).collect();
        Places { places, byte_len: end }
    }

    /// Where one begins, and its bytes.
    pub(super) fn of(&self, index: usize) -> Option<(usize, usize)> {
        self.places.get(index).copied().flatten()
    }

    /// One of them, in the memory that they lie in.
    pub(super) fn part<C: Cuda>(&self, index: usize, of: &DeviceBuffer<C>) -> Result<DeviceBuffer<C>> {
        let (start, byte_len) = self.of(index).unwrap_or_default();
        of.part(start, byte_len)
    }

    /// The numbers of those that there are.
    pub(super) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.places.len()).filter(|index| self.places[*index].is_some())
    }

    fn start(&self, index: usize) -> usize {
        self.of(index).unwrap_or_default().0
    }
}

impl<C: Cuda> Table<C> {
    pub(super) fn new<N: Nccl, P: Process>(
        deck: &mut Deck<N, C, P>,
        (from, to): (DType, DType),
        stretches: &[Stretch],
    ) -> Result<Table<C>> {
        let plan = Plan::new(stretches);
        let memory = deck.memory(plan.bytes().len())?;
        let stream = deck.compute;
        deck.upload(memory.span(), plan.bytes(), stream)?;
        Ok(Table { from, to, plan, memory })
    }

    /// Carries some of the stretches. What was there is added to, or replaced.
    #[track_caller]
    pub(super) fn launch<N: Nccl, P: Process>(
        &self,
        deck: &Deck<N, C, P>,
        (into, from): (Span, Span),
        way: Way,
        stream: Stream,
    ) -> Result<()> {
        let tiles = self.plan.tiles(way.stretches);
        let count = tiles.end - tiles.start;
        if count == 0 {
            return Ok(());
        }
        let kernel = Carry::kernel(self.from, self.to, way.adds).ok_or_else(|| {
            let value = format!("{} to {}", self.from, self.to);
            Error::usage("device", "dtype", value, "must be f32, f16 or bf16 on devices")
        })?;
        let (table, stretches) = (self.memory.span(), self.plan.stretches());
        let Way { skip, divisor, .. } = way;
        let carry = Carry { into, from, table, stretches, first: tiles.start, tiles: count, skip, divisor };
        deck.launch(kernel, count, &carry.arguments(), stream)
    }
}

/// How stretches are carried.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) stretches: Range<usize>,
    pub(super) adds: bool,
    pub(super) skip: usize,
    pub(super) divisor: f32,
}

impl Way {
    /// All of them, in place of what was there.
    pub(super) const PUT: Way = Way { stretches: 0..usize::MAX, adds: false, skip: 0, divisor: 1.0 };
    /// All of them, added.
    pub(super) const ADD: Way = Way { adds: true, ..Way::PUT };
}

impl<C: Cuda> TableSet<C> {
    pub(super) fn new<N: Nccl, P: Process>(deck: &mut Deck<N, C, P>, all: &[Typed]) -> Result<TableSet<C>> {
        let mut pairs: Vec<(DType, DType)> = Vec::new();
        for (from, to, _) in all {
            if !pairs.contains(&(*from, *to)) {
                pairs.push((*from, *to));
            }
        }
        let table = |pair: (DType, DType)| {
            let of_pair = all.iter().filter(|(from, to, _)| (*from, *to) == pair);
            Table::new(deck, pair, &of_pair.map(|(_, _, stretch)| *stretch).collect::<Vec<_>>())
        };
        pairs.into_iter().map(table).collect::<Result<_>>().map(TableSet)
    }

    /// Carries everything.
    #[track_caller]
    pub(super) fn launch<N: Nccl, P: Process>(
        &self,
        deck: &Deck<N, C, P>,
        (into, from): (Span, Span),
        way: &Way,
        stream: Stream,
    ) -> Result<()> {
        for table in &self.0 {
            table.launch(deck, (into, from), way.clone(), stream)?;
        }
        Ok(())
    }
}

/// From shards to this rank's row.
pub(super) fn copy_in(row: &Row, rank: usize, shards: &Places, dtype: impl Fn(usize) -> DType) -> Vec<Typed> {
    let stretch = |(index, span): (usize, Piece)| {
        let to = row.piece(&span, rank).start - row.of(rank).start;
        (dtype(index), span.dtype, padded(&span, rank, shards.start(index), to))
    };
    row.spans().map(stretch).collect()
}

/// From the rows of all ranks to full parameters.
pub(super) fn copy_out(row: &Row, full: &Places) -> Vec<Typed> {
    let of_rank = |index: usize, span: Piece, rank: usize| {
        let held = span.division.elements(rank);
        let to = full.start(index) + held.start * span.dtype.byte_len();
        let stretch = Stretch { from: row.piece(&span, rank).start, to, len: held.len(), zeros: 0 };
        (span.dtype, span.dtype, stretch)
    };
    row.spans().flat_map(|(index, span)| (0..row.world).map(move |rank| of_rank(index, span, rank))).collect()
}

/// From full parameters to this rank's row in a smaller group.
pub(super) fn narrow(row: &Row, rank: usize, full: &Places) -> Vec<Typed> {
    let stretch = |(index, span): (usize, Piece)| {
        let from = full.start(index) + span.division.elements(rank).start * span.dtype.byte_len();
        (span.dtype, span.dtype, padded(&span, rank, from, row.piece(&span, rank).start - row.of(rank).start))
    };
    row.spans().map(stretch).collect()
}

/// From full gradients of one type to the rows of all ranks, one gradient after the other: each says whose memory it goes to.
pub(super) fn chunk_cat(row: &Row, gradients: &[(usize, usize)], full: &Places, dtype: DType) -> Vec<Stretch> {
    let each = gradients.iter().filter_map(|(index, owner)| Some((*index, row.span(*owner)?)));
    let of_rank = |index: usize, span: Piece, rank: usize| {
        let from = full.start(index) + span.division.elements(rank).start * dtype.byte_len();
        padded(&span, rank, from, row.piece(&span, rank).start)
    };
    each.flat_map(|(index, span)| (0..row.world).map(move |rank| of_rank(index, span, rank))).collect()
}

/// From this rank's reduced row to the gradients of its shards.
pub(super) fn take(row: &Row, rank: usize, gradients: &Places, dtype: impl Fn(usize) -> DType) -> Vec<Typed> {
    let stretch = |(index, span): (usize, Piece)| {
        let from = row.piece(&span, rank).start - row.of(rank).start;
        let len = span.division.elements(rank).len();
        (span.dtype, dtype(index), Stretch { from, to: gradients.start(index), len, zeros: 0 })
    };
    row.spans().map(stretch).collect()
}

/// A rank's elements and the zeros after them.
fn padded(span: &Piece, rank: usize, from: usize, to: usize) -> Stretch {
    let len = span.division.elements(rank).len();
    Stretch { from, to, len, zeros: span.division.padded_len() - len }
}

/// Parts begin at multiples of this, so that 16 bytes go at a time.
pub(super) const ALIGN: usize = 16;
