//! The same training twice: alone with everything, and sharded through the engine.

use half::{bf16, f16};
use phalanx_core::{DType, ReduceOp, Result};
use phalanx_fsdp::{Gradient, Groups, Param, Policy, Sharded};

use crate::company::Company;
use crate::model::{Block, GAIN, WEIGHT, loss};

/// What is trained, and how its batches come.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) blocks: Vec<Block>,
    pub(crate) steps: usize,
    /// Micro-batches of a step.
    pub(crate) micros: usize,
    pub(crate) seed: u64,
    /// What gradients are clipped to before a step, and by which norm.
    pub(crate) clip: Option<(f64, f64)>,
}

/// What came of it: the loss before each step, and the full parameters at the end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) losses: Vec<f64>,
    pub(crate) params: Vec<Vec<Vec<f32>>>,
}

/// Samples of a step, which every world and number of micro-batches divides.
pub(crate) const SAMPLES: usize = 72;
const RATE: f32 = 0.2;
const MOMENTUM: f32 = 0.8;

impl Task {
    pub(crate) fn new(blocks: Vec<Block>, steps: usize) -> Task {
        Task { blocks, steps, micros: 1, seed: 7, clip: None }
    }

    pub(crate) fn micros(mut self, micros: usize) -> Task {
        self.micros = micros;
        self
    }

    pub(crate) fn clipped(mut self, most: f64, p: f64) -> Task {
        self.clip = Some((most, p));
        self
    }

    pub(crate) fn initial(&self) -> Vec<Vec<Vec<f32>>> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        self.blocks.iter().map(|block| block.initial(&mut random)).collect()
    }

    /// The inputs and targets of one part of a step's samples.
    pub(crate) fn batch(&self, step: usize, part: usize, parts: usize) -> (Vec<f64>, Vec<f64>) {
        let mut random = fastrand::Rng::with_seed(self.seed ^ (step as u64 + 1) << 20);
        let (inputs, outputs) = (self.blocks[0].inputs, self.blocks[self.blocks.len() - 1].outputs);
        let x: Vec<f64> = (0..SAMPLES * inputs).map(|_| random.f64() * 2.0 - 1.0).collect();
        let target = |sample: &[f64], o: usize| (sample.iter().sum::<f64>() * 0.5).sin() * (0.3 + o as f64 * 0.3);
        let targets =
            x.chunks(inputs).flat_map(|sample| (0..outputs).map(move |o| target(sample, o))).collect::<Vec<_>>();
        let each = SAMPLES / parts;
        assert_eq!(each * parts, SAMPLES, "{parts} parts");
        let cut = |all: &[f64], width: usize| all[part * each * width..(part + 1) * each * width].to_vec();
        (cut(&x, inputs), cut(&targets, outputs))
    }

    /// Trains with everything in one place.
    pub(crate) fn alone(&self) -> Outcome {
        let mut params = self.initial();
        let mut speeds: Vec<Vec<Vec<f32>>> = self.zeros();
        let mut losses = Vec::new();
        for step in 0..self.steps {
            let (value, gradients) = self.full_gradients(&params, step);
            losses.push(value);
            let factor = self.clip.map_or(1.0, |(most, p)| (most / (norm(&gradients, p) + 1e-6)).min(1.0));
            for (block, gradients) in gradients.iter().enumerate() {
                for (index, gradient) in gradients.iter().enumerate().filter(|(_, gradient)| !gradient.is_empty()) {
                    let gradient: Vec<f32> = gradient.iter().map(|g| (*g * factor) as f32).collect();
                    descend(&mut params[block][index], &gradient, &mut speeds[block][index]);
                }
            }
        }
        Outcome { losses, params }
    }

    /// The loss of a whole step, and the gradients of each block's own parameters; empty where they are frozen.
    pub(crate) fn full_gradients(&self, params: &[Vec<Vec<f32>>], step: usize) -> (f64, Vec<Vec<Vec<f64>>>) {
        let wide = |block: &Vec<Vec<f32>>| -> Vec<Vec<f64>> {
            block.iter().map(|param| param.iter().map(|x| f64::from(*x)).collect()).collect()
        };
        let wide: Vec<_> = params.iter().map(wide).collect();
        let (mut x, targets) = self.batch(step, 0, 1);
        let mut saved = Vec::new();
        for (block, params) in self.blocks.iter().zip(&wide) {
            let (y, kept) = block.forward(params, x);
            (x, saved) = (y, {
                saved.push(kept);
                saved
            });
        }
        let (value, mut slope) = loss(&x, &targets);
        let mut all = vec![vec![Vec::new(); GAIN + 1]; self.blocks.len()];
        for at in (0..self.blocks.len()).rev() {
            let (before, gradients) = self.blocks[at].backward(&wide[at], &saved[at], slope);
            slope = before;
            for (index, gradient) in gradients {
                let own = &mut all[at][if index > GAIN { WEIGHT } else { index }];
                own.resize(gradient.len(), 0.0);
                own.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
            }
        }
        (value, all)
    }

    /// A sharded model with the initial weights.
    pub(crate) fn shard(&self, groups: impl Into<Groups>, policy: Policy) -> Result<Sharded> {
        let named = self.blocks.iter().enumerate();
        let units = named.map(|(index, block)| block.spec(&format!("block {index}"))).collect();
        let mut model = Sharded::new(groups, units, policy)?;
        for (unit, params) in self.initial().iter().enumerate() {
            for (index, full) in params.iter().enumerate() {
                model.load_full(Param { unit, index }, full)?;
            }
        }
        Ok(model)
    }

    /// Trains with the help of others. `before` is told of each micro-batch that is about to begin: its step and its number.
    pub(crate) fn sharded(
        &self,
        company: Company,
        policy: &Policy,
        before: impl Fn(&mut Sharded, usize, usize) + Sync,
    ) -> Outcome {
        let mut ends = company.run(|groups, rank| {
            let mut model = self.shard(groups.clone(), policy.clone()).expect("a model");
            let mut speeds = self.zeros();
            let mut losses = Vec::new();
            for step in 0..self.steps {
                let mut value = [0.0];
                for micro in 0..self.micros {
                    before(&mut model, step, micro);
                    let part = micro * company.size() + rank;
                    value[0] += self.pass(&mut model, step, part, self.micros * company.size()).expect("a pass");
                }
                self.step(&mut model, &mut speeds).expect("a step");
                value[0] /= self.micros as f64;
                groups.shard().all_reduce(&mut value, ReduceOp::Avg).expect("a sum");
                if let Some(replicas) = groups.replicas() {
                    replicas.all_reduce(&mut value, ReduceOp::Avg).expect("a sum");
                }
                losses.push(value[0]);
            }
            Outcome { losses, params: self.collect(&model).expect("full parameters") }
        });
        let first = ends.swap_remove(0);
        for (rank, other) in ends.iter().enumerate() {
            assert_eq!(other, &first, "rank {rank} of {company:?}");
        }
        first
    }

    /// One forward and one backward of a part of a step's samples; its loss.
    pub(crate) fn pass(&self, model: &mut Sharded, step: usize, part: usize, parts: usize) -> Result<f64> {
        let (mut x, targets) = self.batch(step, part, parts);
        let mut saved = Vec::new();
        for (unit, block) in self.blocks.iter().enumerate() {
            let full = full_params(model.before_forward(unit)?, block)?;
            let (y, kept) = block.forward(&full, x);
            (x, saved) = (y, {
                saved.push(kept);
                saved
            });
            model.after_forward(unit)?;
        }
        let (value, mut slope) = loss(&x, &targets);
        slope.iter_mut().for_each(|d| *d /= self.micros as f64);
        for unit in (0..self.blocks.len()).rev() {
            let gathered = model.before_backward(unit)?;
            let dtype = gathered.dtype(WEIGHT)?;
            let full = full_params(gathered, &self.blocks[unit])?;
            let (before, gradients) = self.blocks[unit].backward(&full, &saved[unit], slope);
            slope = before;
            bring(model, unit, &gradients, dtype)?;
        }
        model.finish_backward()?;
        Ok(value)
    }

    /// A step of the optimizer on every rank's own rows.
    pub(crate) fn step(&self, model: &mut Sharded, speeds: &mut [Vec<Vec<f32>>]) -> Result<()> {
        if let Some((most, p)) = self.clip {
            model.clip_gradients(most, p)?;
        }
        for param in model.trained().collect::<Vec<_>>() {
            let (shard, gradient) = model.update::<f32>(param)?;
            let speed = &mut speeds[param.unit][param.index];
            speed.truncate(shard.len());
            descend(shard, gradient.expect("a gradient of each trained parameter"), speed);
        }
        model.zero_gradients();
        Ok(())
    }

    /// All parameters that have memory, whole.
    pub(crate) fn collect(&self, model: &Sharded) -> Result<Vec<Vec<Vec<f32>>>> {
        let mut all = self.zeros();
        for param in model.owned() {
            model.copy_full(param, &mut all[param.unit][param.index])?;
        }
        Ok(all)
    }

    pub(crate) fn zeros(&self) -> Vec<Vec<Vec<f32>>> {
        self.blocks.iter().map(|block| block.lens().map(|len| vec![0.0; len]).to_vec()).collect()
    }
}

/// The norm of all gradients as one vector.
pub(crate) fn norm(gradients: &[Vec<Vec<f64>>], p: f64) -> f64 {
    let all = gradients.iter().flatten().flatten().map(|g| g.abs());
    if p.is_infinite() { all.fold(0.0, f64::max) } else { all.map(|g| g.powf(p)).sum::<f64>().powf(1.0 / p) }
}

impl Outcome {
    /// The largest relative difference of losses.
    pub(crate) fn apart(&self, other: &Outcome) -> f64 {
        assert_eq!(self.losses.len(), other.losses.len());
        let apart = self.losses.iter().zip(&other.losses).map(|(a, b)| (a - b).abs() / b.abs());
        apart.fold(0.0, |most, one| if one > most || one.is_nan() { one } else { most })
    }
}

/// Hands gradients over in the type in which the unit is computed.
pub(crate) fn bring(model: &mut Sharded, unit: usize, gradients: &[(usize, Vec<f64>)], dtype: DType) -> Result<()> {
    macro_rules! bring_as {
        ($narrow:expr) => {{
            let narrow: Vec<(usize, Vec<_>)> = gradients
                .iter()
                .map(|(index, gradient)| (*index, gradient.iter().copied().map($narrow).collect()))
                .collect();
            let all: Vec<_> = narrow.iter().map(|(index, gradient)| Gradient::new(*index, gradient)).collect();
            model.gradients(unit, &all)
        }};
    }
    match dtype {
        DType::BF16 => bring_as!(|g: f64| bf16::from_f32(g as f32)),
        DType::F16 => bring_as!(|g: f64| f16::from_f32(g as f32)),
        DType::F64 => bring_as!(|g: f64| g),
        _ => bring_as!(|g: f64| g as f32),
    }
}

/// The parameters of a block that have memory, as they were gathered.
fn full_params(gathered: phalanx_fsdp::Gathered<'_>, block: &Block) -> Result<Vec<Vec<f64>>> {
    let mut full: Vec<Vec<f64>> = block.lens().map(|len| vec![0.0; len]).to_vec();
    full.iter_mut().enumerate().try_for_each(|(index, param)| gathered.copy_out(index, param))?;
    Ok(full)
}

pub(crate) fn descend(values: &mut [f32], gradient: &[f32], speed: &mut [f32]) {
    assert_eq!(values.len(), gradient.len());
    for ((value, slope), speed) in values.iter_mut().zip(gradient).zip(speed) {
        *speed = MOMENTUM * *speed + slope;
        *value -= RATE * *speed;
    }
}
