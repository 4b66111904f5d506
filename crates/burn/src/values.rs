//! Between burn's tensors and slices of elements, in the types that both have.

use burn::tensor::{DType, Tensor, TensorData};
use half::{bf16, f16};
use phalanx_core::{DType as Wire, Element, Error, Result};
use phalanx_fsdp::{Gathered, Gradient};

/// The elements of a tensor, wherever it lives.
pub(crate) fn read<const D: usize>(tensor: Tensor<D>) -> Result<TensorData> {
    tensor.try_into_data().map_err(|error| Error::setup("reading a tensor", error))
}

/// What ranks call a type of floating-point numbers; none for what is packed.
pub(crate) fn wire_type(dtype: DType) -> Option<Wire> {
    match dtype {
        DType::F64 => Some(Wire::F64),
        DType::F32 | DType::Flex32 => Some(Wire::F32),
        DType::F16 => Some(Wire::F16),
        DType::BF16 => Some(Wire::BF16),
        _ => None,
    }
}

/// The elements of a parameter as an optimizer changes them.
pub(crate) fn floats(name: &str, data: TensorData) -> Result<Vec<f32>> {
    if wire_type(data.dtype()).is_none() {
        let value = format!("{:?} in {name:?}", data.dtype());
        return Err(Error::usage("a parameter", "dtype", value, "must be f64, f32, f16 or bf16"));
    }
    data.convert_dtype(DType::F32)
        .try_into_vec::<f32>()
        .map_err(|error| Error::setup(format!("reading {name:?}"), error))
}

/// A gradient where it lies.
pub(crate) fn gradient(at: usize, data: &TensorData) -> Result<Gradient<'_>> {
    let lent = match data.dtype() {
        DType::F64 => data.as_slice::<f64>().map(|values| Gradient::new(at, values)),
        DType::F32 | DType::Flex32 => data.as_slice::<f32>().map(|values| Gradient::new(at, values)),
        DType::F16 => data.as_slice::<f16>().map(|values| Gradient::new(at, values)),
        DType::BF16 => data.as_slice::<bf16>().map(|values| Gradient::new(at, values)),
        other => {
            return Err(Error::usage("a gradient", "dtype", format!("{other:?}"), "must be f64, f32, f16 or bf16"));
        }
    };
    lent.map_err(|error| Error::setup("reading a gradient", error))
}

/// A full parameter that was gathered, in the type in which it is computed with.
pub(crate) fn gathered(gathered: &Gathered<'_>, at: usize, shape: &[usize]) -> Result<TensorData> {
    fn copied<T: Element + burn::tensor::Element>(
        gathered: &Gathered<'_>,
        at: usize,
        shape: &[usize],
    ) -> Result<TensorData> {
        let mut values = vec![<T as Default>::default(); shape.iter().product()];
        gathered.copy_out(at, &mut values)?;
        Ok(TensorData::new(values, shape))
    }
    match gathered.dtype(at)? {
        Wire::F64 => copied::<f64>(gathered, at, shape),
        Wire::F16 => copied::<f16>(gathered, at, shape),
        Wire::BF16 => copied::<bf16>(gathered, at, shape),
        _ => copied::<f32>(gathered, at, shape),
    }
}
