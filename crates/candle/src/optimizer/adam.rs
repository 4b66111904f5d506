//! AdamW, as PyTorch computes it.

use super::memory::PartMemory;
use super::{Optimizer, check_rate};
use crate::error::{Error, Result};
use crate::model::Model;

/// Adam with decoupled weight decay. It counts its steps, where PyTorch counts those of each parameter: one to which gradients come late
/// moves faster at first.
#[derive(Clone, Debug)]
#[must_use]
pub struct AdamW {
    betas: (f64, f64),
    epsilon: f64,
    decay: f64,
    steps: u64,
    moments: PartMemory<Moments>,
}

#[derive(Clone, Debug, Default)]
struct Moments {
    first: Vec<f32>,
    second: Vec<f32>,
}

impl Moments {
    fn zero(len: usize) -> Moments {
        Moments { first: vec![0.0; len], second: vec![0.0; len] }
    }
}

impl Default for AdamW {
    /// Betas 0.9 and 0.999, epsilon 1e-8, decay 0.01: PyTorch's.
    fn default() -> AdamW {
        AdamW { betas: (0.9, 0.999), epsilon: 1e-8, decay: 0.01, steps: 0, moments: PartMemory::default() }
    }
}

impl AdamW {
    /// How fast the averages of gradients and of their squares forget.
    pub fn betas(mut self, first: f64, second: f64) -> AdamW {
        self.betas = (first, second);
        self
    }

    /// What keeps the divisor from 0.
    pub fn epsilon(mut self, epsilon: f64) -> AdamW {
        self.epsilon = epsilon;
        self
    }

    /// What share of a parameter a step takes off, times the learning rate.
    pub fn decay(mut self, decay: f64) -> AdamW {
        self.decay = decay;
        self
    }

    /// Refuses what would make every parameter something else than a number.
    fn check(&self) -> Result<()> {
        let AdamW { betas, epsilon, decay, .. } = *self;
        for (name, beta) in [("first", betas.0), ("second", betas.1)] {
            if !(0.0..1.0).contains(&beta) {
                return Err(Error::Usage(format!("step: the {name} beta is {beta}: must be at least 0 and below 1")));
            }
        }
        for (name, value) in [("epsilon", epsilon), ("decay", decay)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::Usage(format!("step: {name} is {value}: must be a number of at least 0")));
            }
        }
        Ok(())
    }
}

impl Optimizer for AdamW {
    fn step(&mut self, model: &mut Model, rate: f64) -> Result<()> {
        self.check()?;
        check_rate(rate)?;
        let moments = self.moments.go_on("AdamW", model, Moments::zero)?;
        self.steps += 1;
        let count = self.steps as f64;
        let (first, second) = self.betas;
        let correct = ((1.0 - first.powf(count)), (1.0 - second.powf(count)).sqrt());
        let stride = (rate / correct.0) as f32;
        let (epsilon, root) = (self.epsilon as f32, (1.0 / correct.1) as f32);
        let keeps = (first as f32, second as f32);
        // Close to one an `f32` has no digits left for what is missing.
        let takes = ((1.0 - first) as f32, (1.0 - second) as f32);
        let keep = (1.0 - rate * self.decay) as f32;
        model.update(|index, values, gradient| {
            let Some(gradient) = gradient else { return };
            let Moments { first, second } = &mut moments[index];
            pulp::Arch::new().dispatch(|| {
                for (((value, slope), first), second) in values.iter_mut().zip(gradient).zip(first).zip(second) {
                    *first = keeps.0 * *first + takes.0 * slope;
                    *second = keeps.1 * *second + takes.1 * slope * slope;
                    *value = *value * keep - stride * *first / (second.sqrt() * root + epsilon);
                }
            });
        })
    }

    fn state(&mut self, model: &Model) -> Vec<(&'static str, Vec<&mut [f32]>)> {
        if self.moments.is_of_others(model) {
            self.steps = 0;
        }
        let mut first = vec![];
        let mut second = vec![];
        for moments in self.moments.begin(model, Moments::zero) {
            first.push(moments.first.as_mut_slice());
            second.push(moments.second.as_mut_slice());
        }
        vec![("first_moment", first), ("second_moment", second)]
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn resume(&mut self, steps: u64) {
        self.steps = steps;
    }
}
