//! The search for NaN in what goes into an operation, for groups that ask for it.

use std::ops::Range;

use crate::{DType, Error, Layout, Op, OpKind, Result};

/// That no element is a NaN that this rank, by its number in the world, gives to `op`. The buffers have been found to be of the right lengths.
pub(super) fn check(
    op: &Op,
    dtype: DType,
    (layout, world_rank): (&Layout, usize),
    input: Option<&[u8]>,
    output: &[u8],
) -> Result<()> {
    let (argument, given) = match input {
        Some(input) => ("input", input),
        None => ("data", &output[given_in_place(op, layout, dtype.byte_len(), output.len())]),
    };
    match first(dtype, given) {
        None => Ok(()),
        Some(at) => Err(found(op.kind(), argument, format!("element {at}"), world_rank)),
    }
}

/// The same of what this rank gives in several places, of which the error names one, before they are joined and have none.
pub(super) fn check_entries<'a>(
    (kind, argument): (OpKind, &'static str),
    dtype: DType,
    world_rank: usize,
    entries: impl Iterator<Item = &'a [u8]>,
) -> Result<()> {
    let nan = entries.enumerate().find_map(|(entry, given)| Some((entry, first(dtype, given)?)));
    match nan {
        None => Ok(()),
        Some((entry, at)) => Err(found(kind, argument, format!("element {at} of entry {entry}"), world_rank)),
    }
}

fn found(kind: OpKind, argument: &'static str, place: String, world_rank: usize) -> Error {
    let value = format!("NaN at {place} on rank {world_rank}");
    Error::usage(kind, argument, value, "must be numbers, as this group checks")
}

/// The bytes of the one buffer of an operation in place that this rank gives.
fn given_in_place(op: &Op, layout: &Layout, unit: usize, byte_len: usize) -> Range<usize> {
    match op {
        Op::Broadcast { root, .. } if *root != layout.rank() => 0..0,
        Op::AllGather { counts } => {
            let start: usize = (0..layout.rank()).map(|rank| counts.of(rank)).sum();
            start * unit..(start + counts.of(layout.rank())) * unit
        }
        _ => 0..byte_len,
    }
}

/// The place of the first NaN.
fn first(dtype: DType, bytes: &[u8]) -> Option<usize> {
    let above = |sign_free, infinity| move |bits| bits & sign_free > infinity;
    match dtype {
        DType::F64 => find(bytes, u64::from_ne_bytes, |bits| bits & (u64::MAX >> 1) > 0x7FF0 << 48),
        DType::F32 => find(bytes, u32::from_ne_bytes, |bits| bits & (u32::MAX >> 1) > 0x7F80 << 16),
        DType::F16 => find(bytes, u16::from_ne_bytes, |bits| bits & 0x7FFF > 0x7C00),
        DType::BF16 => find(bytes, u16::from_ne_bytes, |bits| bits & 0x7FFF > 0x7F80),
        DType::F8E4M3FN => find(bytes, u8::from_ne_bytes, above(0x7F, 0x7E)),
        DType::F8E5M2 => find(bytes, u8::from_ne_bytes, above(0x7F, 0x7C)),
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => find(bytes, u8::from_ne_bytes, |bits| bits == 0x80),
        DType::Complex64 => first(DType::F32, bytes).map(|at| at / 2),
        DType::Complex128 => first(DType::F64, bytes).map(|at| at / 2),
        _ => None,
    }
}

/// The place of the first of `N` bytes that are a NaN: by blocks without a branch inside, then within the one that has it.
fn find<const N: usize, B>(bytes: &[u8], bits: impl Fn([u8; N]) -> B, is_nan: impl Fn(B) -> bool) -> Option<usize> {
    let (elements, _) = bytes.as_chunks::<N>();
    let has_nan = |block: &[[u8; N]]| block.iter().fold(false, |found, element| found | is_nan(bits(*element)));
    let block = elements.chunks(BLOCK).position(has_nan)?;
    let within = elements[block * BLOCK..].iter().position(|element| is_nan(bits(*element)))?;
    Some(block * BLOCK + within)
}

/// Elements that are looked at together.
const BLOCK: usize = 1024;

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use num_complex::Complex;

    use super::*;
    use crate::{Counts, Element, F8E4M3Fnuz, F8E5M2Fnuz};

    /// That of a long run of `numbers`, one `nan` is found wherever it is, and none without it.
    fn found<T: Element>(numbers: &[T], nans: &[T]) {
        let mut data: Vec<T> = numbers.iter().copied().cycle().take(3 * BLOCK + 7).collect();
        assert_eq!(first(T::DTYPE, bytemuck::cast_slice(&data)), None, "{}", T::DTYPE);
        for (at, nan) in [3 * BLOCK + 6, BLOCK, BLOCK - 1, 1, 0].into_iter().zip(nans.iter().cycle()) {
            data[at] = *nan;
            assert_eq!(first(T::DTYPE, bytemuck::cast_slice(&data)), Some(at), "{nan:?}");
        }
    }

    #[test]
    fn every_nan_of_every_float_is_found_and_nothing_else() {
        found(&[1.5, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE], &[f64::NAN, -f64::NAN]);
        found(&[f32::MAX, f32::INFINITY, f32::NEG_INFINITY], &[f32::NAN, f32::from_bits(0x7F80_0001)]);
        found(&[f16::INFINITY, f16::MIN, f16::NEG_INFINITY], &[f16::NAN, f16::from_bits(0xFC01)]);
        found(&[bf16::INFINITY, bf16::MIN, bf16::NEG_INFINITY], &[bf16::NAN, bf16::from_bits(0xFF81)]);
        let complex = |re, im| Complex::<f32>::new(re, im);
        found(&[complex(0.0, f32::INFINITY)], &[complex(0.0, f32::NAN), complex(f32::NAN, 0.0)]);
        found(&[Complex::new(0.0, f64::INFINITY)], &[Complex::new(0.0, f64::NAN)]);
        let bits = float8::F8E4M3::from_bits;
        found(&[bits(0x7E), bits(0xFE), bits(0x80)], &[bits(0x7F), bits(0xFF)]);
        let bits = float8::F8E5M2::from_bits;
        found(&[bits(0x7C), bits(0xFC), bits(0x80)], &[bits(0x7D), bits(0xFF)]);
        found(&[F8E4M3Fnuz(0x7F), F8E4M3Fnuz(0xFF)], &[F8E4M3Fnuz(0x80)]);
        found(&[F8E5M2Fnuz(0x7F), F8E5M2Fnuz(0xFF)], &[F8E5M2Fnuz(0x80)]);
        found(&[u32::MAX, 0x7FC0_0000], &[]);
    }

    #[test]
    fn what_a_rank_does_not_give_is_not_looked_at() {
        let layout = Layout::one_host(1, 3).unwrap();
        let with_nan = |op: &Op, at: usize| {
            let mut data = [0_f32; 6];
            data[at] = f32::NAN;
            check(op, DType::F32, (&layout, layout.rank()), None, bytemuck::cast_slice(&data))
                .map_err(|error| error.to_string())
        };
        for (at, fails) in [(1, false), (2, true), (3, true), (4, false)] {
            let end = with_nan(&Op::AllGather { counts: Counts::Even(2) }, at);
            assert_eq!(end.is_err(), fails, "{at}");
        }
        assert_eq!(with_nan(&Op::Broadcast { count: 6, root: 0 }, 0), Ok(()));
        let expected = "broadcast: data is NaN at element 5 on rank 1, must be numbers, as this group checks";
        assert_eq!(with_nan(&Op::Broadcast { count: 6, root: 1 }, 5), Err(expected.to_owned()));
    }
}
