//! Between burn's tensors and slices of elements, in the types that both have.

use burn::tensor::kind::Basic;
use burn::tensor::{DType, Tensor, TensorData};
use half::{bf16, f16};
use phalanx_core::{DType as Wire, Error, Result};
use phalanx_fsdp::{Ddp as Buckets, Gathered, Gradient, Param, ParamSpec, Sharded};

use crate::walk::Parameter;

/// The elements of a tensor, wherever it lives.
pub(crate) fn read<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> Result<TensorData> {
    let data = tensor.try_into_data().map_err(|error| Error::setup("reading a tensor", error))?;
    // The one type whose elements are another's.
    Ok(if data.dtype() == DType::Flex32 { data.convert_dtype(DType::F32) } else { data })
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

/// What they call any type; of what is packed there are bytes.
fn any_type(dtype: DType) -> Wire {
    wire_type(dtype).unwrap_or(match dtype {
        DType::I64 => Wire::I64,
        DType::I32 => Wire::I32,
        DType::I16 => Wire::I16,
        DType::I8 => Wire::I8,
        DType::U64 => Wire::U64,
        DType::U32 => Wire::U32,
        DType::U16 => Wire::U16,
        DType::Bool(_) => Wire::Bool,
        _ => Wire::U8,
    })
}

/// What ranks say of what each has whole. The bytes of packed weights mean something else where they are packed in another way.
pub(crate) fn told(name: &str, parameter: &Parameter) -> ParamSpec {
    let name = match parameter.dtype {
        DType::QFloat(scheme) => format!("{name}, packed by {scheme:?}"),
        _ => name.to_owned(),
    };
    ParamSpec::new(name, &parameter.shape, any_type(parameter.dtype))
}

/// The type in which ranks hold a parameter: a trained one in that in which optimizers step.
pub(crate) fn held_type(parameter: &Parameter) -> Wire {
    wire_type(parameter.dtype).filter(|_| !parameter.is_trained).unwrap_or(Wire::F32)
}

/// The type in which gradients of a parameter are averaged where every rank holds it: none that is narrower than `f32`.
pub(crate) fn averaged_type(parameter: &Parameter) -> Wire {
    wire_type(parameter.dtype).filter(|dtype| *dtype == Wire::F64).unwrap_or(Wire::F32)
}

/// The elements of a parameter as an optimizer changes them.
pub(crate) fn floats(name: &str, data: TensorData) -> Result<Vec<f32>> {
    data.convert_dtype(DType::F32)
        .try_into_vec::<f32>()
        .map_err(|error| Error::setup(format!("reading {name:?}"), error))
}

/// Does something with elements of the type `$T` that a value of [`Wire`] says.
macro_rules! of_type {
    ($dtype:expr, $T:ident => $what:expr) => {
        match $dtype {
            Wire::F64 => {
                type $T = f64;
                $what
            }
            Wire::F16 => {
                type $T = f16;
                $what
            }
            Wire::BF16 => {
                type $T = bf16;
                $what
            }
            _ => {
                type $T = f32;
                $what
            }
        }
    };
}

/// A gradient where it lies.
pub(crate) fn gradient(at: usize, data: &TensorData) -> Result<Gradient<'_>> {
    let lent =
        of_type!(known_type("a gradient", data)?, T => data.as_slice::<T>().map(|values| Gradient::new(at, values)));
    lent.map_err(|error| Error::setup("reading a gradient", error))
}

/// Has an engine average a gradient.
pub(crate) fn average(buckets: &mut Buckets, at: usize, data: &TensorData) -> Result<()> {
    of_type!(known_type("a gradient", data)?, T => {
        let values = data.as_slice::<T>().map_err(|error| Error::setup("reading a gradient", error))?;
        buckets.gradient(at, values)
    })
}

/// What it came to, if it did.
pub(crate) fn averaged(buckets: &Buckets, at: usize, parameter: &Parameter) -> Result<Option<TensorData>> {
    of_type!(averaged_type(parameter), T => {
        let values = buckets.averaged::<T>(at)?;
        Ok(values.map(|values| TensorData::new(values.to_vec(), parameter.shape.as_slice())))
    })
}

/// A full parameter that was gathered, in the type in which it is computed with.
pub(crate) fn gathered(gathered: &Gathered<'_>, at: usize, shape: &[usize]) -> Result<TensorData> {
    of_type!(gathered.dtype(at)?, T => {
        let mut values = vec![T::default(); shape.iter().product()];
        gathered.copy_out(at, &mut values)?;
        Ok(TensorData::new(values, shape))
    })
}

/// Has an engine take this rank's rows of a full parameter.
pub(crate) fn load(engine: &mut Sharded, param: Param, data: &TensorData) -> Result<()> {
    of_type!(known_type("a parameter", data)?, T => {
        let full = data.as_slice::<T>().map_err(|error| Error::setup("reading a parameter", error))?;
        engine.load_full(param, full)
    })
}

/// A full parameter in the type in which ranks hold it. All ranks call this.
pub(crate) fn full(engine: &Sharded, param: Param, parameter: &Parameter) -> Result<TensorData> {
    of_type!(held_type(parameter), T => {
        let mut values = vec![T::default(); parameter.shape.iter().product()];
        engine.copy_full(param, &mut values)?;
        Ok(TensorData::new(values, parameter.shape.as_slice()))
    })
}

fn known_type(what: &'static str, data: &TensorData) -> Result<Wire> {
    let unknown = || Error::usage(what, "dtype", format!("{:?}", data.dtype()), "must be f64, f32, f16 or bf16");
    wire_type(data.dtype()).ok_or_else(unknown)
}
