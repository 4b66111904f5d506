//! Tensors as plain slices of `f32` and back. Not what is computed with them.

use candle_core::{CpuStorage, Error, Layout, Result, Shape, Storage, Tensor};

/// The elements of a contiguous operand.
pub(super) fn of_storage<'a>(name: &'static str, storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (start, end) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: name })?;
    let all = storage.as_slice::<f32>()?;
    all.get(start..end).ok_or_else(|| Error::Msg(format!("{name}: the operand's storage holds {} elements", all.len())))
}

/// Looks at the elements of a tensor on the CPU.
pub(super) fn with<R>(tensor: &Tensor, look: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => Ok(look(of_storage("slice", storage, layout)?)),
        _ => Err(Error::Msg(format!("a tensor on {:?} is no slice", tensor.device().location()))),
    }
}

/// A tensor with these elements and the shape of another.
pub(super) fn shaped(values: Vec<f32>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_vec(values, like.shape(), like.device())
}

/// What an operation returns on the CPU.
pub(super) fn returned(values: Vec<f32>, shape: impl Into<Shape>) -> Result<(CpuStorage, Shape)> {
    Ok((CpuStorage::F32(values), shape.into()))
}
