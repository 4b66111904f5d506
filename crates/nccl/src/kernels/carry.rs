//! The one kernel between shards, full parameters and gradients: stretches of elements from one place to another, cast, divided and
//! padded with zeros on the way. Copy-in, copy-out and chunk-cat are tables for it.

use half::{bf16, f16};
use phalanx_core::DType;

use super::plan::tile;
use crate::api::{Argument, KernelId, Span};

/// What is carried in one launch.
#[derive(Clone, Copy, Debug)]
pub struct Carry {
    /// Where it goes.
    pub into: Span,
    /// Where it is.
    pub from: Span,
    /// The plan, in memory of the device.
    pub table: Span,
    /// How many stretches the plan has.
    pub stretches: usize,
    /// The first tile that is carried.
    pub first: u64,
    /// How many are.
    pub tiles: u64,
    /// Bytes by which the source begins later than the plan says: where it is a part of what was planned.
    pub skip: usize,
    /// What elements are divided by.
    pub divisor: f32,
}

impl Carry {
    /// The kernel for a pair of types: it puts elements where others were, or adds them to those. None for types that it has not.
    pub fn kernel(from: DType, to: DType, adds: bool) -> Option<KernelId> {
        Some(KernelId(FIRST | code(from)? << 3 | code(to)? << 1 | u32::from(adds)))
    }

    /// What it is called in the program of the device.
    pub fn name(from: DType, to: DType, adds: bool) -> String {
        format!("phalanx_{}_{from}_{to}", if adds { "add" } else { "put" })
    }

    /// Every kernel that there is, with its name.
    pub fn kernels() -> Vec<(KernelId, String)> {
        let pairs = TYPES.iter().flat_map(|from| TYPES.iter().map(move |to| (*from, *to)));
        let both = pairs.flat_map(|(from, to)| [false, true].map(|adds| (from, to, adds)));
        both.filter_map(|(from, to, adds)| Some((Carry::kernel(from, to, adds)?, Carry::name(from, to, adds))))
            .collect()
    }

    /// What the kernel is launched with.
    pub fn arguments(&self) -> [Argument; 8] {
        [
            Argument::Write(self.into),
            Argument::Read(self.from),
            Argument::Read(self.table),
            Argument::Number(self.stretches as u64),
            Argument::Number(self.first),
            Argument::Number(self.tiles),
            Argument::Number(self.skip as u64),
            Argument::Real(self.divisor),
        ]
    }
}

/// The kernel's twin; false where its numbers reach past its memory. `numbers` are those of [`Carry::arguments`], in order.
pub fn carry(kernel: KernelId, into: &mut [u8], [from, table]: [&[u8]; 2], numbers: [u64; 4], divisor: f32) -> bool {
    let Some((from_type, to_type, adds)) = pair(kernel) else { return false };
    let [stretches, first, tiles, skip] = numbers;
    let (Ok(stretches), Ok(skip)) = (usize::try_from(stretches), usize::try_from(skip)) else { return false };
    let (from_len, to_len) = (from_type.byte_len(), to_type.byte_len());
    for number in first..first.saturating_add(tiles) {
        let Some((stretch, elements)) = tile(table, stretches, number) else { return false };
        for at in elements {
            let start = stretch.to + at * to_len;
            let Some(target) = into.get_mut(start..start + to_len) else { return false };
            if at < stretch.len {
                let Some(start) = (stretch.from + at * from_len).checked_sub(skip) else { return false };
                let Some(source) = from.get(start..start + from_len) else { return false };
                if from_type == to_type && !adds && divisor == 1.0 {
                    target.copy_from_slice(source);
                } else {
                    let value = widen(source, from_type) / divisor;
                    narrow(if adds { widen(target, to_type) + value } else { value }, target, to_type);
                }
            } else if !adds {
                target.fill(0);
            }
        }
    }
    true
}

/// The types and what becomes of the target, of a kernel of this kind.
pub(crate) fn pair(kernel: KernelId) -> Option<(DType, DType, bool)> {
    let number = kernel.0.checked_sub(FIRST)?;
    let dtype = |code: u32| TYPES.get(code as usize).copied();
    Some((dtype(number >> 3)?, dtype(number >> 1 & 3)?, number & 1 == 1))
}

pub(super) fn code(dtype: DType) -> Option<u32> {
    TYPES.iter().position(|other| *other == dtype).map(|index| index as u32)
}

pub(super) fn widen(bytes: &[u8], dtype: DType) -> f32 {
    match (dtype, bytes) {
        (DType::F16, &[a, b]) => f16::from_ne_bytes([a, b]).to_f32(),
        (DType::BF16, &[a, b]) => bf16::from_ne_bytes([a, b]).to_f32(),
        (_, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]),
        _ => f32::NAN,
    }
}

pub(super) fn narrow(value: f32, into: &mut [u8], dtype: DType) {
    match dtype {
        DType::F16 => into.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
        DType::BF16 => into.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
        _ => into.copy_from_slice(&value.to_ne_bytes()),
    }
}

const FIRST: u32 = 0x100;
pub(super) const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Plan, Stretch};

    fn bytes(values: &[f32], dtype: DType) -> Vec<u8> {
        let mut bytes = vec![0; values.len() * dtype.byte_len()];
        bytes.chunks_mut(dtype.byte_len()).zip(values).for_each(|(into, value)| narrow(*value, into, dtype));
        bytes
    }

    fn run(types: (DType, DType, bool), plan: &Plan, into: &mut [u8], from: &[u8], divisor: f32) -> bool {
        let kernel = Carry::kernel(types.0, types.1, types.2).expect("a kernel");
        let tiles = plan.tiles(0..plan.stretches());
        let numbers = [plan.stretches() as u64, tiles.start, tiles.end - tiles.start, 0];
        carry(kernel, into, [from, plan.bytes()], numbers, divisor)
    }

    /// Random stretches side by side, some with zeros after them, against element by element arithmetic.
    #[test]
    fn every_pair_of_types_equals_the_formula() {
        let mut random = fastrand::Rng::with_seed(3);
        for (from, to) in TYPES.into_iter().flat_map(|from| TYPES.map(|to| (from, to))) {
            for (adds, divisor) in [(false, 1.0), (true, 1.0), (false, 3.0), (true, 2.0)] {
                let (mut stretches, mut ends) = (Vec::new(), [0, 0]);
                for _ in 0..9 {
                    let (len, zeros) = (random.usize(..40), random.usize(..4));
                    stretches.push(Stretch {
                        from: ends[0] * from.byte_len(),
                        to: ends[1] * to.byte_len(),
                        len,
                        zeros,
                    });
                    ends = [ends[0] + len, ends[1] + len + zeros];
                }
                let values: Vec<f32> = (0..ends[0]).map(|_| random.f32() * 8.0 - 4.0).collect();
                let before: Vec<f32> = (0..ends[1]).map(|_| random.f32()).collect();
                let (source, mut target) = (bytes(&values, from), bytes(&before, to));
                let mut wanted = target.clone();
                for Stretch { from: start, to: end, len, zeros } in &stretches {
                    for at in 0..len + zeros {
                        let place = &mut wanted[end + at * to.byte_len()..][..to.byte_len()];
                        let old = widen(place, to);
                        let value = (at < *len)
                            .then(|| widen(&source[start + at * from.byte_len()..][..from.byte_len()], from));
                        match (value, adds) {
                            (Some(value), false) => narrow(value / divisor, place, to),
                            (Some(value), true) => narrow(old + value / divisor, place, to),
                            (None, false) => place.fill(0),
                            (None, true) => {}
                        }
                    }
                }
                assert!(run((from, to, adds), &Plan::new(&stretches), &mut target, &source, divisor));
                assert_eq!(target, wanted, "{from} to {to}, adds {adds}, divided by {divisor}");
            }
        }
    }

    #[test]
    fn what_reaches_past_its_memory_is_refused() {
        let plan = Plan::new(&[Stretch { from: 0, to: 4, len: 3, zeros: 1 }]);
        let types = (DType::F32, DType::F32, false);
        assert!(run(types, &plan, &mut [0; 20], &[0; 12], 1.0));
        assert!(!run(types, &plan, &mut [0; 19], &[0; 12], 1.0));
        assert!(!run(types, &plan, &mut [0; 20], &[0; 11], 1.0));
        assert!(Carry::kernel(DType::F64, DType::F32, false).is_none() && pair(KernelId(2)).is_none());
    }

    #[test]
    fn kernels_have_numbers_and_names_of_their_own() {
        let mut all = Carry::kernels();
        assert_eq!(all.len(), 18);
        assert!(
            all.iter().all(|(kernel, name)| pair(*kernel).map(|(a, b, c)| Carry::name(a, b, c)).as_ref() == Some(name))
        );
        all.sort_by_key(|(kernel, _)| kernel.0);
        all.dedup_by_key(|(kernel, _)| kernel.0);
        assert_eq!((all.len(), all[0].1.as_str()), (18, "phalanx_put_f32_f32"));
    }
}
