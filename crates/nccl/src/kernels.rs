//! The kernels by number, each with its plain Rust twin: what the simulator runs, and what a device's kernel must equal.

use phalanx_core::DType;

use crate::api::KernelId;

/// Multiplies `f32` elements: written memory, a factor.
pub const SCALE: KernelId = KernelId(1);
/// Adds `f32` elements: written memory, read memory of the same length.
pub const ADD: KernelId = KernelId(2);
/// Sets one byte to whether there is a NaN: the byte, read memory, the element type's number.
pub const FIND_NAN: KernelId = KernelId(3);

/// See [`SCALE`].
pub fn scale(data: &mut [u8], factor: f32) {
    for element in data.chunks_exact_mut(4) {
        let value = float(element) * factor;
        element.copy_from_slice(&value.to_le_bytes());
    }
}

/// See [`ADD`].
pub fn add(into: &mut [u8], from: &[u8]) {
    for (element, other) in into.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
        let value = float(element) + float(other);
        element.copy_from_slice(&value.to_le_bytes());
    }
}

/// See [`FIND_NAN`].
pub fn has_nan(dtype: DType, data: &[u8]) -> bool {
    let bits = |exponent: u64, mantissa: u64| {
        data.chunks_exact(dtype.byte_len()).any(|element| {
            let mut bytes = [0; 8];
            bytes[..element.len().min(8)].copy_from_slice(&element[..element.len().min(8)]);
            let bits = u64::from_le_bytes(bytes);
            bits & exponent == exponent && bits & mantissa != 0
        })
    };
    match dtype {
        DType::F32 => bits(0x7f80_0000, 0x007f_ffff),
        DType::F64 => bits(0x7ff0_0000_0000_0000, 0x000f_ffff_ffff_ffff),
        DType::F16 => bits(0x7c00, 0x03ff),
        DType::BF16 => bits(0x7f80, 0x007f),
        DType::Complex64 => has_nan(DType::F32, data),
        DType::Complex128 => has_nan(DType::F64, data),
        _ => false,
    }
}

fn float(bytes: &[u8]) -> f32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[..4]);
    f32::from_le_bytes(four)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn elements_are_scaled_and_added() {
        let mut data = floats(&[1.0, -2.0]);
        scale(&mut data, 0.5);
        add(&mut data, &floats(&[1.0, 1.0]));
        assert_eq!(data, floats(&[1.5, 0.0]));
    }

    #[test]
    fn infinities_are_no_nan() {
        assert!(
            !has_nan(DType::F32, &floats(&[f32::INFINITY, 1.0])) && has_nan(DType::F32, &floats(&[1.0, -f32::NAN]))
        );
        assert!(has_nan(DType::BF16, &[0xc1, 0x7f]) && !has_nan(DType::BF16, &[0x80, 0x7f]));
        assert!(!has_nan(DType::I32, &[0xff; 4]));
    }
}
