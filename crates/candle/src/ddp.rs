//! Every rank holds everything, and the engine averages gradients in buckets while backward goes on.

use std::time::Duration;

use candle_core::{CpuStorage, Storage, Tensor};
use phalanx_core::{DType, Group};
use phalanx_fsdp::{Ddp as Buckets, DdpOptions, Groups, ParamSpec, Part, refuse};

use crate::error::{Error, Result};
use crate::single::Single;
use crate::strategy::{Held, Look, Strategy, Update};
use crate::unit::Unit;

/// Training with a whole model on each rank: data parallelism.
#[derive(Debug)]
pub struct Ddp {
    group: Group,
    options: DdpOptions,
    own: Single,
    /// The engine's number of each parameter that is trained.
    numbers: Vec<Option<usize>>,
    buckets: Option<Buckets>,
    syncs: bool,
    /// Which parameters got a gradient on this rank since gradients were last dropped.
    came: Vec<bool>,
}

impl Ddp {
    /// Replicas on all ranks of a group, which begin with the values of rank 0.
    pub fn new(group: Group) -> Ddp {
        // What has no gradient is told by `Model::unused`.
        let options = DdpOptions::default().allow_unused(true);
        Ddp { group, options, own: Single::new(), numbers: vec![], buckets: None, syncs: true, came: vec![] }
    }

    /// How gradients travel together. Without options a parameter may have no gradient, which counts as zero; options say that themselves
    /// ([`DdpOptions::allow_unused`]).
    pub fn options(mut self, options: DdpOptions) -> Ddp {
        self.options = options;
        self
    }

    /// The engine, for communication hooks and what else this adapter does not offer; none before a [`Model`](crate::Model) has it.
    pub fn engine(&mut self) -> Option<&mut Buckets> {
        self.buckets.as_mut()
    }
}

impl Strategy for Ddp {
    fn adopt(&mut self, units: &[Unit]) -> Result<()> {
        self.own.adopt(units).map_err(|why| self.refuse(why))?;
        let rank = self.group.rank();
        let (mut params, mut trained) = (vec![], 0);
        let parameters = units.iter().flat_map(|unit| &unit.parameters);
        for (part, parameter) in self.own.parts_mut().iter_mut().zip(parameters) {
            part.is_first = rank == 0;
            self.numbers.push(part.is_trained.then_some(trained));
            trained += usize::from(part.is_trained);
            // What is frozen is the first rank's too, so that all must have the same, and compute with it in the same type.
            let told = |name: &str, dtype| ParamSpec::new(name, &part.shape, dtype);
            let own = parameter.wire_type()?;
            if part.is_trained {
                params.push(told(&part.name, DType::F32));
                params.push(told(&format!("{} as it is computed with", part.name), own).trainable(false));
            } else {
                params.push(told(&part.name, own).trainable(false));
            }
        }
        self.came = vec![false; self.numbers.len()];
        let mut buckets = Buckets::of_model(self.group.clone(), &params, self.options.clone())?;
        let mut failed = None;
        self.own.update(units, &mut |_, values, _| {
            if failed.is_none() {
                failed = buckets.broadcast(values).err();
            }
        })?;
        self.buckets = Some(buckets);
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn refuse(&self, why: Error) -> Error {
        refuse(&Groups::new(self.group.clone()), why)
    }

    fn gradients(&mut self, _units: &[Unit], unit: usize, gradients: Vec<Option<Tensor>>) -> Result<()> {
        let Some(buckets) = &mut self.buckets else { return Err(unready()) };
        for (at, gradient) in self.own.places(unit).zip(gradients).rev() {
            let (Some(number), Some(gradient)) = (self.numbers[at], gradient) else { continue };
            self.came[at] = true;
            let gradient = gradient.contiguous()?;
            let (storage, layout) = gradient.storage_and_layout();
            let range = layout.start_offset()..layout.start_offset() + layout.shape().elem_count();
            match &*storage {
                Storage::Cpu(CpuStorage::F32(values)) => buckets.gradient(number, &values[range])?,
                Storage::Cpu(CpuStorage::BF16(values)) => buckets.gradient(number, &values[range])?,
                _ => return Err(Error::Usage("Ddp: a gradient is neither f32 nor bf16 on the CPU".to_owned())),
            }
        }
        Ok(())
    }

    fn finish_backward(&mut self, _units: &[Unit]) -> Result<()> {
        let Some(buckets) = &mut self.buckets else { return Err(unready()) };
        buckets.finish_backward()?;
        for (at, number) in self.numbers.iter().enumerate().filter(|_| self.syncs) {
            let averaged = number.map(|number| buckets.averaged::<f32>(number)).transpose()?.flatten();
            averaged.into_iter().for_each(|averaged| self.own.add_gradient(at, averaged));
        }
        Ok(())
    }

    fn set_sync(&mut self, syncs: bool) {
        self.syncs = syncs;
        if let Some(buckets) = &mut self.buckets {
            buckets.set_sync(syncs);
        }
    }

    fn set_training(&mut self, _trains: bool) {}

    fn parts(&self) -> &[Part] {
        self.own.parts()
    }

    fn look(&self, units: &[Unit], look: &mut Look<'_>) -> Result<()> {
        self.own.look(units, look)
    }

    fn update(&mut self, units: &[Unit], step: &mut Update<'_>) -> Result<()> {
        self.own.update(units, step)
    }

    fn clip(&mut self, most: f64) -> Result<f64> {
        // Gradients are the same on all ranks.
        self.own.clip(most)
    }

    fn zero_gradients(&mut self) {
        self.own.zero_gradients();
        self.buckets.iter_mut().for_each(Buckets::zero_gradients);
        self.came.fill(false);
    }

    fn unused(&self) -> Vec<String> {
        let parts = self.own.parts().iter().zip(&self.came);
        let unused = parts.filter(|(part, came)| part.is_trained && !**came);
        unused.map(|(part, _)| part.name.clone()).collect()
    }

    fn held(&self) -> Held {
        let held = self.own.held();
        let buckets = self.buckets.as_ref().map_or(0, |buckets| buckets.memory().total());
        Held { passing_peak: held.passing_peak + buckets, ..held }
    }

    fn waited(&self) -> Duration {
        self.buckets.as_ref().map(Buckets::waited).unwrap_or_default()
    }
}

fn unready() -> Error {
    Error::Usage("Ddp: it has no units yet".to_owned())
}
