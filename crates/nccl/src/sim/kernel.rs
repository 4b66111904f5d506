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
            kernel if kernels::measured(kernel).is_some() => "measure",
            kernel if kernels::multiplied(kernel).is_some() => "multiply",
            kernel if kernels::joined(kernel).is_some() => "join",
            kernels::Fold::KERNEL => "fold",
            kernels::Norm::KERNEL => "norm",
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
            (
                kernel,
                [Write(into), parts @ .., Number(count), Number(elements), Number(way), Read(place), Number(bits)],
            ) if kernels::joined(kernel).is_some() => {
                let bytes = |part: &Operand| if let Read(bytes) = part { Some(bytes.clone()) } else { None };
                let Some(parts) = parts.iter().map(bytes).collect::<Option<Vec<_>>>() else { return false };
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                kernels::join(kernel, into, &parts, place, [*count, *elements, *way, *bits])
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
            _ => match run_norm(kernel, operands) {
                Some(is_done) => is_done,
                None => self.find(kernel).is_some_and(|(_, _, twin)| twin(operands)),
            },
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

/// Runs a kernel of norms and what multiplies; none where it is another, or gets something else.
fn run_norm(kernel: KernelId, operands: &mut [Operand]) -> Option<bool> {
    use Operand::{Number, Read, Write};
    let put = |values: &[f64], into: &mut Vec<u8>| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let fits = bytes.len() == into.len();
        *into = if fits { bytes } else { std::mem::take(into) };
        fits
    };
    Some(match (kernel, operands) {
        (kernel, [Read(data), Read(table), Write(parts), Number(a), Number(b), Number(c), Number(p)])
            if kernels::measured(kernel).is_some() =>
        {
            kernels::measure(kernel, [data, table], parts, [*a, *b, *c, *p])
        }
        (kernel, [Write(data), Read(table), Read(factor), Number(a), Number(b), Number(c), Number(d)])
            if kernels::multiplied(kernel).is_some() =>
        {
            kernels::multiply(kernel, data, [table, factor], [*a, *b, *c, *d])
        }
        (kernels::Fold::KERNEL, [Read(parts), Number(count), Number(p), Write(sum)]) => {
            kernels::fold(parts, *count, *p).is_some_and(|all| put(&[all], sum))
        }
        (kernels::Norm::KERNEL, [Read(sums), Number(ranks), Number(p), Number(most), Write(norm)]) => {
            kernels::norm(sums, [*ranks, *p, *most]).is_some_and(|values| put(&values, norm))
        }
        _ => return None,
    })
}

fn is_nan_check(kernel: KernelId) -> bool {
    nan::KERNELS.iter().any(|(known, _)| *known == kernel)
}
