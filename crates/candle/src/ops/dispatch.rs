//! Which form of an operation is taken: the fused one for `f32` on the CPU, the one made of basic operations elsewhere. Types of
//! 16 bits are widened first, so that sums keep their digits, and what comes out is narrowed again.

use candle_core::{DType, Device, Result, Tensor};

/// Whether the fused form can be taken.
pub(super) fn is_fused(tensor: &Tensor) -> bool {
    tensor.dtype() == DType::F32 && matches!(tensor.device(), Device::Cpu)
}

/// Applies `op` to a tensor that is widened first where it has to be.
pub(super) fn widened(tensor: &Tensor, op: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match tensor.dtype() {
        DType::BF16 | DType::F16 => op(&tensor.to_dtype(DType::F32)?)?.to_dtype(tensor.dtype()),
        _ => op(tensor),
    }
}

/// A closure compiled for the vectors that this machine has. What it calls must be inlined into it.
pub(super) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}
