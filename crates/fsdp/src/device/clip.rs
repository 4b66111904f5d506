//! What is asked of all gradients at once: their norm, and whether they are numbers at all. On the device that is put on the program's
//! stream, each rank's part, the gather of all of them and the bound, and nobody waits; where gradients live on the host it is worked out there.

use phalanx_core::{Counts, DType, Error, Op, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process, Span};
use phalanx_nccl::group::{DeviceBuffer, PinnedBuffer};
use phalanx_nccl::kernels::{Factor, Fold, Measure, Multiply, Norm, Plan, Stretch};

use super::deck::{Deck, Mark};
use super::edge::Edge;
use super::groups::Means;
use super::model::DeviceSharded;
use super::store::Home;
use super::unit::Unit;
use crate::clip;
use crate::spec::Param;

impl<N: Nccl, C: Cuda, P: Process> DeviceSharded<N, C, P> {
    /// The `p`-norm of all gradients as one vector, as [`Sharded::gradient_norm`](crate::Sharded::gradient_norm) has it. The host waits for it.
    ///
    /// # Errors
    ///
    /// As [`Sharded::gradient_norm`](crate::Sharded::gradient_norm).
    pub fn gradient_norm(&mut self, p: f64) -> Result<f64> {
        clip::check_norm("gradient_norm", p)?;
        self.alive()?;
        self.norm(p).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Scales all gradients down so that their `p`-norm is at most `max_norm`, unless it is already, on the program's stream: the host waits
    /// for nothing. Where gradients live on the host, it waits for them. What the norm was tells
    /// [`clipped_norm`](DeviceSharded::clipped_norm). All ranks of the shard group call this.
    ///
    /// # Errors
    ///
    /// As [`Sharded::clip_gradients`](crate::Sharded::clip_gradients).
    pub fn clip_gradients(&mut self, max_norm: f64, p: f64) -> Result<()> {
        clip::check_most(max_norm)?;
        clip::check_norm("clip_gradients", p)?;
        self.alive()?;
        self.clip_to(max_norm, p).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// The norm before gradients were last clipped, if they were. The host waits for it, and for nothing that was put on streams since.
    ///
    /// # Errors
    ///
    /// Those of the reduction.
    pub fn clipped_norm(&mut self) -> Result<Option<f64>> {
        let DeviceSharded { means, norms, .. } = self;
        let told = norms.clipped.as_ref().map(|told| told.read(&mut means.deck)).transpose();
        told.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Multiplies every gradient on this rank, on the program's stream. A loss that was scaled up is undone by this.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub fn scale_gradients(&mut self, factor: f64) -> Result<()> {
        self.alive()?;
        self.scale(factor).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Whether any gradient of any rank is infinite or no number, so that the step should be left out. The host waits for that. All ranks
    /// of the shard group call this.
    ///
    /// # Errors
    ///
    /// Those of the reduction.
    pub fn gradients_overflowed(&mut self) -> Result<bool> {
        // What is no number is larger than all, and infinity than the rest.
        self.gradient_norm(f64::INFINITY).map(|largest| !largest.is_finite())
    }

    fn norm(&mut self, p: f64) -> Result<f64> {
        if self.is_offloaded() {
            return self.host_norm(p);
        }
        self.see_gradients()?;
        let DeviceSharded { means, units, norms, .. } = self;
        let desk = norms.desk(units, means)?;
        desk.work_out(units, means, (p, f64::INFINITY))?;
        let norm = desk.norm.part(0, NUMBER)?.span();
        let deck = &mut means.deck;
        deck.join(Edge::TakeAfterClip, deck.take, deck.compute)?;
        let asked = Told::new(deck, norms.asked.take(), norm)?;
        norms.asked.insert(asked).read(deck)
    }

    fn clip_to(&mut self, most: f64, p: f64) -> Result<()> {
        if self.is_offloaded() {
            let norm = self.host_norm(p)?;
            if let Some(factor) = clip::factor(norm, most) {
                self.host_scale(factor)?;
            }
            self.norms.clipped = Some(Told::Known(norm));
            return Ok(());
        }
        self.see_gradients()?;
        let DeviceSharded { means, units, norms, .. } = self;
        let desk = norms.desk(units, means)?;
        desk.work_out(units, means, (p, most))?;
        let [norm, factor] = [0, NUMBER].map(|at| desk.norm.part(at, NUMBER));
        desk.multiply(units, means, Factor::At(factor?.span()))?;
        norms.clipped = Some(Told::new(&mut means.deck, norms.clipped.take(), norm?.span())?);
        Ok(())
    }

    fn scale(&mut self, factor: f64) -> Result<()> {
        if self.is_offloaded() {
            return self.host_scale(factor);
        }
        self.see_gradients()?;
        let DeviceSharded { means, units, norms, .. } = self;
        norms.desk(units, means)?.multiply(units, means, Factor::Value(factor))
    }

    fn is_offloaded(&self) -> bool {
        self.units.iter().any(|unit| matches!(unit.store.home, Home::Host(_)))
    }

    fn host_norm(&mut self, p: f64) -> Result<f64> {
        let mut own = Vec::new();
        for param in self.trained().collect::<Vec<_>>() {
            if let Some((words, byte_len, dtype)) = self.host_gradient(param)? {
                own.push(clip::power([(&bytemuck::cast_slice(&words)[..byte_len], dtype)].into_iter(), p));
            }
        }
        let group = self.means.groups.shard.group();
        let mut all = vec![0.0; group.size()];
        group.all_gather(&[clip::joined(own, p)], &mut all)?;
        Ok(clip::root(clip::joined(all, p), p))
    }

    fn host_scale(&mut self, factor: f64) -> Result<()> {
        for param in self.trained().collect::<Vec<_>>() {
            if let Some((mut words, byte_len, dtype)) = self.host_gradient(param)? {
                let bytes = &mut bytemuck::cast_slice_mut(&mut words)[..byte_len];
                clip::scale(bytes, dtype, factor);
                self.units[param.unit].store.write_gradient(param.index, bytes)?;
            }
        }
        Ok(())
    }

    /// A gradient as the host has it, in words that elements of every type may lie in.
    fn host_gradient(&mut self, param: Param) -> Result<Option<(Vec<u64>, usize, DType)>> {
        let unit = &self.units[param.unit];
        let dtype = unit.spec.params[param.index].dtype;
        Ok(unit.store.read_gradient(&mut self.means.deck, param.index)?.map(|bytes| {
            let mut words = vec![0_u64; bytes.len().div_ceil(NUMBER)];
            bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(&bytes);
            (words, bytes.len(), dtype)
        }))
    }
}

/// The norms of a model.
pub(super) struct Norms<C: Cuda> {
    /// It is made when it is first needed.
    desk: Option<Desk<C>>,
    /// What a norm was when it was last asked for, and when gradients were last clipped.
    asked: Option<Told<C>>,
    clipped: Option<Told<C>>,
}

/// What norms are worked out with on the device: tables of gradients, and room for what becomes of them.
struct Desk<C: Cuda> {
    /// For each unit one for each type of its gradients.
    tables: Vec<Vec<Table<C>>>,
    /// A number for each tile of all tables.
    parts: DeviceBuffer<C>,
    /// A number for each rank.
    sums: DeviceBuffer<C>,
    /// The norm, and what gradients are multiplied by.
    norm: DeviceBuffer<C>,
}

/// Where the gradients of one type lie in the memory of a unit's.
struct Table<C: Cuda> {
    dtype: DType,
    plan: Plan,
    memory: DeviceBuffer<C>,
    /// Where its tiles' numbers begin: bytes.
    start: usize,
}

/// A number that comes to the host.
enum Told<C: Cuda> {
    Known(f64),
    Coming(PinnedBuffer<C>, Mark<C>),
}

impl<C: Cuda> Norms<C> {
    pub(super) fn new() -> Norms<C> {
        Norms { desk: None, asked: None, clipped: None }
    }

    fn desk<N: Nccl, P: Process>(&mut self, units: &[Unit<N, C, P>], means: &mut Means<N, C, P>) -> Result<&Desk<C>> {
        let desk = match self.desk.take() {
            Some(desk) => desk,
            None => Desk::new(units, means)?,
        };
        Ok(self.desk.insert(desk))
    }
}

impl<C: Cuda> Desk<C> {
    fn new<N: Nccl, P: Process>(units: &[Unit<N, C, P>], means: &mut Means<N, C, P>) -> Result<Desk<C>> {
        let Means { deck, groups, .. } = means;
        let mut end = 0;
        let tables = units.iter().map(|unit| of_unit(unit, deck, &mut end)).collect::<Result<_>>()?;
        let ranks = groups.shard.group().size();
        let (parts, sums) = (deck.memory(end)?, deck.memory(ranks * NUMBER)?);
        Ok(Desk { tables, parts, sums, norm: deck.memory(2 * NUMBER)? })
    }

    /// Works out the norm, and what gradients are multiplied by so that it is at most `most`. What all ranks have is gathered and added up by
    /// each in the same order, so that it is the same on all of them whatever the library does, and what is no number stays.
    fn work_out<N: Nccl, P: Process>(
        &self,
        units: &[Unit<N, C, P>],
        means: &mut Means<N, C, P>,
        (p, most): (f64, f64),
    ) -> Result<()> {
        let Means { deck, groups, .. } = means;
        let stream = deck.compute;
        // Of a unit without gradients nothing is measured.
        deck.fill_zero(self.parts.span(), stream)?;
        for (data, table) in self.there(units) {
            let (tiles, place) = (table.tiles(), table.memory.span());
            let parts = self.parts.part(table.start, tiles as usize * NUMBER)?.span();
            let kernel = Measure::kernel(table.dtype).ok_or_else(|| no_kernel(table.dtype))?;
            let measure = Measure { data, table: place, parts, stretches: table.plan.stretches(), tiles, p };
            deck.launch(kernel, tiles, &measure.arguments(), stream)?;
        }
        let own = self.sums.part(groups.rank() * NUMBER, NUMBER)?.span();
        deck.launch(Fold::KERNEL, 1, &Fold { parts: self.parts.span(), p, sum: own }.arguments(), stream)?;
        let op = (Op::AllGather { counts: Counts::Even(1) }, DType::F64);
        let work = deck.submit(&groups.reduce, op, &self.sums, (Edge::JoinAfterMeasure, stream))?;
        deck.fence(Edge::NormAfterJoin, stream, work)?;
        let norm = Norm { sums: self.sums.span(), p, most, norm: self.norm.span() };
        deck.launch(Norm::KERNEL, 1, &norm.arguments(), stream)
    }

    fn multiply<N: Nccl, P: Process>(
        &self,
        units: &[Unit<N, C, P>],
        means: &mut Means<N, C, P>,
        by: Factor,
    ) -> Result<()> {
        let deck = &means.deck;
        for (data, table) in self.there(units) {
            let (tiles, place) = (table.tiles(), table.memory.span());
            let kernel = Multiply::kernel(table.dtype).ok_or_else(|| no_kernel(table.dtype))?;
            let multiply = Multiply { data, table: place, by, stretches: table.plan.stretches(), tiles };
            deck.launch(kernel, tiles, &multiply.arguments(), deck.compute)?;
        }
        deck.join(Edge::TakeAfterClip, deck.take, deck.compute)
    }

    /// The tables of gradients that are there, each with the memory that it is of.
    fn there<N: Nccl, P: Process>(&self, units: &[Unit<N, C, P>]) -> impl Iterator<Item = (Span, &Table<C>)> {
        let of_unit = |(unit, tables): (&Unit<N, C, P>, _)| Some((unit.store.gradients_on_device()?, tables));
        let there: Vec<(Span, &Vec<Table<C>>)> = units.iter().zip(&self.tables).filter_map(of_unit).collect();
        there.into_iter().flat_map(|(data, tables)| tables.iter().map(move |table| (data, table)))
    }
}

impl<C: Cuda> Table<C> {
    fn tiles(&self) -> u64 {
        self.plan.tiles(0..usize::MAX).end
    }
}

impl<C: Cuda> Told<C> {
    /// Has the host told of a number on the device, in the memory in which it was told of the last one.
    fn new<N: Nccl, P: Process>(deck: &mut Deck<N, C, P>, last: Option<Told<C>>, from: Span) -> Result<Told<C>> {
        let (memory, came) = match last {
            Some(Told::Coming(memory, came)) => (memory, came),
            _ => (deck.host_memory(NUMBER)?, deck.mark()?),
        };
        deck.copy(memory.span(), from, deck.compute)?;
        deck.record(&came, deck.compute)?;
        Ok(Told::Coming(memory, came))
    }

    fn read<N: Nccl, P: Process>(&self, deck: &mut Deck<N, C, P>) -> Result<f64> {
        match self {
            Told::Known(number) => Ok(*number),
            Told::Coming(memory, came) => {
                deck.reach_by(Edge::HostReadsAfterNorm, came)?;
                let mut bytes = [0; NUMBER];
                memory.read(&mut bytes)?;
                Ok(f64::from_ne_bytes(bytes))
            }
        }
    }
}

/// The tables of a unit's gradients; `end` is where the numbers of all tiles so far end.
fn of_unit<N: Nccl, C: Cuda, P: Process>(
    unit: &Unit<N, C, P>,
    deck: &mut Deck<N, C, P>,
    end: &mut usize,
) -> Result<Vec<Table<C>>> {
    let mut tables = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let params = unit.spec.params.iter().enumerate().filter(|(_, param)| param.dtype == dtype);
        let lies = params.filter_map(|(index, _)| unit.store.gradients.of(index));
        let stretch = |(from, byte_len)| Stretch { from, to: 0, len: byte_len / dtype.byte_len(), zeros: 0 };
        let plan = Plan::new(&lies.map(stretch).collect::<Vec<_>>());
        let tiles = plan.tiles(0..usize::MAX).end;
        if tiles > 0 {
            let memory = deck.memory(plan.bytes().len())?;
            deck.upload(memory.span(), plan.bytes(), deck.compute)?;
            tables.push(Table { dtype, plan, memory, start: *end });
            *end += tiles as usize * NUMBER;
        }
    }
    Ok(tables)
}

fn no_kernel(dtype: DType) -> Error {
    Error::usage("device", "dtype", dtype, "must be f32, f16 or bf16 on devices")
}

/// Bytes of a number.
const NUMBER: usize = size_of::<f64>();
