//! Full parameters only while a unit runs: between the engine, which knows bytes, and candle's variables, whose memory is taken away and
//! given back. When that happens is decided by the engine.

use std::time::Duration;

use candle_core::{CpuStorage, DType, Layout, Storage, Tensor};
use phalanx_core::DType as Wire;
use phalanx_fsdp::{Class, Gradient, Groups, Param, ParamSpec, Part, Policy, Reshard, Sharded, UnitSpec, refuse};

use crate::error::{Error, Result};
use crate::storage::{self, Spare};
use crate::strategy::{Held, Look, Strategy, Update};
use crate::unit::{Parameter, Unit};

/// Training with parameters, gradients and optimizer state divided among ranks: FSDP, and HSDP where [`Groups`] have replicas.
#[derive(Debug)]
pub struct FullyShard {
    groups: Groups,
    policy: Policy,
    engine: Option<Sharded>,
    parts: Vec<Part>,
    /// The engine's parameters in the order of parts.
    params: Vec<Param>,
    /// Which units' variables have memory.
    filled: Vec<bool>,
    spare: Spare,
}

impl FullyShard {
    /// Sharding among the ranks of these groups. Each unit is gathered and computed in the type of its variables, which is one; a policy that
    /// [computes](Policy::compute) in `bf16` asks for variables of `bf16`. What ranks hold and update is `f32`, and so is what gradients are
    /// summed up in unless the policy says [otherwise](Policy::reduce).
    pub fn new(groups: impl Into<Groups>, policy: Policy) -> FullyShard {
        FullyShard {
            groups: groups.into(),
            policy,
            engine: None,
            parts: vec![],
            params: vec![],
            filled: vec![],
            spare: Spare::default(),
        }
    }

    /// The engine, for what this adapter does not offer; none before a [`Model`](crate::Model) has it.
    pub fn engine(&mut self) -> Option<&mut Sharded> {
        self.engine.as_mut()
    }

    fn sharded(&mut self) -> Result<&mut Sharded> {
        self.engine.as_mut().ok_or_else(unready)
    }

    /// Copies a unit's full parameters into its variables, once the engine has lent them. It lends nothing where the copy of before still
    /// stands for them, and everything where shards were changed since, by whoever has the engine.
    fn fill(&mut self, unit: &Unit, index: usize) -> Result<()> {
        let is_lent = self.engine.as_ref().is_some_and(|engine| engine.gathered(index).is_some());
        if self.filled[index] && !is_lent {
            return Ok(self.sharded()?.copied(index)?);
        }
        self.empty(unit, index)?;
        let Some(engine) = &self.engine else { return Ok(()) };
        let absent = || Error::Usage(format!("FullyShard: unit {} is not gathered", unit.name));
        let gathered = engine.gathered(index).ok_or_else(absent)?;
        for (at, parameter) in unit.parameters.iter().enumerate() {
            let mut memory = self.spare.take(&parameter.var);
            match &mut memory {
                CpuStorage::F32(values) => gathered.copy_out(at, values)?,
                CpuStorage::BF16(values) => gathered.copy_out(at, values)?,
                _ => return Err(parameter.unfit()),
            }
            storage::swap(&parameter.var, memory)?;
        }
        // The engine's buffer may serve the next unit meanwhile.
        self.sharded()?.copied(index)?;
        self.filled[index] = true;
        Ok(())
    }

    /// Takes the memory of a unit's variables once the engine has freed its full parameters.
    fn settle(&mut self, unit: &Unit, index: usize) -> Result<()> {
        let is_held = self.engine.as_ref().is_some_and(|engine| engine.holds(index));
        if is_held { Ok(()) } else { self.empty(unit, index) }
    }

    /// Takes the memory of a unit's variables, if they have any.
    fn empty(&mut self, unit: &Unit, index: usize) -> Result<()> {
        if std::mem::take(&mut self.filled[index]) {
            for parameter in &unit.parameters {
                self.spare.keep(&parameter.var, storage::take(&parameter.var)?);
            }
        }
        Ok(())
    }

    fn settle_all(&mut self, units: &[Unit]) -> Result<()> {
        units.iter().enumerate().try_for_each(|(index, unit)| self.settle(unit, index))
    }

    /// Hands the values of one unit's variables to the engine, and takes their memory.
    fn load(&mut self, unit: &Unit, index: usize) -> Result<()> {
        for (at, parameter) in unit.parameters.iter().enumerate() {
            let param = Param { unit: index, index: at };
            let engine = self.sharded()?;
            match storage::take(&parameter.var)? {
                CpuStorage::F32(values) => engine.load_full(param, &values)?,
                CpuStorage::BF16(values) => engine.load_full(param, &values)?,
                _ => return Err(parameter.unfit()),
            }
            let part = engine.part(param)?;
            self.parts.push(part);
            self.params.push(param);
        }
        Ok(())
    }
}

impl Strategy for FullyShard {
    fn adopt(&mut self, units: &[Unit]) -> Result<()> {
        let (policy, types) = settle(&self.policy, units).map_err(|why| self.refuse(why))?;
        let param = |one: &Parameter| ParamSpec::new(&one.name, one.shape(), Wire::F32).trainable(one.is_trained);
        let spec = |(index, unit): (usize, &Unit)| {
            let spec = UnitSpec::new(&unit.name, unit.parameters.iter().map(param).collect());
            let spec = if let Some(dtype) = types[index] { spec.compute(dtype) } else { spec };
            // Its backward comes at once.
            if index + 1 == units.len() { spec.reshard_after_forward(Reshard::No) } else { spec }
        };
        let specs = units.iter().enumerate().map(spec).collect();
        let mut engine = Sharded::new(self.groups.clone(), specs, policy)?;
        engine.set_copies(true);
        self.engine = Some(engine);
        self.filled = vec![false; units.len()];
        units.iter().enumerate().try_for_each(|(index, unit)| self.load(unit, index))?;
        Ok(self.sharded()?.broadcast_replicas()?)
    }

    fn refuse(&self, why: Error) -> Error {
        refuse(&self.groups, why)
    }

    fn before_forward(&mut self, units: &[Unit], unit: usize) -> Result<()> {
        self.sharded()?.before_forward(unit)?;
        self.fill(&units[unit], unit)
    }

    fn after_forward(&mut self, units: &[Unit], unit: usize) -> Result<()> {
        self.sharded()?.after_forward(unit)?;
        self.settle(&units[unit], unit)
    }

    fn before_backward(&mut self, units: &[Unit], unit: usize) -> Result<()> {
        self.sharded()?.before_backward(unit)?;
        self.fill(&units[unit], unit)
    }

    fn gradients(&mut self, units: &[Unit], unit: usize, gradients: Vec<Option<Tensor>>) -> Result<()> {
        let trained = units[unit].parameters.iter().map(|parameter| parameter.is_trained);
        let numbered = gradients.into_iter().zip(trained).enumerate();
        let present = numbered.filter_map(|(at, (gradient, is_trained))| Some((at, gradient.filter(|_| is_trained)?)));
        let whole = present.map(|(at, gradient)| Ok((at, gradient.contiguous()?))).collect::<Result<Vec<_>>>()?;
        let locked: Vec<_> = whole.iter().map(|(at, gradient)| (*at, gradient.storage_and_layout())).collect();
        let lent =
            locked.iter().map(|(at, (storage, layout))| lend(*at, storage, layout)).collect::<Result<Vec<_>>>()?;
        self.sharded()?.gradients(unit, &lent)?;
        self.settle(&units[unit], unit)
    }

    fn finish_backward(&mut self, units: &[Unit]) -> Result<()> {
        self.sharded()?.finish_backward()?;
        self.settle_all(units)
    }

    fn set_sync(&mut self, syncs: bool) {
        if let Some(engine) = &mut self.engine {
            engine.set_sync(syncs);
        }
    }

    fn set_training(&mut self, trains: bool) {
        if let Some(engine) = &mut self.engine {
            engine.set_training(trains);
        }
    }

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn output_dtype(&self) -> Option<DType> {
        self.policy.output_dtype().and_then(of_candle)
    }

    fn look(&self, _units: &[Unit], look: &mut Look<'_>) -> Result<()> {
        let engine = self.engine.as_ref().ok_or_else(unready)?;
        for (at, param) in self.params.iter().enumerate() {
            look(at, engine.shard::<f32>(*param)?);
        }
        Ok(())
    }

    fn update(&mut self, units: &[Unit], step: &mut Update<'_>) -> Result<()> {
        for at in 0..self.params.len() {
            let param = self.params[at];
            let (values, gradient) = self.sharded()?.update::<f32>(param)?;
            step(at, values, gradient);
        }
        self.settle_all(units)
    }

    fn clip(&mut self, most: f64) -> Result<f64> {
        Ok(self.sharded()?.clip_gradients(most, 2.0)?)
    }

    fn zero_gradients(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.zero_gradients();
        }
    }

    fn unused(&self) -> Vec<String> {
        let unused = self.engine.as_ref().map(Sharded::unused).unwrap_or_default();
        let name = |param| Some(self.parts[self.params.iter().position(|own| *own == param)?].name.clone());
        unused.into_iter().filter_map(name).collect()
    }

    fn held(&self) -> Held {
        let memory = self.engine.as_ref().map(Sharded::memory).unwrap_or_default();
        let of = |class| memory.of(class);
        let lasting = of(Class::Sharded).current + of(Class::Gradients).peak;
        let passing = [Class::Gathered, Class::Narrow, Class::Reducing, Class::Accumulated];
        let engine: usize = passing.map(|class| of(class).peak).iter().sum();
        Held { lasting, passing_peak: engine + self.spare.peak() }
    }

    fn waited(&self) -> Duration {
        self.engine.as_ref().map(Sharded::waited).unwrap_or_default()
    }
}

/// The policy that goes with these variables, and the type of each unit's; none of one that has none.
fn settle(policy: &Policy, units: &[Unit]) -> Result<(Policy, Vec<Option<Wire>>)> {
    let refuse = |why: String| Err(Error::Usage(format!("FullyShard: {why}")));
    if let Some(dtype) = policy.output_dtype().filter(|dtype| of_candle(*dtype).is_none()) {
        return refuse(format!("outputs of {dtype}: must be f64, f32, f16 or bf16"));
    }
    let policy = policy.clone().reduce(policy.reduce_dtype().unwrap_or(Wire::F32));
    let types = units.iter().map(type_of).collect::<Result<Vec<_>>>()?;
    let Some(dtype) = policy.compute_dtype() else { return Ok((policy, types)) };
    let other = units.iter().zip(&types).find_map(|(unit, own)| Some((unit, own.filter(|own| *own != dtype)?)));
    if let Some((Unit { name, .. }, other)) = other {
        let asked = format!("computing in {dtype} by the policy asks for variables of {dtype}");
        return refuse(format!("{asked}, those of unit {name} are {other}"));
    }
    Ok((policy, types))
}

/// The type of a unit's variables, whose gradients are reduced together.
fn type_of(unit: &Unit) -> Result<Option<Wire>> {
    let mut parameters = unit.parameters.iter();
    let Some(first) = parameters.next() else { return Ok(None) };
    let dtype = first.wire_type()?;
    for parameter in parameters {
        let other = parameter.wire_type()?;
        if other != dtype {
            let why = format!("{} is {dtype} and {} is {other}", first.name, parameter.name);
            return Err(Error::Usage(format!("FullyShard: {why}: must be of one type in unit {}", unit.name)));
        }
    }
    Ok(Some(dtype))
}

/// What candle calls a type of numbers.
fn of_candle(dtype: Wire) -> Option<DType> {
    match dtype {
        Wire::F64 => Some(DType::F64),
        Wire::F32 => Some(DType::F32),
        Wire::F16 => Some(DType::F16),
        Wire::BF16 => Some(DType::BF16),
        _ => None,
    }
}

fn unready() -> Error {
    Error::Usage("FullyShard: it has no units yet".to_owned())
}

/// A gradient where it lies.
fn lend<'a>(at: usize, storage: &'a Storage, layout: &Layout) -> Result<Gradient<'a>> {
    let range = layout.start_offset()..layout.start_offset() + layout.shape().elem_count();
    match storage {
        Storage::Cpu(CpuStorage::F32(values)) => Ok(Gradient::new(at, &values[range])),
        Storage::Cpu(CpuStorage::BF16(values)) => Ok(Gradient::new(at, &values[range])),
        _ => Err(Error::Usage(format!("the gradient of parameter {at} is neither f32 nor bf16 on the CPU"))),
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Result, Var};
    use phalanx_comm::Threads;

    use super::*;
    use crate::Model;
    use crate::ops::linear;

    /// Layers of which none is as long as another, and the bytes of each.
    fn unequal() -> (Vec<Unit>, Vec<usize>) {
        let width = |at: usize| 3 + 2 * at;
        let unit = |at: usize| {
            let weight = Var::ones((width(at + 1), width(at)), DType::F32, &Device::Cpu).expect("a variable");
            let used = weight.clone();
            let module = move |x: &Tensor| -> Result<Tensor> { linear(x, &used) };
            Unit::new(format!("layer {at}"), module).parameter(format!("{at}.weight"), &weight)
        };
        ((0..12).map(unit).collect(), (0..12).map(|at| 4 * width(at + 1) * width(at)).collect())
    }

    #[test]
    fn unequal_layers_do_not_all_stay_in_memory() {
        let rank = |group| {
            let (units, lens) = unequal();
            let mut model = Model::new(units, FullyShard::new(group, Policy::default())).expect("a model");
            for _step in 0..3 {
                let x = Tensor::ones((2, 3), DType::F32, &Device::Cpu).expect("an input");
                let loss = model.forward(&x).and_then(|output| Ok(output.mean_all()?)).expect("a loss");
                model.backward(&loss).expect("backward");
                model.zero_gradients();
            }
            // The last layer is the longest. It is there from forward to backward, and with it never more than one that it follows.
            let most = lens[11] + lens[10];
            let spare = &model.strategy_mut::<FullyShard>().expect("the strategy").spare;
            let idle: usize = spare.idle().map(|storage| 4 * storage.as_slice::<f32>().expect("floats").len()).sum();
            assert!(
                idle <= most && most < lens.iter().sum::<usize>() / 2,
                "{idle} bytes are kept, not {most}: {lens:?}"
            );
            assert!(spare.peak() <= most && model.held().passing_peak >= idle, "{:?}", model.held());
        };
        Threads::new(2).run(rank).expect("a world");
    }
}
