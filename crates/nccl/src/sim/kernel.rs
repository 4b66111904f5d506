//! Kernels as Rust functions, with the contract of those that a device runs: this crate's own, and a program's.

use std::fmt;
use std::sync::Arc;

use super::memory::Memory;
use crate::api::{Argument, KernelId};
use crate::kernels::{self, nan};

/// An argument as a kernel's twin gets it: memory as its bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operand {
    /// Memory that it reads.
    Read(Vec<u8>),
    /// Memory that it reads and writes.
    Write(Vec<u8>),
    /// A number.
    Number(u64),
    /// A factor.
    Real(f32),
}

/// A kernel of a program's own, which does what a device's would; false where its arguments are not those that it takes.
pub type Twin = Arc<dyn Fn(&mut [Operand]) -> bool + Send + Sync>;

/// The kernels of a program, by number.
#[derive(Clone, Default)]
pub(super) struct Twins(Vec<(KernelId, &'static str, Twin)>);

impl Twins {
    pub(super) fn add(&mut self, kernel: KernelId, name: &'static str, twin: Twin) {
        self.0.push((kernel, name, twin));
    }

    /// What a kernel is called.
    pub(super) fn name(&self, kernel: KernelId) -> &'static str {
        match kernel {
            kernels::SCALE => "scale",
            kernels::ADD => "add",
            kernel if kernels::pair(kernel).is_some() => "carry",
            kernel if is_nan_check(kernel) => "check for NaN",
            kernel => self.find(kernel).map_or("a kernel that is not known", |(_, name, _)| name),
        }
    }

    /// Runs it; false where its arguments are not those that it takes.
    pub(super) fn run(&self, kernel: KernelId, arguments: &[Argument], memory: &mut Memory) -> bool {
        let operand = |argument: &Argument| match argument {
            Argument::Read(span) => Operand::Read(memory.read(*span).to_vec()),
            Argument::Write(span) => Operand::Write(memory.read(*span).to_vec()),
            Argument::Number(number) => Operand::Number(*number),
            Argument::Real(real) => Operand::Real(*real),
        };
        let mut operands: Vec<Operand> = arguments.iter().map(operand).collect();
        let is_done = self.apply(kernel, &mut operands);
        for (argument, operand) in arguments.iter().zip(operands) {
            if let (Argument::Write(span), Operand::Write(bytes)) = (argument, operand) {
                memory.write(*span).copy_from_slice(&bytes);
            }
        }
        is_done
    }

    fn apply(&self, kernel: KernelId, operands: &mut [Operand]) -> bool {
        use Operand::{Number, Read, Real, Write};
        match (kernel, &mut *operands) {
            (kernels::SCALE, [Write(data), Real(factor)]) => {
                kernels::scale(data, *factor);
                true
            }
            (kernels::ADD, [Write(into), Read(from)]) if into.len() == from.len() => {
                kernels::add(into, from);
                true
            }
            (
                kernel,
                [Write(into), Read(from), Read(table), Number(a), Number(b), Number(c), Number(d), Real(divisor)],
            ) if kernels::pair(kernel).is_some() => {
                kernels::carry(kernel, into, [from, table], [*a, *b, *c, *d], *divisor)
            }
            (kernel, [Read(data), Number(count), Number(mask), Number(low), Number(high), Write(first)])
                if is_nan_check(kernel) =>
            {
                let before = first[..].try_into().map(u64::from_le_bytes).ok();
                let numbers = [*count, *mask, *low, *high];
                let found = before.and_then(|before| nan::look(kernel, data, numbers, before));
                let Some(found) = found else { return false };
                first.copy_from_slice(&found.to_le_bytes());
                true
            }
            _ => self.find(kernel).is_some_and(|(_, _, twin)| twin(operands)),
        }
    }

    fn find(&self, kernel: KernelId) -> Option<&(KernelId, &'static str, Twin)> {
        self.0.iter().find(|(known, _, _)| *known == kernel)
    }
}

impl fmt::Debug for Twins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(kernel, name, _)| (kernel, name))).finish()
    }
}

fn is_nan_check(kernel: KernelId) -> bool {
    nan::KERNELS.iter().any(|(known, _)| *known == kernel)
}
