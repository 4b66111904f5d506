//! What ranks give, and what it makes together by arithmetic of the host. Small whole numbers, so that sums are exact in every type.

use phalanx_core::reduce::{combine, scale};
use phalanx_core::{DType, ReduceOp};

/// What scaled sums scale by.
pub(super) const FACTOR: f64 = 0.5;

/// Small whole numbers as elements of a type: sums of a few of them are exact in each.
pub fn elements(dtype: DType, values: &[i64]) -> Vec<u8> {
    let one = |value: i64| -> Vec<u8> {
        match dtype {
            DType::F64 => (value as f64).to_le_bytes().to_vec(),
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f64(value as f64).to_le_bytes().to_vec(),
            DType::BF16 => half::bf16::from_f64(value as f64).to_le_bytes().to_vec(),
            DType::Complex64 => [value as f32, -(value as f32)].iter().flat_map(|part| part.to_le_bytes()).collect(),
            DType::Complex128 => [value as f64, -(value as f64)].iter().flat_map(|part| part.to_le_bytes()).collect(),
            DType::Bool => vec![u8::from(value % 2 != 0)],
            _ => value.to_le_bytes()[..dtype.byte_len()].to_vec(),
        }
    };
    values.iter().flat_map(|&value| one(value)).collect()
}

/// What a rank gives.
pub(super) fn given(dtype: DType, rank: usize, len: usize) -> Vec<u8> {
    let value = |at: usize| (1 + (rank * 3 + at) % 4) as i64;
    elements(dtype, &(0..len).map(value).collect::<Vec<_>>())
}

/// What all ranks' elements make together.
pub(super) fn joined(op: ReduceOp, dtype: DType, size: usize, len: usize) -> Result<Vec<u8>, String> {
    let mut parts: Vec<Vec<u8>> = (0..size).map(|rank| given(dtype, rank, len)).collect();
    if op == ReduceOp::PreMulSum {
        for part in &mut parts {
            scale(dtype, part, &FACTOR.into()).map_err(|error| error.to_string())?;
        }
    }
    let mut into = vec![0; len * dtype.byte_len()];
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    combine(op, dtype, &mut into, &parts).map_err(|error| error.to_string())?;
    Ok(into)
}

/// How many elements each rank has where they have not all as many.
pub(super) fn counts(size: usize) -> Vec<usize> {
    (0..size).map(|rank| rank % 3).collect()
}
