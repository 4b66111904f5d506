//! The norm of stretches of elements on a device: parts of it, one for each tile; their sum or the largest of them; and from those of all
//! ranks the norm and what gradients are multiplied by so that it has a bound. Sums are of `f64`, in an order of their own.

use phalanx_core::DType;

use super::carry::{code, widen};
use super::plan::tile;
use crate::api::{Argument, Grid, KernelId, Span};

/// The sum of powers, or the largest, of each tile.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Where the elements are.
    pub data: Span,
    /// The plan that says where there, in memory of the device: stretches without zeros after them.
    pub table: Span,
    /// Where an `f64` goes for each tile.
    pub parts: Span,
    /// How many stretches the plan has.
    pub stretches: usize,
    /// How many tiles: all of them.
    pub tiles: u64,
    /// Which norm: at least 1, or infinite.
    pub p: f64,
}

/// So many values as one.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    /// The values, `f64`.
    pub parts: Span,
    /// Which norm.
    pub p: f64,
    /// Where their sum or the largest goes.
    pub sum: Span,
}

/// The norm of what all ranks have.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    /// What each rank has, as [`Fold`] left it.
    pub sums: Span,
    /// Which norm.
    pub p: f64,
    /// What it is to be at most.
    pub most: f64,
    /// Where two `f64` go: the norm, and what elements are multiplied by so that it is at most that; 1 where it is already.
    pub norm: Span,
}

impl Measure {
    /// The kernel for elements of a type; none for types that it has not.
    pub fn kernel(dtype: DType) -> Option<KernelId> {
        Some(KernelId(MEASURE | code(dtype)?))
    }

    /// What it is called in the program of the device.
    pub fn name(dtype: DType) -> String {
        format!("phalanx_measure_{dtype}")
    }

    /// What the kernel is launched with.
    pub fn arguments(&self) -> [Argument; 7] {
        [
            Argument::Read(self.data),
            Argument::Read(self.table),
            Argument::Write(self.parts),
            Argument::Number(self.stretches as u64),
            Argument::Number(0),
            Argument::Number(self.tiles),
            Argument::Number(self.p.to_bits()),
        ]
    }
}

impl Fold {
    /// The kernel.
    pub const KERNEL: KernelId = KernelId(0x210);
    /// What it is called in the program of the device.
    pub const NAME: &str = "phalanx_fold";

    /// What the kernel is launched with.
    pub fn arguments(&self) -> [Argument; 4] {
        [
            Argument::Read(self.parts),
            Argument::Number((self.parts.byte_len() / 8) as u64),
            Argument::Number(self.p.to_bits()),
            Argument::Write(self.sum),
        ]
    }
}

impl Norm {
    /// The kernel.
    pub const KERNEL: KernelId = KernelId(0x211);
    /// What it is called in the program of the device.
    pub const NAME: &str = "phalanx_norm";
    /// One block folds.
    pub const GRID: Grid = Grid { blocks: 1, threads: LANES as u32 };

    /// What the kernel is launched with.
    pub fn arguments(&self) -> [Argument; 5] {
        [
            Argument::Read(self.sums),
            Argument::Number((self.sums.byte_len() / 8) as u64),
            Argument::Number(self.p.to_bits()),
            Argument::Number(self.most.to_bits()),
            Argument::Write(self.norm),
        ]
    }
}

/// The twin of [`Measure`]; false where its numbers reach past its memory. `numbers` are those of [`Measure::arguments`], in order.
pub fn measure(kernel: KernelId, [data, table]: [&[u8]; 2], parts: &mut [u8], numbers: [u64; 4]) -> bool {
    let Some(dtype) = measured(kernel) else { return false };
    let [stretches, first, tiles, p] = numbers;
    let (Ok(stretches), p, byte_len) = (usize::try_from(stretches), f64::from_bits(p), dtype.byte_len()) else {
        return false;
    };
    for number in first..first.saturating_add(tiles) {
        let Some((stretch, elements)) = tile(table, stretches, number) else { return false };
        let (start, end) = (stretch.from + elements.start * byte_len, stretch.from + elements.end * byte_len);
        let Some(bytes) = data.get(start..end) else { return false };
        let mut lanes = [0.0; LANES];
        for (pack, of_lane) in bytes.chunks(16).zip((0..LANES).cycle()) {
            let powers = pack.chunks_exact(byte_len).map(|element| power(widen(element, dtype), p));
            lanes[of_lane] = powers.fold(lanes[of_lane], |one, other| joined(one, other, p));
        }
        let at = (number - first) as usize * 8;
        let Some(part) = parts.get_mut(at..at + 8) else { return false };
        part.copy_from_slice(&joined_by_block(lanes, p).to_ne_bytes());
    }
    true
}

/// The twin of [`Fold`]: the sum or the largest of so many values; none where they reach past their memory.
pub fn fold(values: &[u8], count: u64, p: u64) -> Option<f64> {
    let (p, byte_len) = (f64::from_bits(p), usize::try_from(count).ok()?.checked_mul(8)?);
    let mut lanes = [0.0; LANES];
    for (value, of_lane) in values.get(..byte_len)?.chunks_exact(8).zip((0..LANES).cycle()) {
        lanes[of_lane] = joined(lanes[of_lane], f64::from_ne_bytes(value.try_into().ok()?), p);
    }
    Some(joined_by_block(lanes, p))
}

/// The twin of [`Norm`]: the norm, and what elements are multiplied by.
pub fn norm(sums: &[u8], [ranks, p, most]: [u64; 3]) -> Option<[f64; 2]> {
    let all = fold(sums, ranks, p)?;
    let (p, most) = (f64::from_bits(p), f64::from_bits(most));
    let norm = match p {
        2.0 => all.sqrt(),
        _ if p == 1.0 || p.is_infinite() => all,
        _ => all.powf(p.recip()),
    };
    let factor = most / (norm + LEAST);
    Some([norm, if factor < 1.0 { factor } else { 1.0 }])
}

/// The type of a kernel that measures.
pub(crate) fn measured(kernel: KernelId) -> Option<DType> {
    super::carry::TYPES.get(kernel.0.checked_sub(MEASURE)? as usize).copied()
}

/// What the threads of a block have, halved until it is one.
fn joined_by_block(mut lanes: [f64; LANES], p: f64) -> f64 {
    let mut half = LANES / 2;
    while half > 0 {
        let (near, far) = lanes.split_at_mut(half);
        near.iter_mut().zip(far).for_each(|(one, other)| *one = joined(*one, *other, p));
        half /= 2;
    }
    lanes[0]
}

/// The sum of two, or the larger; what is no number stays.
fn joined(one: f64, other: f64, p: f64) -> f64 {
    match p.is_infinite() {
        false => one + other,
        true if other > one || other.is_nan() => other,
        true => one,
    }
}

fn power(element: f32, p: f64) -> f64 {
    let value = f64::from(element).abs();
    match p {
        2.0 => value * value,
        _ if p == 1.0 || p.is_infinite() => value,
        _ => value.powf(p),
    }
}

const MEASURE: u32 = 0x200;
/// Threads of a block.
const LANES: usize = 256;
/// Keeps the factor finite where all elements are zero.
const LEAST: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::carry::{TYPES, narrow};
    use crate::kernels::{Plan, Stretch};

    /// Elements of a type in stretches with gaps between, and the elements as they are then.
    fn stretches(random: &mut fastrand::Rng, dtype: DType) -> (Vec<u8>, Vec<Stretch>, Vec<f64>) {
        let (mut bytes, mut stretches, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for len in [5, 0, 8192, 20_001, 1] {
            stretches.push(Stretch { from: bytes.len(), to: 0, len, zeros: 0 });
            for _ in 0..len {
                let mut element = vec![0; dtype.byte_len()];
                narrow(random.f32() * 8.0 - 4.0, &mut element, dtype);
                values.push(f64::from(widen(&element, dtype)));
                bytes.extend(element);
            }
            // What lies between is no number and must not be read.
            bytes.extend([0xff; 6]);
        }
        (bytes, stretches, values)
    }

    fn whole(dtype: DType, data: &[u8], plan: &Plan, p: f64) -> f64 {
        let tiles = plan.tiles(0..plan.stretches()).end;
        let mut parts = vec![0; tiles as usize * 8];
        let numbers = [plan.stretches() as u64, 0, tiles, p.to_bits()];
        assert!(measure(Measure::kernel(dtype).expect("a kernel"), [data, plan.bytes()], &mut parts, numbers));
        fold(&parts, tiles, p.to_bits()).expect("a sum")
    }

    #[test]
    fn every_norm_of_every_type_is_its_formula() {
        let mut random = fastrand::Rng::with_seed(9);
        for dtype in TYPES {
            let (data, list, values) = stretches(&mut random, dtype);
            let plan = Plan::new(&list);
            for p in [1.0, 1.5, 2.0, 3.0, f64::INFINITY] {
                let wanted = match p.is_infinite() {
                    true => values.iter().fold(0.0, |most: f64, x| most.max(x.abs())),
                    false => values.iter().map(|x| x.abs().powf(p)).sum(),
                };
                let sum = whole(dtype, &data, &plan, p);
                assert!((sum / wanted - 1.0).abs() < 1e-13, "{dtype}, {p}: {sum} for {wanted}");
                // Two ranks with the same elements.
                let sums = [sum, sum].map(f64::to_ne_bytes).concat();
                let (both, root) = if p.is_infinite() { (wanted, 1.0) } else { (wanted * 2.0, p.recip()) };
                let [got, factor] = norm(&sums, [2, p.to_bits(), 3.0_f64.to_bits()]).expect("a norm");
                assert!((got / both.powf(root) - 1.0).abs() < 1e-13, "{dtype}, {p}");
                assert_eq!(factor, 3.0 / (got + 1e-6));
                assert_eq!(norm(&sums, [2, p.to_bits(), (got * 2.0).to_bits()]).expect("a norm"), [got, 1.0]);
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_none_and_nothing_is_zero() {
        for (odd, p) in
            [f32::NAN, f32::INFINITY].into_iter().flat_map(|odd| [1.0, 2.0, f64::INFINITY].map(|p| (odd, p)))
        {
            let mut values = vec![1.0_f32; 9000];
            values[8500] = odd;
            let data: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
            let plan = Plan::new(&[Stretch { from: 0, to: 0, len: 9000, zeros: 0 }]);
            let sum = whole(DType::F32, &data, &plan, p);
            let sums = [sum, 5.0].map(f64::to_ne_bytes).concat();
            let [got, factor] = norm(&sums, [2, p.to_bits(), 1.0_f64.to_bits()]).expect("a norm");
            assert_eq!((got.is_nan(), factor), (odd.is_nan(), if odd.is_nan() { 1.0 } else { 0.0 }), "{odd}, {p}");
        }
        let nothing = fold(&[], 0, 2.0_f64.to_bits()).expect("nothing");
        assert_eq!(norm(&nothing.to_ne_bytes(), [1, 2.0_f64.to_bits(), 1.0_f64.to_bits()]), Some([0.0, 1.0]));
    }

    #[test]
    fn what_reaches_past_its_memory_is_refused() {
        let plan = Plan::new(&[Stretch { from: 4, to: 0, len: 3, zeros: 0 }]);
        let (kernel, p) = (Measure::kernel(DType::F32).expect("a kernel"), 2.0_f64.to_bits());
        let run = |data: &[u8], parts: &mut [u8], tiles| measure(kernel, [data, plan.bytes()], parts, [1, 0, tiles, p]);
        assert!(run(&[0; 16], &mut [0; 8], 1));
        assert!(!run(&[0; 15], &mut [0; 8], 1) && !run(&[0; 16], &mut [0; 7], 1) && !run(&[0; 16], &mut [0; 16], 2));
        assert!(fold(&[0; 15], 2, p).is_none() && norm(&[0; 8], [2, p, p]).is_none());
        assert!(Measure::kernel(DType::F64).is_none() && measured(KernelId(0x203)).is_none());
    }
}
