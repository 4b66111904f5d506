//! The hooks that halve what travels: gradients cast to 16 bits, divided in two steps in that type, and cast back.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use phalanx_core::DType;

use super::{GradientHook, Size, Wire};
use crate::Factors;
use crate::cast::{divide, slice, slice_mut};

/// Gradients travel as IEEE 754 binary16.
#[derive(Clone, Copy, Debug, Default)]
pub struct F16;

/// Gradients travel as the upper half of `f32`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bf16;

macro_rules! half_hook {
    ($Hook:ty, $T:ty, $dtype:expr) => {
        impl GradientHook for $Hook {
            fn wire(&self, size: Size) -> Wire {
                if size.is_sharded { Wire::ReduceScatter($dtype) } else { Wire::AllReduce($dtype) }
            }

            fn pack(&mut self, _: usize, size: Size, gradients: &[f32], wire: &mut [u8]) {
                slice_mut::<$T>(wire).convert_from_f32_slice(gradients);
                divide(wire, $dtype, Factors::two_steps(size.ranks as f64).before);
            }

            fn unpack(&mut self, _: usize, size: Size, wire: &[u8], reduced: &mut [f32]) {
                // The division is the type's own: rounded to it before the element is widened.
                let after = Factors::two_steps(size.ranks as f64).after as f32;
                for (to, from) in reduced.iter_mut().zip(slice::<$T>(wire)) {
                    *to = <$T>::from_f32(from.to_f32() / after).to_f32();
                }
            }

            fn on_devices(&self) -> Option<DType> {
                Some($dtype)
            }
        }
    };
}

half_hook!(F16, f16, DType::F16);
half_hook!(Bf16, bf16, DType::BF16);
