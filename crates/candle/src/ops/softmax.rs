//! Softmax over the last dimension, over all of it or, for attention, over the positions that are not in the future.

use candle_core::{CpuStorage, CustomOp1, D, DType, Layout, Result, Shape, Tensor};

use super::dispatch::{is_fused, vectorised, widened};
use super::lanes::{largest, sum};
use super::real::exp;
use super::slices;

/// `exp(x) / sum(exp(x))` over the last dimension.
///
/// # Errors
///
/// Where the tensor is a scalar.
pub fn softmax(x: &Tensor) -> Result<Tensor> {
    widened(x, |x| match is_fused(x) {
        true => x.contiguous()?.apply_op1(Softmax { scale: 1.0, is_causal: false }),
        false => composed_softmax(x),
    })
}

/// The softmax of `x * scale` where row `i` of each square of `x` takes the first `i + 1` columns into account; the others are 0.
///
/// # Errors
///
/// Where the last two dimensions are not the same.
pub fn causal_softmax(x: &Tensor, scale: f64) -> Result<Tensor> {
    let (rows, columns) = (x.dim(D::Minus2)?, x.dim(D::Minus1)?);
    if rows != columns {
        candle_core::bail!("causal_softmax: {rows} rows and {columns} columns are no square");
    }
    widened(x, |x| match is_fused(x) {
        true => x.contiguous()?.apply_op1(Softmax { scale: scale as f32, is_causal: true }),
        false => composed_causal_softmax(x, scale),
    })
}

pub(super) fn composed_softmax(x: &Tensor) -> Result<Tensor> {
    // The largest is a constant here: what it adds to the gradient is nothing.
    let powers = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?.exp()?;
    powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)
}

pub(super) fn composed_causal_softmax(x: &Tensor, scale: f64) -> Result<Tensor> {
    let len = x.dim(D::Minus1)?;
    let is_past = Tensor::tril2(len, DType::U8, x.device())?.broadcast_as(x.shape())?;
    let nothing = Tensor::new(f32::NEG_INFINITY, x.device())?.to_dtype(x.dtype())?.broadcast_as(x.shape())?;
    composed_softmax(&is_past.where_cond(&(x * scale)?, &nothing)?)
}

#[derive(Clone, Copy, Debug)]
struct Softmax {
    scale: f32,
    is_causal: bool,
}

impl Softmax {
    /// How many columns of a row count.
    #[inline(always)]
    fn reach(self, row: usize, columns: usize) -> usize {
        if self.is_causal { row % columns + 1 } else { columns }
    }

    #[inline(always)]
    fn forward(self, x: &[f32], columns: usize) -> Vec<f32> {
        let mut output = vec![0.0; x.len()];
        for (at, (row, into)) in x.chunks_exact(columns).zip(output.chunks_exact_mut(columns)).enumerate() {
            let reach = self.reach(at, columns);
            let (row, into) = (&row[..reach], &mut into[..reach]);
            into.iter_mut().zip(row).for_each(|(into, x)| *into = x * self.scale);
            let most = largest(into);
            into.iter_mut().for_each(|x| *x = exp(*x - most));
            let share = 1.0 / sum(into, into, |power, _| power);
            into.iter_mut().for_each(|power| *power *= share);
        }
        output
    }

    #[inline(always)]
    fn backward(self, output: &[f32], gradient: &[f32], columns: usize) -> Vec<f32> {
        let mut of_x = vec![0.0; output.len()];
        let rows = output.chunks_exact(columns).zip(gradient.chunks_exact(columns)).zip(of_x.chunks_exact_mut(columns));
        for (at, ((output, gradient), into)) in rows.enumerate() {
            let reach = self.reach(at, columns);
            let (output, gradient, into) = (&output[..reach], &gradient[..reach], &mut into[..reach]);
            let along = sum(output, gradient, |output, gradient| output * gradient);
            for at in 0..reach {
                into[at] = self.scale * output[at] * (gradient[at] - along);
            }
        }
        of_x
    }
}

impl CustomOp1 for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn cpu_fwd(&self, x: &CpuStorage, at: &Layout) -> Result<(CpuStorage, Shape)> {
        let columns = at.shape().dim(D::Minus1)?.max(1);
        let x = slices::of_storage(self.name(), x, at)?;
        slices::returned(vectorised(|| self.forward(x, columns)), at.shape())
    }

    fn bwd(&self, x: &Tensor, output: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let columns = x.dim(D::Minus1)?.max(1);
        let of_x = slices::with(output, |output| {
            slices::with(gradient, |gradient| vectorised(|| self.backward(output, gradient, columns)))
        })??;
        slices::shaped(of_x, x).map(Some)
    }
}
