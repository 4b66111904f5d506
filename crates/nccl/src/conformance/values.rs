//! What ranks give, and what it makes together by arithmetic of the host. Small whole numbers, so that sums are exact in every type.

use phalanx_core::reduce::{combine, scale};
use phalanx_core::{Class, DType, ReduceOp};

use super::same;

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

/// That bytes are what so many ranks' elements make together. Averages of floats may be a few steps of the last bit beside it: NCCL multiplies
/// what each rank gives by the part that one has of all, and rounds that part, the products and every sum. Parts of a power of two are exact.
pub(super) fn agree(
    got: &[u8],
    expected: &[u8],
    (op, dtype, size): (ReduceOp, DType, usize),
    what: impl FnOnce() -> String,
) -> Result<(), String> {
    let width = match dtype.class() {
        _ if op != ReduceOp::Avg || size.is_power_of_two() => None,
        Class::Float => Some(dtype.byte_len()),
        Class::Complex => Some(dtype.byte_len() / 2),
        _ => None,
    };
    let Some(width) = width.filter(|_| got.len() == expected.len()) else { return same(got, expected, what) };
    // Numbers of one sign are in the order of their bits.
    let bits = |element: &[u8]| element.iter().rev().fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
    // Each rounding is of half a step up to a whole one, of which there are the part, a product, the sums and what is expected.
    let steps = size as u64 + 2;
    let is_off = |(got, expected): (&[u8], &[u8])| bits(got).abs_diff(bits(expected)) > steps;
    match got.chunks_exact(width).zip(expected.chunks_exact(width)).position(is_off) {
        Some(at) => {
            Err(format!("{}: number {at} is more than {steps} steps of its last bit from what it must be", what()))
        }
        None => Ok(()),
    }
}

/// How many elements each rank has where they have not all as many.
pub(super) fn counts(size: usize) -> Vec<usize> {
    (0..size).map(|rank| rank % 3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number as its type has it, and its bytes.
    fn rounded(dtype: DType, value: f64) -> (f64, Vec<u8>) {
        match dtype {
            DType::F32 => (f64::from(value as f32), (value as f32).to_le_bytes().to_vec()),
            DType::F16 => (half::f16::from_f64(value).to_f64(), half::f16::from_f64(value).to_le_bytes().to_vec()),
            DType::BF16 => (half::bf16::from_f64(value).to_f64(), half::bf16::from_f64(value).to_le_bytes().to_vec()),
            _ => (value, value.to_le_bytes().to_vec()),
        }
    }

    /// What NCCL makes an average of.
    fn averaged(dtype: DType, size: usize, len: usize) -> Vec<u8> {
        let round = |value| rounded(dtype, value).0;
        let part = round(1.0 / size as f64);
        let sum = |at: usize| {
            let products = (0..size).map(|rank| round(part * (1 + (rank * 3 + at) % 4) as f64));
            products.reduce(|sum, next| round(sum + next)).unwrap_or_default()
        };
        (0..len).flat_map(|at| rounded(dtype, sum(at)).1).collect()
    }

    fn agrees(got: &[u8], op: ReduceOp, dtype: DType, size: usize) -> bool {
        let expected = joined(op, dtype, size, 4).expect("a reduction");
        agree(got, &expected, (op, dtype, size), String::new).is_ok()
    }

    #[test]
    fn averages_that_are_rounded_on_the_way_agree() {
        let mut differ = 0;
        for (dtype, size) in [DType::F64, DType::F32, DType::F16, DType::BF16]
            .into_iter()
            .flat_map(|dtype| (1..=17).map(move |size| (dtype, size)))
        {
            let got = averaged(dtype, size, 4);
            assert!(agrees(&got, ReduceOp::Avg, dtype, size), "{dtype} of {size}");
            differ += u32::from(joined(ReduceOp::Avg, dtype, size, 4) != Ok(got));
        }
        assert!(differ > 4, "{differ}");
    }

    #[test]
    fn what_is_further_off_or_exact_elsewhere_does_not_agree() {
        let changed = |op, dtype: DType, size, steps: u8| {
            let mut bytes = joined(op, dtype, size, 4).expect("a reduction");
            bytes[dtype.byte_len()] ^= steps;
            agrees(&bytes, op, dtype, size)
        };
        assert!(changed(ReduceOp::Avg, DType::F32, 3, 1) && changed(ReduceOp::Avg, DType::Complex64, 3, 1));
        assert!(!changed(ReduceOp::Avg, DType::F32, 3, 0x80) && !changed(ReduceOp::Avg, DType::BF16, 3, 0x80));
        assert!(!changed(ReduceOp::Avg, DType::F32, 4, 1) && !changed(ReduceOp::Avg, DType::I32, 3, 1));
        assert!(!changed(ReduceOp::Sum, DType::F32, 3, 1));
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let sum = joined(ReduceOp::Sum, dtype, 3, 4).expect("a reduction");
            assert!(!agrees(&sum, ReduceOp::Avg, dtype, 3) && !agrees(&sum[..8], ReduceOp::Avg, dtype, 3), "{dtype}");
        }
    }
}
