//! Gradient descent with momentum, as PyTorch's SGD computes it.

use super::Optimizer;
use crate::error::Result;
use crate::model::Model;

/// Stochastic gradient descent.
#[derive(Clone, Debug, Default)]
pub struct Sgd {
    momentum: f32,
    steps: u64,
    velocities: Vec<Vec<f32>>,
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

    fn make_room(&mut self, model: &Model) {
        self.velocities.resize_with(model.parts().len(), Vec::new);
        for (velocity, part) in self.velocities.iter_mut().zip(model.parts()).filter(|(_, part)| part.is_trained) {
            velocity.resize(part.elements.len(), 0.0);
        }
    }
}

impl Optimizer for Sgd {
    fn step(&mut self, model: &mut Model, rate: f64) -> Result<()> {
        self.steps += 1;
        if self.momentum == 0.0 {
            return model.update(|_, values, gradient| {
                let slopes = gradient.unwrap_or_default();
                values.iter_mut().zip(slopes).for_each(|(value, slope)| *value -= rate as f32 * slope);
            });
        }
        self.make_room(model);
        let (momentum, velocities) = (self.momentum, &mut self.velocities);
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
        self.make_room(model);
        vec![("velocity", self.velocities.iter_mut().map(Vec::as_mut_slice).collect())]
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn resume(&mut self, steps: u64) {
        self.steps = steps;
    }
}
