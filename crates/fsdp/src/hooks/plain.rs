//! The hooks that change no element but by the two divisions around the sum.

use phalanx_core::DType;

use super::{GradientHook, Size, Wire};
use crate::Factors;

/// The sum of all ranks' gradients, divided in two steps; a sharded unit's rank takes its row of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllReduce;

/// The sum of all ranks' gradients, of which each rank gets its row, divided in two steps. Of a bucket each gets all.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReduceScatter;

impl GradientHook for AllReduce {
    fn wire(&self, _: Size) -> Wire {
        Wire::AllReduce(DType::F32)
    }

    fn pack(&mut self, _: usize, size: Size, gradients: &[f32], wire: &mut [u8]) {
        pack(size, gradients, wire);
    }

    fn unpack(&mut self, _: usize, size: Size, wire: &[u8], reduced: &mut [f32]) {
        unpack(size, &wire[size.own().start * ELEMENT..size.own().end * ELEMENT], reduced);
    }

    fn on_devices(&self) -> Option<DType> {
        Some(DType::F32)
    }
}

impl GradientHook for ReduceScatter {
    fn wire(&self, size: Size) -> Wire {
        if size.is_sharded { Wire::ReduceScatter(DType::F32) } else { Wire::AllReduce(DType::F32) }
    }

    fn pack(&mut self, _: usize, size: Size, gradients: &[f32], wire: &mut [u8]) {
        pack(size, gradients, wire);
    }

    fn unpack(&mut self, _: usize, size: Size, wire: &[u8], reduced: &mut [f32]) {
        unpack(size, wire, reduced);
    }

    fn on_devices(&self) -> Option<DType> {
        Some(DType::F32)
    }
}

fn pack(size: Size, gradients: &[f32], wire: &mut [u8]) {
    let before = Factors::two_steps(size.ranks as f64).before as f32;
    let wire: &mut [f32] = bytemuck::cast_slice_mut(wire);
    wire.iter_mut().zip(gradients).for_each(|(to, from)| *to = from / before);
}

fn unpack(size: Size, wire: &[u8], reduced: &mut [f32]) {
    let after = Factors::two_steps(size.ranks as f64).after as f32;
    let wire: &[f32] = bytemuck::cast_slice(wire);
    reduced.iter_mut().zip(wire).for_each(|(to, from)| *to = from / after);
}

const ELEMENT: usize = size_of::<f32>();
