//! What is saved: some elements of a tensor, which one rank holds, and how far training has come.

use std::collections::BTreeMap;

use safetensors::Dtype;

/// How far training has come, in words of the caller's: data position, how many steps the optimizer has made. A checkpoint has one for all
/// ranks: what each has of its own, such as a random state, it saves as its elements of a tensor.
pub type Progress = BTreeMap<String, String>;

/// The elements of a tensor that one rank saves.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The tensor's name.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its full shape.
    pub shape: Vec<usize>,
    /// Which element of the flattened tensor is the first.
    pub start: usize,
    /// The elements, in the byte order of safetensors: little-endian.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Elements of `f32`.
    pub fn floats(name: impl Into<String>, shape: &[usize], start: usize, values: &[f32]) -> Piece {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Piece { name: name.into(), dtype: Dtype::F32, shape: shape.to_vec(), start, bytes }
    }

    /// Why it could be written and not be loaded, if so.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.name == "__metadata__" {
            return Err("safetensors keeps this name for itself".to_owned());
        }
        let (Some(size), Some(full)) = (element_len(self.dtype), byte_len(self.dtype, &self.shape)) else {
            return Err(format!("{:?} of {:?} has no size in bytes", self.dtype, self.shape));
        };
        let (len, start) = (self.bytes.len(), self.start);
        let room = full.saturating_sub(start.saturating_mul(size));
        if !len.is_multiple_of(size) || len > room {
            let must = format!("whole elements of {size} bytes and at most {room}");
            return Err(format!("{len} bytes from element {start} on, must be {must}"));
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / element_len(self.dtype).unwrap_or(1)
    }
}

/// Bytes of an element; none for types of fewer than 8 bits.
pub(crate) fn element_len(dtype: Dtype) -> Option<usize> {
    dtype.bitsize().is_multiple_of(8).then(|| dtype.bitsize() / 8)
}

/// How many elements a tensor of this shape has, if that is a number.
pub(crate) fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, dimension| product.checked_mul(*dimension))
}

/// How many bytes a tensor has, if that is a number.
pub(crate) fn byte_len(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    element_count(shape)?.checked_mul(element_len(dtype)?)
}
