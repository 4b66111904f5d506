//! The hooks that change no element but by its type and the two divisions around the sum: gradients are cast to the type in which they travel,
//! divided in it before and after, and cast back.

use phalanx_core::DType;

use super::{GradientHook, Size, Wire};
use crate::Factors;
use crate::cast::{Real, convert, divide, slice, with_real};

/// What they all do.
#[derive(Clone, Copy, Debug)]
struct TwoSteps {
    dtype: DType,
    /// Whether a sharded unit's ranks get all of the sum, of which each takes its row.
    gives_all: bool,
}

impl TwoSteps {
    fn wire(self, size: Size) -> Wire {
        match size.is_sharded && !self.gives_all {
            true => Wire::ReduceScatter(self.dtype),
            false => Wire::AllReduce(self.dtype),
        }
    }

    fn pack(self, size: Size, gradients: &[f32], wire: &mut [u8]) {
        convert(bytemuck::cast_slice(gradients), DType::F32, wire, self.dtype);
        divide(wire, self.dtype, Factors::two_steps(size.ranks as f64).before);
    }

    fn unpack(self, size: Size, wire: &[u8], reduced: &mut [f32]) {
        let own = if self.gives_all { size.own() } else { 0..size.len };
        let after = Factors::two_steps(size.ranks as f64).after;
        // The division is the type's own: rounded to it before the element is widened.
        with_real!(self.dtype, T => {
            for (to, from) in reduced.iter_mut().zip(&slice::<T>(wire)[own]) {
                *to = from.divided(after).widen() as f32;
            }
        });
    }
}

macro_rules! two_steps {
    ($($(#[$doc:meta])* $Hook:ident: $two_steps:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $Hook;

        impl GradientHook for $Hook {
            fn wire(&self, size: Size) -> Wire {
                $two_steps.wire(size)
            }

            fn pack(&mut self, _: usize, size: Size, gradients: &[f32], wire: &mut [u8]) {
                $two_steps.pack(size, gradients, wire);
            }

            fn unpack(&mut self, _: usize, size: Size, wire: &[u8], reduced: &mut [f32]) {
                $two_steps.unpack(size, wire, reduced);
            }

            fn on_devices(&self) -> Option<DType> {
                Some($two_steps.dtype)
            }
        }
    )*};
}

two_steps! {
    /// The sum of all ranks' gradients, divided in two steps; a sharded unit's rank takes its row of it.
    AllReduce: TwoSteps { dtype: DType::F32, gives_all: true };
    /// The sum of all ranks' gradients, of which each rank gets its row, divided in two steps. Of a bucket each gets all.
    ReduceScatter: TwoSteps { dtype: DType::F32, gives_all: false };
    /// Gradients travel as IEEE 754 binary16.
    F16: TwoSteps { dtype: DType::F16, gives_all: false };
    /// Gradients travel as the upper half of `f32`.
    Bf16: TwoSteps { dtype: DType::BF16, gives_all: false };
}
