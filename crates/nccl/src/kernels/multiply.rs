//! Stretches of elements times a factor, which may lie in memory of the device: nobody has to know it when this is launched.

use half::{bf16, f16};
use phalanx_core::DType;

use super::carry::{TYPES, code, widen};
use super::plan::tile;
use crate::api::{Argument, KernelId, Span};

/// What is multiplied in one launch.
#[derive(Clone, Copy, Debug)]
pub struct Multiply {
    /// Where the elements are.
    pub data: Span,
    /// The plan that says where there, in memory of the device: stretches without zeros after them.
    pub table: Span,
    /// What they are multiplied by.
    pub by: Factor,
    /// How many stretches the plan has.
    pub stretches: usize,
    /// How many tiles: all of them.
    pub tiles: u64,
}

/// What elements are multiplied by.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// This.
    Value(f64),
    /// The `f64` that lies there by then.
    At(Span),
}

impl Multiply {
    /// The kernel for elements of a type; none for types that it has not.
    pub fn kernel(dtype: DType) -> Option<KernelId> {
        Some(KernelId(FIRST | code(dtype)?))
    }

    /// What it is called in the program of the device.
    pub fn name(dtype: DType) -> String {
        format!("phalanx_multiply_{dtype}")
    }

    /// What the kernel is launched with.
    pub fn arguments(&self) -> [Argument; 7] {
        let (place, value) = match self.by {
            Factor::Value(value) => (Span::EMPTY, value),
            Factor::At(place) => (place, 1.0),
        };
        [
            Argument::Write(self.data),
            Argument::Read(self.table),
            Argument::Read(place),
            Argument::Number(value.to_bits()),
            Argument::Number(self.stretches as u64),
            Argument::Number(0),
            Argument::Number(self.tiles),
        ]
    }
}

/// The kernel's twin; false where its numbers reach past its memory. `numbers` are those of [`Multiply::arguments`], in order.
pub fn multiply(kernel: KernelId, data: &mut [u8], [table, factor]: [&[u8]; 2], numbers: [u64; 4]) -> bool {
    let Some(dtype) = multiplied(kernel) else { return false };
    let [value, stretches, first, tiles] = numbers;
    let Ok(stretches) = usize::try_from(stretches) else { return false };
    let by = match factor.first_chunk() {
        Some(bytes) => f64::from_ne_bytes(*bytes),
        None if factor.is_empty() => f64::from_bits(value),
        None => return false,
    };
    for number in first..first.saturating_add(tiles) {
        let Some((stretch, elements)) = tile(table, stretches, number) else { return false };
        let [start, end] = [elements.start, elements.end].map(|at| stretch.from + at * dtype.byte_len());
        let Some(bytes) = data.get_mut(start..end) else { return false };
        if by != 1.0 {
            let each = bytes.chunks_exact_mut(dtype.byte_len());
            each.for_each(|element| narrow(f64::from(widen(element, dtype)) * by, element, dtype));
        }
    }
    true
}

/// The type of a kernel that multiplies.
pub(crate) fn multiplied(kernel: KernelId) -> Option<DType> {
    TYPES.get(kernel.0.checked_sub(FIRST)? as usize).copied()
}

/// Rounds once.
fn narrow(wide: f64, into: &mut [u8], dtype: DType) {
    match dtype {
        DType::F16 => into.copy_from_slice(&f16::from_f32(to_odd(wide)).to_ne_bytes()),
        DType::BF16 => into.copy_from_slice(&bf16::from_f32(to_odd(wide)).to_ne_bytes()),
        _ => into.copy_from_slice(&(wide as f32).to_ne_bytes()),
    }
}

/// The nearest `f32` toward zero, its last bit set where that is not exact: rounded from there to fewer bits it is rounded once.
fn to_odd(wide: f64) -> f32 {
    let near = wide as f32;
    if f64::from(near) == wide || near.is_nan() {
        return near;
    }
    let is_beyond = f64::from(near).abs() > wide.abs();
    f32::from_bits((near.to_bits() - u32::from(is_beyond)) | 1)
}

const FIRST: u32 = 0x220;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Plan, Stretch, carry};

    #[test]
    fn elements_are_multiplied_and_rounded_once() {
        let mut random = fastrand::Rng::with_seed(4);
        for (dtype, by) in TYPES.into_iter().flat_map(|dtype| [0.0, 0.3, 1.0, 7e3, -2e-7].map(|by| (dtype, by))) {
            let (byte_len, count) = (dtype.byte_len(), 9000);
            let mut data = vec![0; count * byte_len + 4];
            for element in data.chunks_exact_mut(byte_len) {
                carry::narrow((random.f32() - 0.5) * 8.0, element, dtype);
            }
            let before = data.clone();
            // All but the first bytes and the last.
            let plan = Plan::new(&[Stretch { from: 4, to: 0, len: count - 4, zeros: 0 }]);
            let tiles = plan.tiles(0..1).end;
            let kernel = Multiply::kernel(dtype).expect("a kernel");
            let mut other = data.clone();
            assert!(multiply(kernel, &mut data, [plan.bytes(), &[]], [f64::to_bits(by), 1, 0, tiles]));
            assert!(multiply(kernel, &mut other, [plan.bytes(), &by.to_ne_bytes()], [f64::to_bits(5.0), 1, 0, tiles]));
            assert!(data == other, "{dtype}: the factor in memory");
            let end = 4 + (count - 4) * byte_len;
            assert!(data[..4] == before[..4] && data[end..] == before[end..], "{dtype}: beside the stretch");
            for (got, old) in data[4..end].chunks_exact(byte_len).zip(before[4..end].chunks_exact(byte_len)) {
                let exact = f64::from(widen(old, dtype)) * by;
                let wanted = match dtype {
                    DType::F16 => f64::from(f16::from_f64(exact)),
                    DType::BF16 => f64::from(bf16::from_f32(to_odd(exact))),
                    _ => f64::from(exact as f32),
                };
                let got = f64::from(widen(got, dtype));
                assert!(got == wanted, "{dtype}, {by}: {got} for {exact}");
            }
        }
    }

    #[test]
    fn a_number_beside_a_tie_is_rounded_to_its_side() {
        let beside = f64::from_bits(1_f64.to_bits() + 1) - 1.0;
        for (tie, dtype, step) in
            [(1.0 + 1.0 / 256.0, DType::BF16, 1.0 / 128.0), (1.0 + 1.0 / 2048.0, DType::F16, 1.0 / 1024.0)]
        {
            for (wide, wanted) in [(tie - beside, 1.0), (tie, 1.0), (tie + beside, 1.0 + step), (1e300, f32::INFINITY)]
            {
                let mut bytes = [0; 2];
                narrow(wide, &mut bytes, dtype);
                assert_eq!(widen(&bytes, dtype), wanted, "{wide} as {dtype}");
            }
        }
    }

    #[test]
    fn what_reaches_past_its_memory_is_refused() {
        let plan = Plan::new(&[Stretch { from: 4, to: 0, len: 3, zeros: 0 }]);
        let kernel = Multiply::kernel(DType::F32).expect("a kernel");
        let run = |data: &mut [u8], factor: &[u8]| multiply(kernel, data, [plan.bytes(), factor], [0, 1, 0, 1]);
        assert!(run(&mut [0; 16], &[]) && run(&mut [0; 16], &[0; 8]));
        assert!(!run(&mut [0; 15], &[]) && !run(&mut [0; 16], &[0; 7]));
        assert!(Multiply::kernel(DType::F64).is_none() && multiplied(KernelId(0x223)).is_none());
    }
}
