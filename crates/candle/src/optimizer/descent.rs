//! Gradient descent with momentum, as PyTorch's SGD computes it.

use super::memory::PartMemory;
use super::{Optimizer, check_rate};
use crate::error::Result;
use crate::model::Model;

/// Stochastic gradient descent.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Sgd {
    momentum: f32,
    steps: u64,
    velocities: PartMemory<Vec<f32>>,
}

impl Sgd {
    /// Plain descent, without momentum unless it is set.
    pub fn new() -> Sgd {
        Sgd::default()
    }

    /// What share of the last step the next one repeats.
    pub fn momentum(mut self, momentum: f64) -> Sgd {
        self.momentum = momentum as f32;
        self
    }
}

impl Optimizer for Sgd {
    fn step(&mut self, model: &mut Model, rate: f64) -> Result<()> {
        check_rate(rate)?;
        if self.momentum == 0.0 {
            self.steps += 1;
            return model.update(|_, values, gradient| {
                let slopes = gradient.unwrap_or_default();
                values.iter_mut().zip(slopes).for_each(|(value, slope)| *value -= rate as f32 * slope);
            });
        }
        let velocities = self.velocities.go_on("Sgd", model, zeros)?;
        let momentum = self.momentum;
        self.steps += 1;
        model.update(|index, values, gradient| {
            let slopes = gradient.unwrap_or_default();
            for ((value, slope), velocity) in values.iter_mut().zip(slopes).zip(&mut velocities[index]) {
                *velocity = momentum * *velocity + slope;
                *value -= rate as f32 * *velocity;
            }
        })
    }

    fn state(&mut self, model: &Model) -> Vec<(&'static str, Vec<&mut [f32]>)> {
        if self.momentum == 0.0 {
            return vec![];
        }
        if self.velocities.is_of_others(model) {
            self.steps = 0;
        }
        vec![("velocity", self.velocities.begin(model, zeros).iter_mut().map(Vec::as_mut_slice).collect())]
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn resume(&mut self, steps: u64) {
        self.steps = steps;
    }
}

fn zeros(len: usize) -> Vec<f32> {
    vec![0.0; len]
}
