//! Any bits at all: the same bits on every rank and in every run, NaNs that are never lost, 16-bit sums rounded once.

use half::{bf16, f16};
use phalanx_core::reduce::Factor;
use phalanx_core::schedule::Algorithm;
use phalanx_core::{Class, Counts, DType, Op, ReduceOp};

use crate::ground::spread;
use crate::oracle;
use crate::replay::{Case, Stage};

const WORLDS: [usize; 5] = [2, 3, 5, 8, 17];
const COUNT: usize = 97;

/// A case with random inputs, seeded by its world.
struct Scene<'a> {
    op: &'a Op,
    dtype: DType,
    world: usize,
    inputs: Vec<Vec<u8>>,
    factors: Vec<Factor>,
}

#[test]
fn every_rank_and_every_run_has_the_same_bits() {
    let floats = DType::ALL.into_iter().filter(|dtype| matches!(dtype.class(), Class::Float | Class::Complex));
    for (dtype, reduce) in floats.flat_map(|dtype| ReduceOp::ALL.map(|reduce| (dtype, reduce))) {
        if reduce.supports(dtype).is_err() {
            continue;
        }
        for (world, op) in WORLDS.iter().flat_map(|&world| ops(world, reduce).map(|op| (world, op))) {
            let scene = Scene::new(&op, dtype, world, anything);
            scene.everywhere(|case| {
                // Whatever was in memory before, and in the second run what is more than any sum.
                let [first, second] = [Stage::default(), Stage::filled_with(0x3F, 0x7F)].map(|mut stage| {
                    case.play(&scene.inputs, &scene.factors, &mut stage);
                    stage
                });
                for rank in receivers(&op, world) {
                    let result = case.result(&first, rank);
                    assert!(result == case.result(&second, rank), "{case:?}: two runs differ");
                    let same = !matches!(op, Op::AllReduce { .. }) || result == case.result(&first, 0);
                    assert!(same, "{case:?}: rank {rank} has other bits than rank 0");
                    scene.assert_nans(case, rank, result);
                }
            });
        }
    }
}

#[test]
fn sums_of_16_bit_floats_at_hand_round_once() {
    let mut stage = Stage::default();
    for (dtype, world) in [DType::F16, DType::BF16].into_iter().flat_map(|dtype| WORLDS.map(|world| (dtype, world))) {
        for op in ops(world, ReduceOp::Sum) {
            let scene = Scene::new(&op, dtype, world, finite);
            let elements: Vec<Vec<[u8; 2]>> =
                scene.inputs.iter().map(|input| bytemuck::cast_slice::<u8, [u8; 2]>(input).to_vec()).collect();
            let expected = oracle::outputs(&|_| op.clone(), &elements, |all| sum_rounded_once(dtype, all));
            let expected: Vec<_> =
                expected.into_iter().map(|output| output.map(|elements| elements.concat())).collect();
            scene.everywhere(|case| {
                if matches!(case.algorithm, Algorithm::Exchange | Algorithm::Direct | Algorithm::AtOnce) {
                    case.play(&scene.inputs, &[], &mut stage);
                    case.compare(&stage, &scene.inputs, &expected);
                }
            });
        }
    }
}

#[test]
fn flags_of_any_bits_are_true_unless_zero() {
    let mut stage = Stage::default();
    for world in WORLDS {
        let reduces = ReduceOp::ALL.into_iter().filter(|reduce| reduce.supports(DType::Bool).is_ok());
        for op in reduces.flat_map(|reduce| ops(world, reduce)) {
            let scene = Scene::new(&op, DType::Bool, world, |_, rng| vec![rng.u8(0..4)]);
            let expected = oracle::outputs(&|_| op.clone(), &scene.inputs, |all| {
                let trues = all.iter().filter(|&&byte| byte != 0).count();
                u8::from(match op.reduce() {
                    Some(ReduceOp::Product | ReduceOp::Min | ReduceOp::BitAnd) => trues == all.len(),
                    Some(ReduceOp::BitXor) => trues % 2 == 1,
                    _ => trues > 0,
                })
            });
            scene.everywhere(|case| {
                case.play(&scene.inputs, &[], &mut stage);
                case.compare(&stage, &scene.inputs, &expected);
            });
        }
    }
}

impl<'a> Scene<'a> {
    fn new(
        op: &'a Op,
        dtype: DType,
        world: usize,
        element: impl Fn(DType, &mut fastrand::Rng) -> Vec<u8>,
    ) -> Scene<'a> {
        let mut rng = fastrand::Rng::with_seed(world as u64);
        let mut input = |rank: usize| -> Vec<u8> {
            (0..op.need(rank, world).input).flat_map(|_| element(dtype, &mut rng)).collect()
        };
        Scene {
            op,
            dtype,
            world,
            inputs: (0..world).map(&mut input).collect(),
            factors: (0..world).map(|rank| Factor::Real(0.3 + rank as f64)).collect(),
        }
    }

    /// Every algorithm that plays the operation, on every spread, with windows and without.
    fn everywhere(&self, mut act: impl FnMut(&Case<'_>)) {
        let plays = |algorithm: &Algorithm| algorithm.plays(self.op, self.dtype);
        for algorithm in Algorithm::ALL.into_iter().filter(plays) {
            for hosts in spread(self.world, algorithm) {
                for windows in [false, true] {
                    if windows && algorithm != Algorithm::TwoLevel {
                        continue;
                    }
                    act(&Case {
                        op: self.op,
                        op_of: &|_| self.op.clone(),
                        dtype: self.dtype,
                        hosts: &hosts,
                        algorithm,
                        segments: 2,
                        in_place: false,
                        windows,
                    });
                }
            }
        }
    }

    /// A NaN stands wherever any rank had one, and it is the canonical one.
    fn assert_nans(&self, case: &Case<'_>, rank: usize, result: &[u8]) {
        let unit = self.dtype.byte_len();
        let start: usize = match self.op {
            Op::ReduceScatter { counts, .. } => (0..rank).map(|before| counts.of(before)).sum(),
            _ => 0,
        };
        for (at, element) in result.chunks_exact(unit).enumerate() {
            let given = |input: &Vec<u8>| has_nan(self.dtype, &input[(start + at) * unit..][..unit]);
            let lost = self.inputs.iter().any(given) && !has_nan(self.dtype, element);
            assert!(!lost, "{case:?}: rank {rank} lost a NaN at {at}");
            assert!(is_canonical(self.dtype, element), "{case:?}: {element:?} at {at}");
        }
    }
}

fn ops(world: usize, reduce: ReduceOp) -> [Op; 3] {
    let count = COUNT;
    let uneven: Vec<usize> = (0..world).map(|rank| [19, 0, 7][rank % 3]).collect();
    [
        Op::AllReduce { count, reduce },
        Op::Reduce { count, reduce, root: world / 2 },
        Op::ReduceScatter { counts: Counts::uneven(&uneven), reduce },
    ]
}

fn receivers(op: &Op, world: usize) -> Vec<usize> {
    op.root().map_or((0..world).collect(), |root| vec![root])
}

/// One element of any bits, often of those at the edges: zeros of both signs, infinities, NaNs with a payload.
fn anything(dtype: DType, rng: &mut fastrand::Rng) -> Vec<u8> {
    let float = part_of(dtype);
    let part = |rng: &mut fastrand::Rng| -> Vec<u8> {
        let odd = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e-40, -3.25, 1.0];
        let value = odd[rng.usize(0..odd.len())];
        match (rng.u8(0..20), float) {
            (0, _) => vec![0xFF; float.byte_len()],
            (1..10, _) => (0..float.byte_len()).map(|_| rng.u8(..)).collect(),
            (_, DType::F64) => value.to_le_bytes().to_vec(),
            (_, DType::F32) => (value as f32).to_le_bytes().to_vec(),
            (_, DType::F16) => f16::from_f64(value).to_le_bytes().to_vec(),
            _ => bf16::from_f64(value).to_le_bytes().to_vec(),
        }
    };
    (0..dtype.byte_len() / float.byte_len()).flat_map(|_| part(rng)).collect()
}

/// A finite 16-bit float of moderate size, all of whose bits are in use.
fn finite(dtype: DType, rng: &mut fastrand::Rng) -> Vec<u8> {
    let value = (rng.f32() - 0.5) * 64.0;
    let bits = if dtype == DType::F16 { f16::from_f32(value).to_bits() } else { bf16::from_f32(value).to_bits() };
    bits.to_le_bytes().to_vec()
}

fn sum_rounded_once(dtype: DType, all: &[[u8; 2]]) -> [u8; 2] {
    let wide = |bytes: &[u8; 2]| value(dtype, bytes) as f32;
    let sum = all[1..].iter().map(wide).fold(wide(&all[0]), |sum, next| sum + next);
    match dtype {
        DType::F16 => f16::from_f32(sum).to_le_bytes(),
        _ => bf16::from_f32(sum).to_le_bytes(),
    }
}

/// Whether an element, or one part of a complex one, is no number.
fn has_nan(dtype: DType, element: &[u8]) -> bool {
    let part = part_of(dtype);
    element.chunks_exact(part.byte_len()).any(|bytes| value(part, bytes).is_nan())
}

/// Whether every part that is no number is the positive quiet NaN without a payload.
fn is_canonical(dtype: DType, element: &[u8]) -> bool {
    let part = part_of(dtype);
    let canonical = match part {
        DType::F16 => f16::NAN.to_le_bytes().to_vec(),
        DType::BF16 => bf16::NAN.to_le_bytes().to_vec(),
        DType::F32 => f32::NAN.to_le_bytes().to_vec(),
        _ => f64::NAN.to_le_bytes().to_vec(),
    };
    element.chunks_exact(part.byte_len()).all(|bytes| !value(part, bytes).is_nan() || bytes == canonical)
}

fn value(float: DType, bytes: &[u8]) -> f64 {
    match float {
        DType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).into(),
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        _ => f64::from_le_bytes(bytes.try_into().unwrap()),
    }
}

/// The float that an element consists of.
fn part_of(dtype: DType) -> DType {
    match dtype {
        DType::Complex64 => DType::F32,
        DType::Complex128 => DType::F64,
        float => float,
    }
}
