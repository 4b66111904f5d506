//! Communication hooks on devices: those that cast gradients, divide them in two steps and sum them. Rows are cast before they travel and
//! cast back after, on the streams that would do without.

use phalanx_core::{Counts, DType, Error, Op, ReduceOp, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process};
use phalanx_nccl::group::DeviceBuffer;
use phalanx_nccl::kernels::Stretch;

use super::edge::Edge;
use super::groups::Means;
use super::model::DeviceSharded;
use super::pool::Block;
use super::table::{ALIGN, Table, Way};
use super::unit::{Reducing, Unit};
use crate::factors::Factors;
use crate::hooks::{GradientHook, Size, Wire};
use crate::layout::Row;
use crate::memory::Class;
use crate::reduce::check_hook;

/// What a hook comes to on devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hook {
    /// The type in which gradients travel.
    dtype: DType,
    /// Whether every rank gets all of the sum, of which it takes its row.
    gives_all: bool,
    factors: Factors,
}

/// The tables of a unit whose gradients travel in another type than `f32`.
pub(super) struct HookTables<C: Cuda> {
    /// All rows, to that type.
    pack: Table<C>,
    /// This rank's row, as it is and back.
    divide: Table<C>,
    unpack: Table<C>,
}

impl<N: Nccl, C: Cuda, P: Process> DeviceSharded<N, C, P> {
    /// Has gradients travel as a hook says, in place of the engine's own reduction, its type and its divisor. Replicas then join in `f32`. The
    /// host waits until what is on the streams is done.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup) for a hook that says no way for [devices](GradientHook::on_devices); those of
    /// [`Sharded::set_hook`](crate::Sharded::set_hook).
    pub fn set_hook(&mut self, hook: Option<Box<dyn GradientHook>>) -> Result<()> {
        self.alive()?;
        for unit in &self.units {
            if hook.is_some() {
                check_hook(&unit.spec, &unit.layout.reduce)?;
            }
            unit.check_still("set_hook")?;
        }
        let group = self.means.groups.reduce.group();
        let size = Size { ranks: group.size(), rank: group.rank(), len: 0, is_sharded: true };
        let hook = hook.map(|hook| Hook::new(&*hook, size)).transpose()?;
        let means = &mut self.means;
        let mut table = |unit: &Unit<N, C, P>| match hook.filter(|hook| hook.dtype != DType::F32) {
            Some(hook) => HookTables::new(&unit.layout.reduce, hook.dtype, means),
            None => Ok(None),
        };
        // All are there before one is taken: those of the new hook would be read as the old one's.
        let tables: Vec<_> = self.units.iter().map(&mut table).collect::<Result<_>>()?;
        self.units.iter_mut().zip(tables).for_each(|(unit, table)| unit.tables.hook = table);
        self.means.hook = hook;
        // Tables are read on other streams than the one they came by.
        self.means.deck.settle().inspect_err(|error| self.failed = Some(error.clone()))
    }
}

impl Hook {
    fn new(hook: &dyn GradientHook, size: Size) -> Result<Hook> {
        let none = |why: String| Err(Error::setup("communication hook", format!("{hook:?} {why}")));
        let Some(dtype) = hook.on_devices() else { return none("has no form for devices".into()) };
        let (travels, gives_all) = match hook.wire(size) {
            Wire::AllReduce(travels) => (travels, true),
            Wire::ReduceScatter(travels) => (travels, false),
            wire => return none(format!("sends what devices do not: {wire:?}")),
        };
        if travels != dtype || !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return none(format!("sends {travels} and says {dtype} for devices, must be one of f32, f16 and bf16"));
        }
        Ok(Hook { dtype, gives_all, factors: Factors::two_steps(size.ranks as f64) })
    }

    /// Bytes of all rows, and after them of what travels where that is of another type.
    pub(super) fn byte_len(&self, row: &Row) -> usize {
        match self.dtype {
            DType::F32 => row.total(),
            _ => row.total().next_multiple_of(ALIGN) + row.total() / F32 * self.dtype.byte_len(),
        }
    }

    /// What travels, in the memory of rows.
    fn wire<C: Cuda>(&self, row: &Row, rows: &Block<C>) -> Result<DeviceBuffer<C>> {
        match self.dtype {
            DType::F32 => rows.buffer.part(0, row.total()),
            _ => rows.buffer.part(row.total().next_multiple_of(ALIGN), row.total() / F32 * self.dtype.byte_len()),
        }
    }

    fn op(&self, len: usize, ranks: usize) -> (Op, DType) {
        let reduce = ReduceOp::Sum;
        let op = match self.gives_all {
            true => Op::AllReduce { count: len * ranks, reduce },
            false => Op::ReduceScatter { counts: Counts::Even(len), reduce },
        };
        (op, self.dtype)
    }
}

impl<C: Cuda> HookTables<C> {
    /// Those for rows of a unit; none of one without gradients.
    fn new<N: Nccl, P: Process>(row: &Row, dtype: DType, means: &mut Means<N, C, P>) -> Result<Option<HookTables<C>>> {
        if row.dtype.is_none() {
            return Ok(None);
        }
        let [all, one] = [row.total(), row.byte_len].map(|len| [Stretch { from: 0, to: 0, len: len / F32, zeros: 0 }]);
        let deck = &mut means.deck;
        let pack = Table::new(deck, (DType::F32, dtype), &all)?;
        let (divide, unpack) = (Table::new(deck, (dtype, dtype), &one)?, Table::new(deck, (dtype, DType::F32), &one)?);
        Ok(Some(HookTables { pack, divide, unpack }))
    }
}

/// Begins to reduce rows of `f32` as a hook says.
pub(super) fn send<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    hook: Hook,
    rows: Block<C>,
    means: &mut Means<N, C, P>,
) -> Result<()> {
    let Means { deck, pool, groups, .. } = means;
    let (row, stream) = (&unit.layout.reduce, deck.compute);
    let rows = match rows.buffer.byte_len() < hook.byte_len(row) {
        // They were accumulated before there was a hook.
        true => {
            let wanted = (Class::Reducing, hook.byte_len(row));
            let longer = pool.take(deck, wanted, (Edge::RowsAfterTake, stream))?;
            deck.copy(longer.buffer.part(0, row.total())?.span(), rows.buffer.part(0, row.total())?.span(), stream)?;
            pool.give(deck, Class::Reducing, rows, stream)?;
            longer
        }
        false => rows,
    };
    let (plain, wire) = (rows.buffer.part(0, row.total())?.span(), hook.wire(row, &rows)?);
    let way = Way { divisor: hook.factors.before as f32, ..Way::PUT };
    match (&unit.tables.hook, &unit.tables.whole) {
        (Some(tables), _) => tables.pack.launch(deck, (wire.span(), plain), way, stream)?,
        (None, Some([all, _])) if way.divisor != 1.0 => all.launch(deck, (plain, plain), way, stream)?,
        _ => {}
    }
    let op = hook.op(row.byte_len / F32, row.world);
    let work = deck.submit(&groups.reduce, op, &wire, (Edge::ReduceAfterRows, stream))?;
    unit.reducing = Reducing::Under(rows, work);
    Ok(())
}

/// Puts this rank's row of what came where it would have come without a hook.
pub(super) fn receive<N: Nccl, C: Cuda, P: Process>(
    unit: &Unit<N, C, P>,
    hook: Hook,
    rows: &Block<C>,
    means: &Means<N, C, P>,
) -> Result<()> {
    let (deck, row, stream) = (&means.deck, &unit.layout.reduce, means.deck.take);
    let (start, of_type) =
        (row.of(means.groups.rank()).start, |byte_len: usize| byte_len / F32 * hook.dtype.byte_len());
    let own = rows.buffer.part(start, row.byte_len)?.span();
    let came = hook.wire(row, rows)?.part(of_type(start), of_type(row.byte_len))?.span();
    let way = Way { divisor: hook.factors.after as f32, ..Way::PUT };
    // The division is the type's own: rounded to it before elements are widened.
    match (&unit.tables.hook, &unit.tables.whole) {
        (Some(tables), _) if way.divisor != 1.0 => tables.divide.launch(deck, (came, came), way, stream)?,
        (None, Some([_, one])) if way.divisor != 1.0 => one.launch(deck, (own, own), way, stream)?,
        _ => {}
    }
    unit.tables.hook.as_ref().map_or(Ok(()), |tables| tables.unpack.launch(deck, (own, came), Way::PUT, stream))
}

/// Bytes of an element of rows.
const F32: usize = size_of::<f32>();
