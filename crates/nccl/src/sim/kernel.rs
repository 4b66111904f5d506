//! Kernels as Rust functions, with the contract of those that a device runs.

use super::memory::Memory;
use crate::api::{Argument, KernelId};
use crate::kernels;

/// What a kernel is called.
pub(super) fn name(kernel: KernelId) -> &'static str {
    match kernel {
        kernels::SCALE => "scale",
        kernels::ADD => "add",
        _ => "a kernel that is not known",
    }
}

/// Runs it; false where its arguments are not those that it takes.
pub(super) fn run(kernel: KernelId, arguments: &[Argument], memory: &mut Memory) -> bool {
    match (kernel, arguments) {
        (kernels::SCALE, [Argument::Write(data), Argument::Real(factor)]) => {
            kernels::scale(memory.write(*data), *factor);
            true
        }
        (kernels::ADD, [Argument::Write(into), Argument::Read(from)]) if into.byte_len() == from.byte_len() => {
            let from = memory.read(*from).to_vec();
            kernels::add(memory.write(*into), &from);
            true
        }
        _ => false,
    }
}
