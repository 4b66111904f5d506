//! GELU in its exact form, `x * (1 + erf(x / sqrt(2))) / 2`: what PyTorch takes by default.

use std::f32::consts::{FRAC_1_SQRT_2, PI};

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

use super::dispatch::{is_fused, vectorised, widened};
use super::real::{erf, exp};
use super::slices;

/// `x * (1 + erf(x / sqrt(2))) / 2`, element by element.
///
/// # Errors
///
/// Where the type of the elements is not a floating one.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    widened(x, |x| match is_fused(x) {
        true => x.contiguous()?.apply_op1(Gelu),
        false => x.gelu_erf(),
    })
}

#[derive(Clone, Copy, Debug)]
struct Gelu;

#[inline(always)]
fn forward(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| 0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))).collect()
}

#[inline(always)]
fn backward(x: &[f32], gradient: &[f32]) -> Vec<f32> {
    let peak = 1.0 / (2.0 * PI).sqrt();
    let slope = |x: f32| 0.5 * (1.0 + erf(x * FRAC_1_SQRT_2)) + x * peak * exp(-0.5 * x * x);
    x.iter().zip(gradient).map(|(x, gradient)| gradient * slope(*x)).collect()
}

impl CustomOp1 for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn cpu_fwd(&self, x: &CpuStorage, at: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = slices::of_storage(self.name(), x, at)?;
        slices::returned(vectorised(|| forward(x)), at.shape())
    }

    fn bwd(&self, x: &Tensor, _output: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let of_x = slices::with(x, |x| slices::with(gradient, |gradient| vectorised(|| backward(x, gradient))))??;
        slices::shaped(of_x, x).map(Some)
    }
}
