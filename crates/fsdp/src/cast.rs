//! Real numbers of one width into those of another, over bytes whose type is known by number. No reduction happens here.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use phalanx_core::DType;

/// A float that parameters and gradients may consist of.
pub(crate) trait Real: bytemuck::Pod {
    fn widen(self) -> f64;
    fn narrow(wide: f64) -> Self;
    /// Divides as the type does: the 16-bit ones as `f32`, rounded once.
    fn divided(self, by: f64) -> Self;
}

/// Runs an expression with `T` the Rust type of a real dtype. Any other was refused when the layout was made.
macro_rules! with_real {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            phalanx_core::DType::F64 => {
                type $T = f64;
                $body
            }
            phalanx_core::DType::F16 => {
                type $T = half::f16;
                $body
            }
            phalanx_core::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            _ => {
                type $T = f32;
                $body
            }
        }
    };
}

pub(crate) use with_real;

/// Writes the elements of `source` to `target`, rounded to the nearest where that is narrower. Both hold equally many.
pub(crate) fn convert(source: &[u8], from: DType, target: &mut [u8], to: DType) {
    match (from, to) {
        _ if from == to => target.copy_from_slice(source),
        (DType::F32, DType::F16) => slice_mut::<f16>(target).convert_from_f32_slice(slice(source)),
        (DType::F32, DType::BF16) => slice_mut::<bf16>(target).convert_from_f32_slice(slice(source)),
        (DType::F16, DType::F32) => slice::<f16>(source).convert_to_f32_slice(slice_mut(target)),
        (DType::BF16, DType::F32) => slice::<bf16>(source).convert_to_f32_slice(slice_mut(target)),
        _ => with_real!(from, From => with_real!(to, To => each::<From, To>(slice(source), slice_mut(target)))),
    }
}

/// Adds the elements of `source`, cast to `to`, to those of `target`.
pub(crate) fn add(source: &[u8], from: DType, target: &mut [u8], to: DType) {
    with_real!(from, From => with_real!(to, To => {
        for (sum, more) in slice_mut::<To>(target).iter_mut().zip(slice::<From>(source)) {
            *sum += <To as Real>::narrow(more.widen());
        }
    }));
}

/// Divides every element, which by one changes none.
pub(crate) fn divide(data: &mut [u8], dtype: DType, by: f64) {
    if by == 1.0 {
        return;
    }
    with_real!(dtype, T => slice_mut::<T>(data).iter_mut().for_each(|element| *element = element.divided(by)));
}

/// Bytes as elements; they are aligned, because buffers are and layouts keep to it.
pub(crate) fn slice<T: bytemuck::Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}

/// The same to write.
pub(crate) fn slice_mut<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

fn each<From: Real, To: Real>(source: &[From], target: &mut [To]) {
    for (to, from) in target.iter_mut().zip(source) {
        *to = To::narrow(from.widen());
    }
}

/// The nearest `f32` toward zero, its last bit set where that is not exact: rounded from there to fewer bits it is rounded once.
/// `half` itself drops the lower 32 bits of an `f64`, and with them which side of a tie it is on.
fn to_odd(wide: f64) -> f32 {
    let near = wide as f32;
    if f64::from(near) == wide || !near.is_finite() {
        return near;
    }
    let is_beyond = f64::from(near).abs() > wide.abs();
    f32::from_bits((near.to_bits() - u32::from(is_beyond)) | 1)
}

macro_rules! real {
    ($($T:ty: $widen:expr, $narrow:expr, $divided:expr;)*) => {$(
        impl Real for $T {
            #[inline]
            fn widen(self) -> f64 {
                ($widen)(self)
            }

            #[inline]
            fn narrow(wide: f64) -> $T {
                ($narrow)(wide)
            }

            #[inline]
            fn divided(self, by: f64) -> $T {
                ($divided)(self, by)
            }
        }
    )*};
}

real! {
    f64: |x| x, |x| x, |x: f64, by| x / by;
    f32: f64::from, |x| x as f32, |x: f32, by| x / by as f32;
    f16: f64::from, |x| f16::from_f32(to_odd(x)), |x: f16, by| f16::from_f32(x.to_f32() / by as f32);
    bf16: f64::from, |x| bf16::from_f32(to_odd(x)), |x: bf16, by| bf16::from_f32(x.to_f32() / by as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    const REALS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

    #[test]
    fn every_pair_of_types_rounds_to_the_nearest() {
        let values = [0.0, -0.0, 1.0, 1.0 + 1.0 / 512.0, 3.0e-5, -70000.0, f64::INFINITY];
        for (from, to) in REALS.iter().flat_map(|&from| REALS.map(|to| (from, to))) {
            let mut source = vec![0_u64; 7];
            let source = &mut bytemuck::cast_slice_mut(&mut source)[..7 * from.byte_len()];
            convert(bytemuck::cast_slice(&values), DType::F64, source, from);
            let mut target = vec![0_u64; 7];
            let target = &mut bytemuck::cast_slice_mut(&mut target)[..7 * to.byte_len()];
            convert(source, from, target, to);
            let held: Vec<f64> = with_real!(from, T => slice::<T>(source).iter().map(|x| x.widen()).collect());
            let wanted: Vec<f64> = with_real!(to, T => held.iter().map(|x| <T as Real>::narrow(*x).widen()).collect());
            let got: Vec<f64> = with_real!(to, T => slice::<T>(target).iter().map(|x| x.widen()).collect());
            assert_eq!(got, wanted, "{from} to {to}");
        }
    }

    #[test]
    fn what_is_just_beside_a_tie_is_rounded_to_its_side() {
        let beside = f64::from_bits(1_f64.to_bits() + 1) - 1.0;
        let ties = [(1.0 + 1.0 / 256.0, DType::BF16, 1.0 / 128.0), (1.0 + 1.0 / 2048.0, DType::F16, 1.0 / 1024.0)];
        for ((tie, to, step), sign) in ties.into_iter().flat_map(|tie| [1.0, -1.0].map(|sign| (tie, sign))) {
            for (wide, wanted) in [(tie - beside, 1.0), (tie, 1.0), (tie + beside, 1.0 + step)] {
                let mut narrow = [0_u16];
                convert(bytemuck::bytes_of(&(wide * sign)), DType::F64, bytemuck::bytes_of_mut(&mut narrow), to);
                let mut back = [0.0_f32];
                convert(bytemuck::bytes_of(&narrow), to, bytemuck::bytes_of_mut(&mut back), DType::F32);
                assert_eq!(f64::from(back[0]), wanted * sign, "{wide} as {to}");
            }
        }
        let ends = [1e300, f64::NEG_INFINITY, 1e-300, -0.0, f64::NAN].map(|x| <bf16 as Real>::narrow(x).to_f32());
        assert_eq!(ends[..4], [f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0]);
        assert!(ends[4].is_nan() && ends[3].is_sign_negative());
    }

    #[test]
    fn division_rounds_once_in_the_type() {
        let mut data = [f16::from_f32(1.0), f16::from_f32(100.0)];
        divide(bytemuck::cast_slice_mut(&mut data), DType::F16, 3.0);
        assert_eq!(data.map(f16::to_bits), [0x3555, 0x502b]);
    }

    #[test]
    fn sums_are_of_the_target_type() {
        let (mut sum, more) = ([1.0_f32, 2.0], [bf16::from_f32(0.5), bf16::from_f32(-4.0)]);
        add(bytemuck::cast_slice(&more), DType::BF16, bytemuck::cast_slice_mut(&mut sum), DType::F32);
        assert_eq!(sum, [1.5, -2.0]);
    }
}
