//! A chain of small layers with forward and backward by hand, in f64 whatever the type of the weights.

use phalanx_core::DType;
use phalanx_fsdp::{ParamSpec, UnitSpec};

/// One layer: `tanh(gain * (weight x + bias))`, and then `tanh(weight x)` once more where it has its weight twice.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) trains_bias: bool,
    pub(crate) trains_weight: bool,
    pub(crate) has_again: bool,
    /// The type in which it is computed, where it says so itself.
    pub(crate) compute: Option<DType>,
}

/// What a layer's backward needs of its forward.
#[derive(Debug)]
pub(crate) struct Saved {
    x: Vec<f64>,
    first: Vec<f64>,
    last: Vec<f64>,
}

/// The parameters of a layer, in order.
pub(crate) const WEIGHT: usize = 0;
pub(crate) const BIAS: usize = 1;
pub(crate) const GAIN: usize = 2;
/// It comes after one that is ignored.
pub(crate) const AGAIN: usize = 4;

impl Block {
    pub(crate) fn new(inputs: usize, outputs: usize) -> Block {
        Block { inputs, outputs, trains_bias: true, trains_weight: true, has_again: false, compute: None }
    }

    pub(crate) fn spec(&self, name: &str) -> UnitSpec {
        let shape = [self.outputs, self.inputs];
        let param = |name: &str, shape: &[usize]| ParamSpec::new(name, shape, DType::F32);
        let mut params = vec![
            param("weight", &shape).trainable(self.trains_weight),
            param("bias", &[self.outputs]).trainable(self.trains_bias),
            param("gain", &[]),
            param("note", &[3]).ignored(),
        ];
        if self.has_again {
            params.push(param("again", &shape).tied_to("weight"));
        }
        let spec = UnitSpec::new(name, params);
        if let Some(dtype) = self.compute { spec.compute(dtype) } else { spec }
    }

    /// Elements of each parameter that has memory.
    pub(crate) fn lens(&self) -> [usize; 3] {
        [self.outputs * self.inputs, self.outputs, 1]
    }

    pub(crate) fn initial(&self, random: &mut fastrand::Rng) -> Vec<Vec<f32>> {
        let mut draw = |len: usize, by: f32| (0..len).map(|_| (random.f32() * 2.0 - 1.0) * by).collect();
        let [weight, bias, _] = self.lens();
        vec![draw(weight, (5.0 / self.inputs as f32).sqrt()), draw(bias, 0.1), vec![1.1]]
    }

    /// The outputs for some samples.
    pub(crate) fn forward(&self, params: &[Vec<f64>], x: Vec<f64>) -> (Vec<f64>, Saved) {
        let inner = self.inner(params, &x);
        let first: Vec<f64> = inner.iter().map(|u| (params[GAIN][0] * u).tanh()).collect();
        let last = match self.has_again {
            true => product(&params[WEIGHT], &first, self.inputs).iter().map(|z| z.tanh()).collect(),
            false => first.clone(),
        };
        (last.clone(), Saved { x, first, last })
    }

    /// The gradients of the inputs and of each parameter.
    pub(crate) fn backward(
        &self,
        params: &[Vec<f64>],
        saved: &Saved,
        mut slope: Vec<f64>,
    ) -> (Vec<f64>, Vec<(usize, Vec<f64>)>) {
        let mut gradients = Vec::new();
        if self.has_again {
            scale(&mut slope, &saved.last, |y| 1.0 - y * y);
            gradients.push((AGAIN, outer(&slope, &saved.first, self.outputs, self.inputs)));
            slope = transposed(&params[WEIGHT], &slope, self.inputs, self.outputs);
        }
        scale(&mut slope, &saved.first, |y| 1.0 - y * y);
        let inner = self.inner(params, &saved.x);
        gradients.push((GAIN, vec![slope.iter().zip(&inner).map(|(d, u)| d * u).sum()]));
        slope.iter_mut().for_each(|d| *d *= params[GAIN][0]);
        if self.trains_weight {
            gradients.push((WEIGHT, outer(&slope, &saved.x, self.outputs, self.inputs)));
        }
        if self.trains_bias {
            gradients
                .push((BIAS, (0..self.outputs).map(|o| slope.iter().skip(o).step_by(self.outputs).sum()).collect()));
        }
        (transposed(&params[WEIGHT], &slope, self.inputs, self.outputs), gradients)
    }

    fn inner(&self, params: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
        let mut inner = product(&params[WEIGHT], x, self.inputs);
        for sample in inner.chunks_mut(self.outputs) {
            sample.iter_mut().zip(&params[BIAS]).for_each(|(u, b)| *u += b);
        }
        inner
    }
}

/// Layers of every kind, their widths no multiple of any world.
pub(crate) fn mixed() -> Vec<Block> {
    let mut blocks = vec![Block::new(5, 7), Block::new(7, 3), Block::new(3, 3), Block::new(3, 2), Block::new(2, 1)];
    blocks[1].trains_bias = false;
    blocks[2].has_again = true;
    blocks[4].trains_weight = false;
    blocks
}

/// The mean squared distance to the targets, and its slope.
pub(crate) fn loss(outputs: &[f64], targets: &[f64]) -> (f64, Vec<f64>) {
    let len = outputs.len() as f64;
    let apart: Vec<f64> = outputs.iter().zip(targets).map(|(y, t)| y - t).collect();
    let loss = apart.iter().map(|d| d * d).sum::<f64>() / len;
    (loss, apart.iter().map(|d| 2.0 * d / len).collect())
}

/// `weight x` of each sample.
fn product(weight: &[f64], x: &[f64], inputs: usize) -> Vec<f64> {
    let dot = |row: &[f64], sample: &[f64]| row.iter().zip(sample).map(|(w, x)| w * x).sum::<f64>();
    x.chunks(inputs).flat_map(|sample| weight.chunks(inputs).map(move |row| dot(row, sample))).collect()
}

/// The transposed weight times each sample's slope.
fn transposed(weight: &[f64], slope: &[f64], inputs: usize, outputs: usize) -> Vec<f64> {
    let column = |d: &[f64], i: usize| d.iter().enumerate().map(|(o, d)| d * weight[o * inputs + i]).sum::<f64>();
    slope.chunks(outputs).flat_map(|d| (0..inputs).map(move |i| column(d, i))).collect()
}

/// The gradient of a weight: slopes times inputs, summed over samples.
fn outer(slope: &[f64], x: &[f64], outputs: usize, inputs: usize) -> Vec<f64> {
    let mut sum = vec![0.0; outputs * inputs];
    for (d, x) in slope.chunks(outputs).zip(x.chunks(inputs)) {
        for (o, i) in (0..outputs).flat_map(|o| (0..inputs).map(move |i| (o, i))) {
            sum[o * inputs + i] += d[o] * x[i];
        }
    }
    sum
}

fn scale(slope: &mut [f64], outputs: &[f64], by: impl Fn(f64) -> f64) {
    slope.iter_mut().zip(outputs).for_each(|(d, y)| *d *= by(*y));
}
