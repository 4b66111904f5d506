//! Layer norm and RMS norm over the last dimension, with a weight and no bias.

use candle_core::{CpuStorage, CustomOp2, D, Layout, Result, Shape, Tensor};

use super::dispatch::{is_fused, vectorised, widened};
use super::lanes::sum;
use super::slices;

/// `(x - mean(x)) / sqrt(variance(x) + epsilon) * weight`, over the last dimension.
///
/// # Errors
///
/// Where the weight's length is not the last dimension.
pub fn layer_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    norm(x, weight, Norm { is_centred: true, epsilon })
}

/// `x / sqrt(mean(x^2) + epsilon) * weight`, over the last dimension.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    norm(x, weight, Norm { is_centred: false, epsilon })
}

/// Which of the two.
#[derive(Clone, Copy, Debug)]
struct Norm {
    is_centred: bool,
    epsilon: f64,
}

fn norm(x: &Tensor, weight: &Tensor, norm: Norm) -> Result<Tensor> {
    if weight.dims() != [x.dim(D::Minus1)?] || weight.elem_count() == 0 {
        candle_core::bail!("norm: the weight is {:?}, the input's last dimension {}", weight.dims(), x.dim(D::Minus1)?);
    }
    widened(x, |x| {
        let weight = weight.to_dtype(x.dtype())?;
        match is_fused(x) {
            true => x.contiguous()?.apply_op2(&weight.contiguous()?, norm),
            false => composed(x, &weight, norm),
        }
    })
}

fn composed(x: &Tensor, weight: &Tensor, norm: Norm) -> Result<Tensor> {
    let x = if norm.is_centred { x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)? } else { x.clone() };
    let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + norm.epsilon)?.sqrt()?;
    x.broadcast_div(&scale)?.broadcast_mul(weight)
}

impl Norm {
    /// What is taken off a row, and by what it is multiplied then.
    #[inline(always)]
    fn moments(self, row: &[f32]) -> (f32, f32) {
        let count = row.len() as f32;
        let mean = if self.is_centred { sum(row, row, |x, _| x) / count } else { 0.0 };
        let variance = sum(row, row, |x, _| (x - mean) * (x - mean)) / count;
        (mean, 1.0 / (variance + self.epsilon as f32).sqrt())
    }

    #[inline(always)]
    fn forward(self, x: &[f32], weight: &[f32]) -> Vec<f32> {
        let mut output = vec![0.0; x.len()];
        for (row, into) in x.chunks_exact(weight.len()).zip(output.chunks_exact_mut(weight.len())) {
            let (mean, scale) = self.moments(row);
            into.iter_mut().zip(row).zip(weight).for_each(|((into, x), weight)| *into = (x - mean) * scale * weight);
        }
        output
    }

    /// The gradients of the input and of the weight.
    #[inline(always)]
    fn backward(self, x: &[f32], weight: &[f32], gradient: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let len = weight.len();
        let (mut of_x, mut of_weight) = (vec![0.0; x.len()], vec![0.0; len]);
        for ((row, gradient), into) in
            x.chunks_exact(len).zip(gradient.chunks_exact(len)).zip(of_x.chunks_exact_mut(len))
        {
            let (mean, scale) = self.moments(row);
            for at in 0..len {
                of_weight[at] += gradient[at] * (row[at] - mean) * scale;
                into[at] = gradient[at] * weight[at];
            }
            let count = len as f32;
            let total = if self.is_centred { sum(into, into, |wanted, _| wanted) / count } else { 0.0 };
            let along = sum(into, row, |wanted, x| wanted * (x - mean) * scale) / count;
            for at in 0..len {
                into[at] = scale * (into[at] - total - (row[at] - mean) * scale * along);
            }
        }
        (of_x, of_weight)
    }
}

impl CustomOp2 for Norm {
    fn name(&self) -> &'static str {
        if self.is_centred { "layer_norm" } else { "rms_norm" }
    }

    fn cpu_fwd(&self, x: &CpuStorage, at: &Layout, weight: &CpuStorage, along: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, weight) = (slices::of_storage(self.name(), x, at)?, slices::of_storage(self.name(), weight, along)?);
        slices::returned(vectorised(|| self.forward(x, weight)), at.shape())
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _output: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (of_x, of_weight) = slices::with(x, |x| {
            slices::with(weight, |weight| {
                slices::with(gradient, |gradient| vectorised(|| self.backward(x, weight, gradient)))
            })
        })???;
        Ok((Some(slices::shaped(of_x, x)?), Some(slices::shaped(of_weight, weight)?)))
    }
}
