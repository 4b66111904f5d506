//! A matrix product with a weight as PyTorch keeps it, `[out, in]`.

use candle_core::{D, Result, Tensor};

/// `x` of `[.., in]` times the transpose of `weight` of `[out, in]`.
///
/// # Errors
///
/// Where the dimensions do not fit.
pub fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (out, width) = weight.dims2()?;
    let mut shape = x.dims().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = out;
    }
    if x.dim(D::Minus1)? != width {
        candle_core::bail!("linear: an input of {:?} for a weight of {:?}", x.dims(), weight.dims());
    }
    x.reshape(((), width))?.matmul(&weight.t()?)?.reshape(shape)
}
