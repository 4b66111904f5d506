//! The mean cross-entropy of logits and the classes that were right.

use candle_core::{CpuStorage, CustomOp1, D, Layout, Result, Shape, Tensor};

use super::dispatch::{is_fused, vectorised};
use super::lanes::{largest, sum};
use super::real::exp;
use super::slices;

/// The mean over all rows of `-log(softmax(logits)[target])`. Rows are all dimensions of `logits` but the last; `targets` has one
/// `u32` for each.
///
/// # Errors
///
/// Where there are not as many targets as rows, none, or one that is no class.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let classes = logits.dim(D::Minus1)?;
    let logits = logits.reshape(((), classes))?.to_dtype(match logits.dtype() {
        candle_core::DType::F64 => candle_core::DType::F64,
        _ => candle_core::DType::F32,
    })?;
    let right = targets.flatten_all()?.to_vec1::<u32>()?;
    if right.is_empty() || right.len() != logits.dim(0)? {
        candle_core::bail!("cross_entropy: {} targets for {} rows", right.len(), logits.dim(0)?);
    }
    if let Some(target) = right.iter().find(|target| **target as usize >= classes) {
        candle_core::bail!("cross_entropy: target {target} of {classes} classes");
    }
    match is_fused(&logits) {
        true => logits.contiguous()?.apply_op1(CrossEntropy { targets: right }),
        false => composed(&logits, &targets.flatten_all()?),
    }
}

fn composed(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let rest = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
    let total = rest.exp()?.sum_keepdim(D::Minus1)?.log()?;
    (total - rest.gather(&targets.unsqueeze(1)?.contiguous()?, D::Minus1)?)?.mean_all()
}

struct CrossEntropy {
    targets: Vec<u32>,
}

impl CrossEntropy {
    fn columns(&self, len: usize) -> usize {
        len / self.targets.len()
    }

    #[inline(always)]
    fn forward(&self, logits: &[f32]) -> f32 {
        let mut loss = 0.0;
        for (row, target) in logits.chunks_exact(self.columns(logits.len())).zip(&self.targets) {
            let most = largest(row);
            let total = sum(row, row, |x, _| exp(x - most));
            loss += f64::from(total.ln() + most - row[*target as usize]);
        }
        (loss / self.targets.len() as f64) as f32
    }

    #[inline(always)]
    fn backward(&self, logits: &[f32], gradient: f32) -> Vec<f32> {
        let columns = self.columns(logits.len());
        let gradient = gradient / self.targets.len() as f32;
        let mut of_logits = vec![0.0; logits.len()];
        let rows = logits.chunks_exact(columns).zip(of_logits.chunks_exact_mut(columns));
        for ((row, into), target) in rows.zip(&self.targets) {
            let most = largest(row);
            into.iter_mut().zip(row).for_each(|(into, x)| *into = exp(x - most));
            let share = gradient / sum(into, into, |power, _| power);
            into.iter_mut().for_each(|power| *power *= share);
            into[*target as usize] -= gradient;
        }
        of_logits
    }
}

impl CustomOp1 for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn cpu_fwd(&self, logits: &CpuStorage, at: &Layout) -> Result<(CpuStorage, Shape)> {
        let logits = slices::of_storage(self.name(), logits, at)?;
        slices::returned(vec![vectorised(|| self.forward(logits))], ())
    }

    fn bwd(&self, logits: &Tensor, _loss: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.to_scalar::<f32>()?;
        let of_logits = slices::with(logits, |logits| vectorised(|| self.backward(logits, gradient)))?;
        slices::shaped(of_logits, logits).map(Some)
    }
}
