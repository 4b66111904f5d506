//! From full gradients to the gradients of shards: rows with the cast fused, the reduction in place, the way back. When is not
//! decided here.

use phalanx_core::{Counts, DType, Element, Error, Op, ReduceOp, Result};
use phalanx_mem::Buffer;

use crate::arena::Arena;
use crate::cast::{add, convert, divide, slice, slice_mut};
use crate::factors::Factors;
use crate::flight::Flight;
use crate::groups::Groups;
use crate::hooks::{self, GradientHook, Size};
use crate::layout::{Row, UnitLayout};
use crate::memory::Class;
use crate::spec::{Role, UnitSpec};
use crate::trace::Trace;
use crate::unit::{Reducing, Unit};

/// The full gradient of one parameter, as a backward made it.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    pub(crate) index: usize,
    pub(crate) dtype: DType,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Gradient<'a> {
    /// The gradient of the parameter with this number in its unit.
    pub fn new<T: Element>(index: usize, elements: &'a [T]) -> Gradient<'a> {
        Gradient { index, dtype: T::DTYPE, bytes: bytemuck::cast_slice(elements) }
    }
}

/// What is said of a gradient, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) index: usize,
    pub(crate) dtype: DType,
    pub(crate) len: usize,
}

impl From<&Gradient<'_>> for Given {
    fn from(gradient: &Gradient<'_>) -> Given {
        let len = gradient.bytes.len() / gradient.dtype.byte_len();
        Given { index: gradient.index, dtype: gradient.dtype, len }
    }
}

/// That these are gradients of trained parameters of the unit, all of one type.
pub(crate) fn check(
    (unit, layout): (&UnitSpec, &UnitLayout),
    gradients: impl Iterator<Item = Given> + Clone,
) -> Result<()> {
    for Given { index, dtype, len } in gradients.clone() {
        let (spec, owner) = layout.owner(unit, CALL, index)?;
        let full_len = layout.divisions[owner].full_len();
        if unit.params[owner].role != Role::Trained {
            return Err(Error::usage(CALL, "param", format!("{:?}", spec.name), "must be a trained one"));
        }
        if len != full_len {
            let expected = format!("must be {full_len} elements, those of {:?}", spec.name);
            return Err(Error::usage(CALL, "gradient", format!("{len} elements"), expected));
        }
        if dtype.class() != phalanx_core::Class::Float {
            return Err(Error::usage(CALL, "dtype", dtype, "must be f64, f32, f16 or bf16"));
        }
    }
    let first = gradients.clone().next().map(|gradient| gradient.dtype);
    if gradients.clone().all(|gradient| Some(gradient.dtype) == first) {
        return Ok(());
    }
    let each = gradients.map(|gradient| format!("{:?} {}", unit.params[gradient.index].name, gradient.dtype));
    let value = each.collect::<Vec<_>>().join(", ");
    Err(Error::usage(CALL, "dtype", value, format!("must be one in unit {:?}", unit.name)))
}

/// That the gradients of a unit are reduced in the type in which a hook takes them.
pub(crate) fn check_hook(unit: &UnitSpec, row: &Row) -> Result<()> {
    let Some((index, span)) = row.spans().find(|(_, span)| span.dtype != DType::F32) else { return Ok(()) };
    let value = format!("{} for {:?} in unit {:?}", span.dtype, unit.params[index].name, unit.name);
    Err(Error::usage("set_hook", "reduce", value, "must be f32, set by the policy or the unit"))
}

/// That how gradients are joined and divided may change: none of this unit are on their way, or kept by a rank for its replicas.
pub(crate) fn check_still(call: &'static str, unit: &UnitSpec, [travels, is_kept]: [bool; 2]) -> Result<()> {
    let refused = |what: &str, expected: &str| {
        Err(Error::usage(call, "gradients", format!("{what} in unit {:?}", unit.name), expected))
    };
    match (travels, is_kept) {
        (true, _) => refused("being reduced", "must be awaited first"),
        (_, true) => refused("kept for replicas", "must be joined first"),
        _ => Ok(()),
    }
}

/// Adds gradients to those that wait on this rank.
pub(crate) fn accumulate_full(unit: &mut Unit, gradients: &[Gradient<'_>], arena: &mut Arena) -> Result<()> {
    let (buffer, is_fresh) = match unit.accumulated.take() {
        Some(buffer) => (buffer, false),
        None => (arena.take(Class::Accumulated, unit.layout.reduce.total())?, true),
    };
    let buffer = unit.accumulated.insert(buffer);
    write_rows(&unit.layout.reduce, &unit.layout.owners, gradients, buffer.as_bytes_mut(), is_fresh);
    Ok(())
}

/// What reductions are made with.
#[derive(Debug)]
pub(crate) struct Means<'a> {
    pub(crate) groups: &'a Groups,
    pub(crate) arena: &'a mut Arena,
    pub(crate) trace: &'a mut Trace,
    pub(crate) divisor: Option<f64>,
    pub(crate) hook: Option<&'a mut dyn GradientHook>,
}

impl Means<'_> {
    /// How ranks are joined. A hook divides for itself, among the ranks of the shard group.
    fn factors(&self, dtype: DType) -> Factors {
        match self.hook {
            Some(_) => Factors { op: ReduceOp::Avg, before: 1.0, after: 1.0 },
            None => Factors::of(dtype, self.groups.data_parallel_size(), self.divisor),
        }
    }

    fn size(&self, row: &Row) -> Size {
        let (ranks, rank) = (self.groups.shard.size(), self.groups.shard.rank());
        Size { ranks, rank, len: row.byte_len / size_of::<f32>(), is_sharded: true }
    }
}

/// Drops all gradients of a unit, those that wait on this rank as well. What is on its way arrives, because other ranks take part in it,
/// and is dropped then.
pub(crate) fn forget(unit: &mut Unit, arena: &mut Arena) {
    for index in 0..unit.spec.params.len() {
        if let Some(gradient) = unit.take_gradient(index) {
            arena.free(Class::Gradients, gradient);
        }
    }
    for waiting in [unit.accumulated.take(), unit.partial.take()].into_iter().flatten() {
        arena.give(Class::Accumulated, waiting);
    }
    unit.is_given_up = !matches!(unit.reducing, Reducing::Nothing);
    unit.is_behind = false;
}

/// Begins to reduce these gradients and those that waited.
pub(crate) fn begin(unit: &mut Unit, number: usize, gradients: &[Gradient<'_>], means: &mut Means<'_>) -> Result<()> {
    let row = &unit.layout.reduce;
    let (mut buffer, is_fresh) = match unit.accumulated.take() {
        Some(buffer) => {
            means.arena.relabel(Class::Accumulated, Class::Reducing, &buffer);
            (buffer, false)
        }
        None => (means.arena.take(Class::Reducing, row.total())?, true),
    };
    write_rows(row, &unit.layout.owners, gradients, buffer.as_bytes_mut(), is_fresh);
    let (size, shard) = (means.size(row), &means.groups.shard);
    if let Some(hook) = &mut means.hook {
        let (wire, flight) =
            hooks::send(&mut **hook, (number, number), size, slice(buffer.as_bytes()), shard, means.arena)?;
        means.arena.give(Class::Reducing, buffer);
        unit.reducing = Reducing::Packed(flight, wire);
        return Ok(());
    }
    let dtype = row.dtype.unwrap_or(DType::F32);
    let factors = means.factors(dtype);
    divide(buffer.as_bytes_mut(), dtype, factors.before);
    let counts = Counts::Even(row.byte_len / dtype.byte_len());
    let op = Op::ReduceScatter { counts, reduce: factors.op };
    unit.reducing = Reducing::Scattering(Flight::begin(shard, number, (op, dtype), buffer)?);
    Ok(())
}

/// Waits for the first reduction.
pub(crate) fn end_scatter(unit: &mut Unit, number: usize, means: &mut Means<'_>) -> Result<()> {
    let row = &unit.layout.reduce;
    unit.reducing = match std::mem::take(&mut unit.reducing) {
        Reducing::Scattering(flight) => {
            Reducing::Scattered(flight.end(means.trace)?, row.of(means.groups.shard.rank()).start)
        }
        Reducing::Packed(flight, wire) => {
            let (came, size) = ((wire, flight.end_with(means.trace)?), means.size(row));
            let mut reduced = means.arena.take(Class::Reducing, row.byte_len)?;
            if let Some(hook) = &mut means.hook {
                hooks::receive(&mut **hook, number, size, came, slice_mut(reduced.as_bytes_mut()), means.arena);
            }
            Reducing::Scattered(reduced, 0)
        }
        reducing => reducing,
    };
    Ok(())
}

/// Keeps this rank's row for the next reduction.
pub(crate) fn keep_partial(unit: &mut Unit, means: &mut Means<'_>) -> Result<()> {
    if let Some((buffer, start)) = arrived(unit, means) {
        let row = &unit.layout.reduce;
        let dtype = row.dtype.unwrap_or(DType::F32);
        let own = &buffer.as_bytes()[start..start + row.byte_len];
        match &mut unit.partial {
            Some(partial) => add(own, dtype, partial.as_bytes_mut(), dtype),
            None => {
                let partial = unit.partial.insert(means.arena.take_own(Class::Accumulated, row.byte_len)?);
                partial.as_bytes_mut().copy_from_slice(own);
            }
        }
        means.arena.give(Class::Reducing, buffer);
    }
    Ok(())
}

/// Begins to reduce this rank's row among the replicas, with what was kept of earlier ones.
pub(crate) fn begin_all_reduce(unit: &mut Unit, number: usize, means: &mut Means<'_>) -> Result<()> {
    let reducing = std::mem::take(&mut unit.reducing);
    let (Some(replicas), Reducing::Scattered(mut buffer, start)) = (&means.groups.replicate, reducing) else {
        return Ok(());
    };
    let row = &unit.layout.reduce;
    let dtype = row.dtype.unwrap_or(DType::F32);
    if let Some(partial) = unit.partial.take() {
        add(partial.as_bytes(), dtype, &mut buffer.as_bytes_mut()[start..start + row.byte_len], dtype);
        means.arena.give(Class::Accumulated, partial);
    }
    let [before, mine, after] = part(buffer, [start, row.byte_len])?;
    let op = Op::AllReduce { count: row.byte_len / dtype.byte_len(), reduce: means.factors(dtype).op };
    unit.reducing = Reducing::Joining(before, Flight::begin(replicas, number, (op, dtype), mine)?, after);
    Ok(())
}

/// Waits for that.
pub(crate) fn end_all_reduce(unit: &mut Unit, means: &mut Means<'_>) -> Result<()> {
    unit.reducing = match std::mem::take(&mut unit.reducing) {
        Reducing::Joining(before, flight, after) => {
            let start = before.byte_len();
            Reducing::Scattered(join([before, flight.end(means.trace)?, after])?, start)
        }
        reducing => reducing,
    };
    Ok(())
}

/// Adds this rank's reduced row to the gradients of its shards, in their own type.
pub(crate) fn finish(unit: &mut Unit, means: &mut Means<'_>) -> Result<()> {
    let Some((mut buffer, start)) = arrived(unit, means) else { return Ok(()) };
    let (row, rank) = (&unit.layout.reduce, means.groups.shard.rank());
    let dtype = row.dtype.unwrap_or(DType::F32);
    let own = &mut buffer.as_bytes_mut()[start..start + row.byte_len];
    divide(own, dtype, means.factors(dtype).after);
    let before = row.of(rank).start;
    let pieces: Vec<_> = row.spans().map(|(index, span)| (index, row.piece(&span, rank))).collect();
    for (index, piece) in pieces {
        let (reduced, to) = (&own[piece.start - before..piece.end - before], unit.spec.params[index].dtype);
        match unit.gradient_mut(index) {
            Some(gradient) => add(reduced, dtype, gradient, to),
            None => {
                let mut gradient = means.arena.take_own(Class::Gradients, unit.shard(index).len())?;
                convert(reduced, dtype, gradient.as_bytes_mut(), to);
                unit.put_gradient(index, gradient);
            }
        }
        if let Some(gradient) = unit.accumulated(index) {
            means.arena.give(Class::Gradients, gradient);
        }
    }
    means.arena.give(Class::Reducing, buffer);
    Ok(())
}

/// Does what waited for more gradients of a unit than have come.
pub(crate) fn catch_up(unit: &mut Unit, arena: &mut Arena) {
    unit.is_behind = false;
    for index in 0..unit.spec.params.len() {
        if let Some(gradient) = unit.accumulated(index) {
            arena.give(Class::Gradients, gradient);
        }
    }
}

/// What was reduced, and where this rank's row begins in it; nothing where that was given up meanwhile.
fn arrived(unit: &mut Unit, means: &mut Means<'_>) -> Option<(Buffer, usize)> {
    let Reducing::Scattered(buffer, start) = std::mem::take(&mut unit.reducing) else { return None };
    if std::mem::take(&mut unit.is_given_up) {
        means.arena.give(Class::Reducing, buffer);
        return None;
    }
    Some((buffer, start))
}

/// Writes each gradient as a piece for each rank, cast and padded with zeros. What is there already is added to, unless it is of no
/// meaning; what no gradient came for is zero.
fn write_rows(row: &Row, owners: &[Option<usize>], gradients: &[Gradient<'_>], bytes: &mut [u8], is_fresh: bool) {
    let mut is_written = vec![!is_fresh; owners.len()];
    for gradient in gradients {
        let Some(owner) = owners[gradient.index] else { continue };
        let Some(span) = row.span(owner) else { continue };
        let adds = std::mem::replace(&mut is_written[owner], true);
        for rank in 0..row.world {
            let (held, size) = (span.division.elements(rank), gradient.dtype.byte_len());
            let (source, target) = (&gradient.bytes[held.start * size..held.end * size], row.piece(&span, rank));
            match adds {
                true => add(source, gradient.dtype, &mut bytes[target], span.dtype),
                false => convert(source, gradient.dtype, &mut bytes[target], span.dtype),
            }
            bytes[row.padding(&span, rank)].fill(0);
        }
    }
    for (_, span) in row.spans().filter(|(index, _)| !is_written[*index]) {
        for rank in 0..row.world {
            bytes[row.piece(&span, rank).start..row.padding(&span, rank).end].fill(0);
        }
    }
}

fn part(buffer: Buffer, [start, len]: [usize; 2]) -> Result<[Buffer; 3]> {
    let parts = buffer.split_at(start).and_then(|(before, rest)| {
        let (mine, after) = rest.split_at(len)?;
        Ok([before, mine, after])
    });
    parts.map_err(|error| Error::setup("buffer", error))
}

fn join([before, mine, after]: [Buffer; 3]) -> Result<Buffer> {
    let joined = before.join(mine).and_then(|buffer| buffer.join(after));
    joined.map_err(|_| Error::setup("buffer", "a backend gave back another one than it was given"))
}

const CALL: &str = "gradients";
