//! From full gradients to the gradients of shards, in the order of streams: rows with the cast and the division fused, the reduction in
//! place, the way back. When is not decided here.

use phalanx_core::{Counts, DType, Op, ReduceOp, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process, Span};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup};

use super::after;
use super::edge::Edge;
use super::groups::Means;
use super::hook;
use super::pool::Block;
use super::table::Way;
use super::unit::{Reducing, Unit};
use crate::factors::Factors;
use crate::memory::Class;

/// The full gradient of one parameter, as a backward made it on the device.
pub struct DeviceGradient<C: Cuda> {
    pub(super) index: usize,
    pub(super) dtype: DType,
    pub(super) buffer: DeviceBuffer<C>,
}

impl<C: Cuda> DeviceGradient<C> {
    /// The gradient of the parameter with this number in its unit: elements of this type, one after the other.
    pub fn new(index: usize, dtype: DType, buffer: &DeviceBuffer<C>) -> DeviceGradient<C> {
        DeviceGradient { index, dtype, buffer: buffer.clone() }
    }

    /// The number of the parameter.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where they are.
    pub fn buffer(&self) -> &DeviceBuffer<C> {
        &self.buffer
    }
}

impl<C: Cuda> std::fmt::Debug for DeviceGradient<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceGradient({}, {}, {:?})", self.index, self.dtype, self.buffer)
    }
}

/// Lends memory in which a unit's gradients lie so that one launch takes them all.
pub(super) fn lend<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    dtype: DType,
    means: &mut Means<N, C, P>,
) -> Result<Vec<DeviceGradient<C>>> {
    let byte_len = unit.chunk_cat(dtype, means)?.places.byte_len;
    take_back(unit, means)?;
    let Means { deck, pool, .. } = means;
    let block = pool.take(deck, (Class::Reducing, byte_len), (Edge::RowsAfterTake, deck.compute))?;
    let rows = unit.chunk_cat(dtype, means)?;
    let part = |(index, _): &(usize, usize)| {
        Ok(DeviceGradient { index: *index, dtype, buffer: rows.places.part(*index, &block.buffer)? })
    };
    let gradients = rows.gradients.iter().map(part).collect::<Result<_>>()?;
    unit.lent = Some(block);
    Ok(gradients)
}

/// Takes back what was lent, once the program's stream is past it.
pub(super) fn take_back<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    means: &mut Means<N, C, P>,
) -> Result<()> {
    match unit.lent.take() {
        Some(block) => means.pool.give(&means.deck, Class::Reducing, block, means.deck.compute),
        None => Ok(()),
    }
}

/// Adds gradients to those that wait on this rank.
pub(super) fn accumulate_full<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    gradients: &[DeviceGradient<C>],
    means: &mut Means<N, C, P>,
) -> Result<()> {
    let (rows, is_fresh) = rows(unit, Class::Accumulated, means)?;
    write_rows(unit, gradients, (rows.span(), is_fresh, 1.0), means)?;
    unit.accumulated = Some(rows);
    Ok(())
}

/// Drops all gradients of a unit, those that wait on this rank as well. What is on its way arrives, because other ranks take part in it,
/// and is dropped then.
pub(super) fn forget<N: Nccl, C: Cuda, P: Process>(unit: &mut Unit<N, C, P>, means: &mut Means<N, C, P>) -> Result<()> {
    let Means { deck, pool, .. } = means;
    unit.store.forget((deck, pool))?;
    for (waiting, stream) in [(unit.accumulated.take(), deck.compute), (unit.partial.take(), deck.take)] {
        waiting.map_or(Ok(()), |block| pool.give(deck, Class::Accumulated, block, stream))?;
    }
    unit.is_given_up = !matches!(unit.reducing, Reducing::Nothing);
    unit.is_behind = false;
    Ok(())
}

/// Begins to reduce these gradients and those that waited.
pub(super) fn begin<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    gradients: &[DeviceGradient<C>],
    means: &mut Means<N, C, P>,
) -> Result<()> {
    let (rows, is_fresh) = rows(unit, Class::Reducing, means)?;
    if let Some(hook) = means.hook {
        write_rows(unit, gradients, (rows.span(), is_fresh, 1.0), means)?;
        return hook::send(unit, hook, rows, means);
    }
    let dtype = unit.layout.reduce.dtype.unwrap_or(DType::F32);
    let Factors { op, before, .. } = factors(dtype, means);
    let before = before as f32;
    write_rows(unit, gradients, (rows.span(), is_fresh, if is_fresh { before } else { 1.0 }), means)?;
    let Means { deck, groups, .. } = means;
    if let Some([all, _]) = unit.tables.whole.as_ref().filter(|_| !is_fresh && before != 1.0) {
        let way = Way { divisor: before, ..Way::PUT };
        all.launch(deck, (rows.span(), rows.span()), way, deck.compute)?;
    }
    let travels = rows.buffer.part(0, unit.layout.reduce.total())?;
    let counts = Counts::Even(unit.layout.reduce.byte_len / dtype.byte_len());
    let op = Op::ReduceScatter { counts, reduce: alone(op, &groups.reduce) };
    let edge = (Edge::ReduceAfterRows, deck.compute);
    let work = deck.submit(&groups.reduce, (op, dtype), &travels, edge)?;
    unit.reducing = Reducing::Under(rows, work);
    Ok(())
}

/// What comes next waits for a reduction, among shards or among replicas.
pub(super) fn end<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    edge: Edge,
    means: &mut Means<N, C, P>,
) -> Result<()> {
    unit.reducing = match std::mem::take(&mut unit.reducing) {
        Reducing::Under(rows, work) => {
            let stream = means.deck.take;
            means.deck.fence(edge, stream, work)?;
            if let Some(hook) = means.hook.filter(|_| edge == Edge::TakeAfterReduce) {
                hook::receive(unit, hook, &rows, means)?;
            }
            Reducing::Done(rows)
        }
        reducing => reducing,
    };
    Ok(())
}

/// Keeps this rank's row for the next reduction.
pub(super) fn keep_partial<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    means: &mut Means<N, C, P>,
) -> Result<()> {
    let Some(rows) = arrived(unit, means)? else { return Ok(()) };
    let own = own_row(unit, &rows, means)?.span();
    let Means { deck, pool, .. } = means;
    let stream = deck.take;
    match (&unit.partial, &unit.tables.whole) {
        (Some(partial), Some([_, one])) => one.launch(deck, (partial.span(), own), Way::ADD, stream)?,
        _ => {
            let wanted = (Class::Accumulated, unit.layout.reduce.byte_len);
            let partial = pool.take(deck, wanted, (Edge::TakeAfterStep, stream))?;
            deck.copy(partial.span(), own, stream)?;
            unit.partial = Some(partial);
        }
    }
    pool.give(deck, Class::Reducing, rows, stream)
}

/// Begins to reduce this rank's row among the replicas, with what was kept of earlier ones.
pub(super) fn begin_all_reduce<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    means: &mut Means<N, C, P>,
) -> Result<()> {
    let Reducing::Done(rows) = std::mem::take(&mut unit.reducing) else { return Ok(()) };
    let own = own_row(unit, &rows, means)?;
    let dtype = unit.layout.reduce.dtype.unwrap_or(DType::F32);
    let reduce = factors(dtype, means).op;
    let Means { deck, pool, groups, .. } = means;
    let stream = deck.take;
    if let (Some(partial), Some([_, one])) = (unit.partial.take(), &unit.tables.whole) {
        one.launch(deck, (own.span(), partial.span()), Way::ADD, stream)?;
        pool.give(deck, Class::Accumulated, partial, stream)?;
    }
    unit.reducing = match &groups.replicate {
        Some(replicas) => {
            let op = Op::AllReduce {
                count: unit.layout.reduce.byte_len / dtype.byte_len(),
                reduce: alone(reduce, replicas),
            };
            let work = deck.submit(replicas, (op, dtype), &own, (Edge::JoinAfterReduce, stream))?;
            Reducing::Under(rows, work)
        }
        None => Reducing::Done(rows),
    };
    Ok(())
}

/// Adds this rank's reduced row to the gradients of its shards, in their own type.
pub(super) fn finish<N: Nccl, C: Cuda, P: Process>(unit: &mut Unit<N, C, P>, means: &mut Means<N, C, P>) -> Result<()> {
    let Some(rows) = arrived(unit, means)? else { return Ok(()) };
    let own = own_row(unit, &rows, means)?.span();
    let divisor = factors(unit.layout.reduce.dtype.unwrap_or(DType::F32), means).after as f32;
    let Means { deck, pool, .. } = means;
    unit.store.take((deck, pool), &unit.tables.take, (own, divisor))?;
    pool.give(deck, Class::Reducing, rows, deck.take)?;
    after::run(unit, means)
}

/// What was reduced; nothing where that was given up meanwhile.
fn arrived<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    means: &mut Means<N, C, P>,
) -> Result<Option<Block<C>>> {
    let Reducing::Done(rows) = std::mem::take(&mut unit.reducing) else { return Ok(None) };
    if std::mem::take(&mut unit.is_given_up) {
        means.pool.give(&means.deck, Class::Reducing, rows, means.deck.take)?;
        return Ok(None);
    }
    Ok(Some(rows))
}

/// Memory for rows, on the program's stream: those that gradients were added to before, or new ones.
fn rows<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    class: Class,
    means: &mut Means<N, C, P>,
) -> Result<(Block<C>, bool)> {
    let Means { deck, pool, hook, .. } = means;
    match unit.accumulated.take() {
        Some(rows) => {
            pool.relabel(Class::Accumulated, class, &rows);
            Ok((rows, false))
        }
        None => {
            let byte_len = hook.map_or(unit.layout.reduce.total(), |hook| hook.byte_len(&unit.layout.reduce));
            let rows = pool.take(deck, (class, byte_len), (Edge::RowsAfterTake, deck.compute))?;
            Ok((rows, true))
        }
    }
}

/// Writes each gradient as a piece for each rank, cast, divided and padded with zeros. What is there already is added to, unless it
/// is of no meaning; what no gradient came for is zero.
fn write_rows<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    gradients: &[DeviceGradient<C>],
    (into, is_fresh, divisor): (Span, bool, f32),
    means: &mut Means<N, C, P>,
) -> Result<()> {
    let stream = means.deck.compute;
    let mut is_written = vec![!is_fresh; unit.spec.params.len()];
    let mut is_taken = vec![false; is_written.len()];
    if let Some(dtype) = gradients.first().map(|gradient| gradient.dtype) {
        let world = unit.layout.reduce.world;
        let lent = unit.lent.as_ref().map(Block::span);
        let rows = unit.chunk_cat(dtype, means)?;
        let owners = rows.gradients.iter().filter(|(index, owner)| index == owner).count();
        let lies = |gradient: &DeviceGradient<C>| rows.lent(gradient.index, lent) == Some(gradient.buffer.span());
        let came = |index: usize| gradients.iter().any(|gradient| gradient.index == index && lies(gradient));
        let all_lie = is_fresh && owners > 0 && rows.gradients[..owners].iter().all(|(index, _)| came(*index));
        if let Some(lent) = lent.filter(|_| all_lie) {
            let way = Way { stretches: 0..owners * world, divisor, ..Way::PUT };
            rows.table.launch(&means.deck, (into, lent), way, stream)?;
        }
        for gradient in gradients {
            let at = rows.gradients.iter().position(|(index, _)| *index == gradient.index);
            let Some((at, (index, owner))) = at.map(|at| (at, rows.gradients[at])) else { continue };
            // The launch of all has taken what lies there, once.
            if all_lie && index == owner && lies(gradient) && !std::mem::replace(&mut is_taken[owner], true) {
                is_written[owner] = true;
                continue;
            }
            let adds = std::mem::replace(&mut is_written[owner], true) || all_lie;
            let skip = rows.places.of(index).map_or(0, |(start, _)| start);
            let way = Way { stretches: at * world..(at + 1) * world, adds, skip, divisor };
            rows.table.launch(&means.deck, (into, gradient.buffer.span()), way, stream)?;
        }
        // The program may drop its own at once.
        let own: Vec<_> = gradients.iter().filter(|gradient| !lies(gradient)).map(|g| g.buffer.clone()).collect();
        if !own.is_empty() {
            means.deck.keep(Box::new(own), stream)?;
        }
    }
    let row = &unit.layout.reduce;
    for (_, span) in row.spans().filter(|(index, _)| !is_written[*index]) {
        for rank in 0..row.world {
            let (start, end) = (row.piece(&span, rank).start, row.padding(&span, rank).end);
            let part = into.part(start, end - start).unwrap_or(Span::EMPTY);
            means.deck.fill_zero(part, stream)?;
        }
    }
    take_back(unit, means)
}

fn own_row<N: Nccl, C: Cuda, P: Process>(
    unit: &Unit<N, C, P>,
    rows: &Block<C>,
    means: &Means<N, C, P>,
) -> Result<DeviceBuffer<C>> {
    let row = &unit.layout.reduce;
    rows.buffer.part(row.of(means.groups.rank()).start, row.byte_len)
}

/// How ranks are joined. A hook divides for itself, among the ranks of the shard group.
fn factors<N: Nccl, C: Cuda, P: Process>(dtype: DType, means: &Means<N, C, P>) -> Factors {
    if means.hook.is_some() {
        return Factors { op: ReduceOp::Avg, before: 1.0, after: 1.0 };
    }
    let replicas = means.groups.replicate.as_ref().map_or(1, |group| group.group().size());
    Factors::of(dtype, means.groups.shard.group().size() * replicas, means.divisor)
}

/// Alone the average is the sum, which no version of NCCL gets wrong.
fn alone<N: Nccl, C: Cuda, P: Process>(op: ReduceOp, group: &DeviceGroup<N, C, P>) -> ReduceOp {
    if group.group().size() == 1 && op == ReduceOp::Avg { ReduceOp::Sum } else { op }
}
