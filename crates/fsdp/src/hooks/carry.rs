//! Carries out what a hook says: from gradients to its wire and back. What travels is the hook's to decide.

use phalanx_core::backend::Buffers;
use phalanx_core::{Counts, DType, Error, Group, Op, ReduceOp, Result};

use super::{GradientHook, Size, Wire};
use crate::arena::Arena;
use crate::flight::Flight;
use crate::memory::Class;

/// Packs gradients and begins to send them. What travels is told, as the hook may say something else the next time it is asked.
pub(crate) fn send(
    hook: &mut dyn GradientHook,
    (unit, mark): (usize, usize),
    size: Size,
    gradients: &[f32],
    group: &Group,
    arena: &mut Arena,
) -> Result<(Wire, Flight)> {
    let wire = hook.wire(size);
    if !size.is_sharded && matches!(wire, Wire::ReduceScatter(_) | Wire::AllToAll(_)) {
        let expected = "must be all_reduce or all_gather where every rank gets all";
        return Err(Error::usage("GradientHook::wire", "wire", format!("{wire:?}"), expected));
    }
    let (op, dtype, each) = match wire {
        Wire::AllReduce(dtype) => {
            (Op::AllReduce { count: size.input_len(), reduce: ReduceOp::Sum }, dtype, size.input_len())
        }
        Wire::ReduceScatter(dtype) => {
            (Op::ReduceScatter { counts: Counts::Even(size.len), reduce: ReduceOp::Sum }, dtype, size.input_len())
        }
        Wire::AllToAll(byte_len) => {
            let counts = Counts::Even(byte_len);
            (Op::AllToAll { give: counts.clone(), take: counts }, DType::U8, byte_len * size.ranks)
        }
        Wire::AllGather(byte_len) => {
            (Op::AllGather { counts: Counts::Even(byte_len) }, DType::U8, byte_len * size.ranks)
        }
    };
    let mut buffer = arena.take(Class::Reducing, each * dtype.byte_len())?;
    let packed = match wire {
        Wire::AllGather(byte_len) => &mut buffer.as_bytes_mut()[size.rank * byte_len..(size.rank + 1) * byte_len],
        _ => buffer.as_bytes_mut(),
    };
    hook.pack(unit, size, gradients, packed);
    if matches!(wire, Wire::AllToAll(_)) {
        let output = arena.take(Class::Reducing, buffer.byte_len())?;
        let buffers = Buffers { input: Some(buffer), output };
        return Ok((wire, Flight::begin_with(group, mark, (op, dtype), buffers)?));
    }
    Ok((wire, Flight::begin(group, mark, (op, dtype), buffer)?))
}

/// Unpacks what came, and takes the buffers back.
pub(crate) fn receive(
    hook: &mut dyn GradientHook,
    unit: usize,
    size: Size,
    (wire, buffers): (Wire, Buffers),
    reduced: &mut [f32],
    arena: &mut Arena,
) {
    let Buffers { input, output } = buffers;
    let came = match wire {
        Wire::ReduceScatter(dtype) => {
            &output.as_bytes()[size.own().start * dtype.byte_len()..size.own().end * dtype.byte_len()]
        }
        _ => output.as_bytes(),
    };
    hook.unpack(unit, size, came, reduced);
    input.into_iter().chain([output]).for_each(|buffer| arena.give(Class::Reducing, buffer));
}
