//! One rank that holds everything: what the other strategies must come to as well.

use std::ops::Range;
use std::time::Duration;

use candle_core::{CpuStorage, DType, Storage, Tensor};
use half::bf16;
use phalanx_core::DType as Wire;
use phalanx_fsdp::{Part, clip};

use crate::error::Result;
use crate::storage;
use crate::strategy::{Held, Look, Strategy, Update};
use crate::unit::Unit;

/// Training by one rank, without another. A parameter that no gradient reaches has none, where among ranks it counts as zero: see
/// [`Optimizer::step`](crate::Optimizer::step).
#[derive(Debug, Default)]
pub struct Single {
    parts: Vec<Part>,
    /// Values in full precision, of parameters that are kept in less.
    masters: Vec<Option<Vec<f32>>>,
    gradients: Vec<Option<Vec<f32>>>,
    /// Where each unit's parameters begin among all.
    firsts: Vec<usize>,
}

impl Single {
    /// One rank.
    pub fn new() -> Single {
        Single::default()
    }

    pub(crate) fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts
    }

    /// Where a unit's parameters are among all.
    pub(crate) fn places(&self, unit: usize) -> Range<usize> {
        self.firsts[unit]..self.firsts.get(unit + 1).copied().unwrap_or(self.parts.len())
    }

    /// Adds to the gradient of a parameter.
    pub(crate) fn add_gradient(&mut self, at: usize, values: &[f32]) {
        match &mut self.gradients[at] {
            Some(sum) => sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
            none => *none = Some(values.to_vec()),
        }
    }
}

impl Strategy for Single {
    fn adopt(&mut self, units: &[Unit]) -> Result<()> {
        for unit in units {
            self.firsts.push(self.parts.len());
            for parameter in &unit.parameters {
                let (name, shape) = (parameter.name.clone(), parameter.shape().to_vec());
                let elements = 0..shape.iter().product();
                self.parts.push(Part { name, shape, elements, is_first: true, is_trained: parameter.is_trained });
                let is_narrow = parameter.wire_type()? != Wire::F32;
                let wide = || parameter.var.to_dtype(DType::F32)?.flatten_all()?.to_vec1();
                self.masters.push(is_narrow.then(wide).transpose()?);
                self.gradients.push(None);
            }
        }
        Ok(())
    }

    fn gradients(&mut self, units: &[Unit], unit: usize, gradients: Vec<Option<Tensor>>) -> Result<()> {
        let numbered = (self.firsts[unit]..).zip(&units[unit].parameters).zip(gradients);
        for ((at, parameter), gradient) in numbered {
            let Some(gradient) = gradient.filter(|_| parameter.is_trained) else { continue };
            self.add_gradient(at, &gradient.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(())
    }

    fn finish_backward(&mut self, _units: &[Unit]) -> Result<()> {
        Ok(())
    }

    fn set_sync(&mut self, _syncs: bool) {}

    fn set_training(&mut self, _trains: bool) {}

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn look(&self, units: &[Unit], look: &mut Look<'_>) -> Result<()> {
        for (at, parameter) in units.iter().flat_map(|unit| &unit.parameters).enumerate() {
            match (&self.masters[at], &*parameter.var.storage_and_layout().0) {
                (Some(master), Storage::Cpu(CpuStorage::BF16(values))) if !is_of(master, values) => {
                    let mut master = master.clone();
                    follow(&mut master, values);
                    look(at, &master);
                }
                (Some(master), _) => look(at, master),
                (None, Storage::Cpu(CpuStorage::F32(values))) => look(at, values),
                _ => {}
            }
        }
        Ok(())
    }

    fn update(&mut self, units: &[Unit], step: &mut Update<'_>) -> Result<()> {
        for (at, parameter) in units.iter().flat_map(|unit| &unit.parameters).enumerate() {
            let gradient = self.gradients[at].as_deref();
            let mut storage = storage::take(&parameter.var)?;
            match (&mut storage, &mut self.masters[at]) {
                (CpuStorage::F32(values), _) => step(at, values, gradient),
                (CpuStorage::BF16(values), Some(master)) => {
                    follow(master, values);
                    step(at, master, gradient);
                    values.iter_mut().zip(&*master).for_each(|(value, wide)| *value = bf16::from_f32(*wide));
                }
                _ => {}
            }
            storage::swap(&parameter.var, storage)?;
        }
        Ok(())
    }

    fn clip(&mut self, most: f64) -> Result<f64> {
        let square = |value: &f32| f64::from(*value) * f64::from(*value);
        let norm = self.gradients.iter().flatten().flatten().map(square).sum::<f64>().sqrt();
        if let Some(factor) = clip::factor(norm, most) {
            self.gradients.iter_mut().flatten().flatten().for_each(|value| *value *= factor as f32);
        }
        Ok(norm)
    }

    fn zero_gradients(&mut self) {
        self.gradients.iter_mut().for_each(|gradient| *gradient = None);
    }

    fn unused(&self) -> Vec<String> {
        let parts = self.parts.iter().zip(&self.gradients);
        let unused = parts.filter(|(part, gradient)| part.is_trained && gradient.is_none());
        unused.map(|(part, _)| part.name.clone()).collect()
    }

    fn held(&self) -> Held {
        let full = |part: &Part| part.elements.len() * size_of::<f32>();
        let lasting = self.parts.iter().map(|part| full(part) * (1 + usize::from(part.is_trained))).sum();
        let masters = self.masters.iter().flatten().map(|master| master.len() * size_of::<bf16>()).sum();
        Held { lasting, passing_peak: masters }
    }

    fn waited(&self) -> Duration {
        Duration::ZERO
    }
}

/// Whether the values of a variable are those of its master, and nobody has set others since.
fn is_of(master: &[f32], values: &[bf16]) -> bool {
    values.iter().zip(master).all(|(value, wide)| value.to_bits() == bf16::from_f32(*wide).to_bits())
}

/// Takes into a master what was set since.
fn follow(master: &mut [f32], values: &[bf16]) {
    for (wide, value) in master.iter_mut().zip(values) {
        if value.to_bits() != bf16::from_f32(*wide).to_bits() {
            *wide = value.to_f32();
        }
    }
}
