//! The kernels against the oracle, to the bit, on every instruction set this machine has.

use bytemuck::bytes_of;
use half::{bf16, f16};
use num_complex::Complex;
use pulp::Arch;

use super::combine::{Operands, combine_on};
use super::fold::fold_on;
use super::scalar::reference;
use super::*;
use crate::DType;

const LENGTHS: [usize; 13] = [0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 1000];
const MISALIGNMENTS: [usize; 3] = [0, 1, 3];

/// Bytes that start `offset` past a 64-byte boundary.
struct Shifted {
    memory: Vec<u8>,
    start: usize,
}

impl Shifted {
    fn new(bytes: &[u8], offset: usize) -> Shifted {
        let mut memory = vec![0; bytes.len() + 128];
        let start = memory.as_ptr().align_offset(64) + offset;
        memory[start..start + bytes.len()].copy_from_slice(bytes);
        Shifted { memory, start }
    }

    fn len(&self) -> usize {
        self.memory.len() - 128
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len()]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.start + self.len();
        &mut self.memory[self.start..end]
    }
}

fn archs() -> Vec<Arch> {
    let mut archs = vec![Arch::Scalar];
    #[cfg(target_arch = "x86_64")]
    archs.extend(pulp::x86::V3::try_new().map(Arch::V3));
    archs.push(Arch::new());
    archs
}

fn supported() -> impl Iterator<Item = (ReduceOp, DType)> {
    let pairs = ReduceOp::ALL.into_iter().flat_map(|reduce| DType::ALL.map(|dtype| (reduce, dtype)));
    pairs.filter(|(reduce, dtype)| reduce.supports(*dtype).is_ok())
}

fn foldable() -> impl Iterator<Item = (ReduceOp, DType)> {
    supported().filter(|(reduce, dtype)| reduce.supports_fold(*dtype).is_ok())
}

/// Elements where rules differ from one another: NaNs with payloads of either sign and kind, infinities, signed zeros,
/// subnormals, extremes, ties.
fn specials(dtype: DType) -> Vec<Vec<u8>> {
    let floats = |nans: &[u64], width: usize| -> Vec<Vec<u8>> {
        nans.iter().map(|bits| bits.to_le_bytes()[..width].to_vec()).collect()
    };
    match dtype {
        DType::F64 => floats(&F64_SPECIALS, 8),
        DType::F32 => floats(&F32_SPECIALS, 4),
        DType::F16 => floats(&F16_SPECIALS, 2),
        DType::BF16 => floats(&BF16_SPECIALS, 2),
        DType::Complex64 => pairs(&floats(&F32_SPECIALS, 4)),
        DType::Complex128 => pairs(&floats(&F64_SPECIALS, 8)),
        _ => [0x00, 0x01, 0x02, 0x7f, 0x80, 0xfe, 0xff].map(|byte| vec![byte; dtype.byte_len()]).to_vec(),
    }
}

fn pairs(parts: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let shifted = parts.iter().cycle().skip(3);
    parts.iter().zip(shifted).map(|(re, im)| [&re[..], im].concat()).collect()
}

const F64_SPECIALS: [u64; 12] = [
    0,
    1 << 63,
    1,
    0x000f_ffff_ffff_ffff,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff0_0000_0000_0001,
    0xffff_ffff_ffff_ffff,
    0x3ff0_0000_0000_0001,
    0xbff0_0000_0000_0000,
];
const F32_SPECIALS: [u64; 12] = [
    0,
    1 << 31,
    1,
    0x007f_ffff,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7f80_0001,
    0xffff_ffff,
    0x3f80_0001,
    0xbf80_0000,
];
const F16_SPECIALS: [u64; 12] = [0, 0x8000, 1, 0x03ff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0xffff, 0x3c01, 0xbc00];
const BF16_SPECIALS: [u64; 12] = [0, 0x8000, 1, 0x007f, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0xffff, 0x3f81, 0xbf80];

/// `len` elements, a third of them special, a third of any bits, a third near each other so that sums neither vanish nor
/// overflow.
fn sample(rng: &mut fastrand::Rng, dtype: DType, len: usize) -> Vec<u8> {
    let specials = specials(dtype);
    (0..len)
        .flat_map(|_| match rng.u8(0..3) {
            0 => rng.choice(&specials).unwrap().clone(),
            1 => (0..dtype.byte_len()).map(|_| rng.u8(..)).collect(),
            _ => moderate(rng, dtype),
        })
        .collect()
}

fn moderate(rng: &mut fastrand::Rng, dtype: DType) -> Vec<u8> {
    let mut value = || 4.0 * rng.f64() - 2.0;
    match dtype {
        DType::F64 => bytes_of(&value()).to_vec(),
        DType::F32 => bytes_of(&(value() as f32)).to_vec(),
        DType::F16 => bytes_of(&f16::from_f64(value())).to_vec(),
        DType::BF16 => bytes_of(&bf16::from_f64(value())).to_vec(),
        DType::Complex64 => bytes_of(&Complex::new(value() as f32, value() as f32)).to_vec(),
        DType::Complex128 => bytes_of(&Complex::new(value(), value())).to_vec(),
        _ => (rng.i64(-9..9)).to_le_bytes()[..dtype.byte_len()].to_vec(),
    }
}

/// Every special beside every other, as two operands.
fn special_pairs(dtype: DType) -> (Vec<u8>, Vec<u8>) {
    let specials = specials(dtype);
    let left = specials.iter().flat_map(|a| specials.iter().flat_map(|_| a.clone())).collect();
    let right = specials.iter().flat_map(|_| specials.concat()).collect();
    (left, right)
}

/// What folding means in terms of the oracle: an average is a sum until it is finished.
fn folded(reduce: ReduceOp, dtype: DType, operands: &[&[u8]]) -> Vec<u8> {
    let reduce = if reduce == ReduceOp::Avg { ReduceOp::Sum } else { reduce };
    reference(reduce, dtype, operands)
}

#[test]
fn fold_equals_the_oracle_at_every_length_and_alignment() {
    let mut rng = fastrand::Rng::with_seed(1);
    for ((reduce, dtype), len) in foldable().flat_map(|pair| LENGTHS.map(|len| (pair, len))) {
        let [left, right] = [0, 1].map(|_| sample(&mut rng, dtype, len));
        let expected = folded(reduce, dtype, &[&left, &right]);
        for (arch, left_at) in archs().into_iter().flat_map(|arch| MISALIGNMENTS.map(|at| (arch, at))) {
            for right_at in MISALIGNMENTS {
                let mut accumulator = Shifted::new(&left, left_at);
                let incoming = Shifted::new(&right, right_at);
                fold_on(arch, reduce, dtype, accumulator.bytes_mut(), incoming.bytes()).unwrap();
                assert_eq!(accumulator.bytes(), expected, "{reduce} {dtype} {len} {arch:?}");
            }
        }
    }
}

#[test]
fn every_reduction_is_commutative_to_the_bit() {
    let mut rng = fastrand::Rng::with_seed(2);
    for (reduce, dtype) in foldable() {
        let (mut left, mut right) = special_pairs(dtype);
        left.extend(sample(&mut rng, dtype, 1000));
        right.extend(sample(&mut rng, dtype, 1000));
        for arch in archs() {
            let (mut forth, mut back) = (left.clone(), right.clone());
            fold_on(arch, reduce, dtype, &mut forth, &right).unwrap();
            fold_on(arch, reduce, dtype, &mut back, &left).unwrap();
            assert_eq!(forth, back, "{reduce} {dtype} {arch:?}");
            assert_eq!(forth, folded(reduce, dtype, &[&left, &right]), "{reduce} {dtype} {arch:?}");
        }
    }
}

#[test]
fn combine_equals_the_oracle_in_and_out_of_place() {
    let mut rng = fastrand::Rng::with_seed(3);
    for ((reduce, dtype), len) in supported().flat_map(|pair| LENGTHS.map(|len| (pair, len))) {
        for count in 1..=4 {
            let parts: Vec<_> = (0..count).map(|at| Shifted::new(&sample(&mut rng, dtype, len), at)).collect();
            let parts: Vec<&[u8]> = parts.iter().map(Shifted::bytes).collect();
            let expected = reference(reduce, dtype, &parts);
            for arch in archs() {
                let mut into = Shifted::new(&vec![0xa5; len * dtype.byte_len()], 1);
                let operands = Operands { parts: &parts, own: None };
                combine_on(arch, reduce, dtype, into.bytes_mut(), operands).unwrap();
                assert_eq!(into.bytes(), expected, "{reduce} {dtype} {len} of {count} {arch:?}");
            }
            for position in 0..count {
                let mut others = parts.clone();
                let mut into = Shifted::new(others.remove(position), 3);
                combine_in_place(reduce, dtype, into.bytes_mut(), position, &others).unwrap();
                assert_eq!(into.bytes(), expected, "{reduce} {dtype} {len} of {count} at {position}");
            }
        }
    }
}

#[test]
fn what_is_copied_beside_changes_nothing() {
    let mut rng = fastrand::Rng::with_seed(7);
    for ((reduce, dtype), len) in supported().flat_map(|pair| [0, 1, 33, 1500].map(|len| (pair, len))) {
        let parts = [0, 1].map(|at| Shifted::new(&sample(&mut rng, dtype, len), at));
        let (first, second) = (parts[0].bytes(), parts[1].bytes());
        let expected = reference(reduce, dtype, &[first, second]);
        // Shorter than the result, as long, and longer.
        for given in [0, 1, len * dtype.byte_len(), len * dtype.byte_len() + 3000] {
            let from: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(given).collect();
            let elsewhere = vec![0xa5; first.len()];
            for (first, mut into) in [(None, Shifted::new(first, 3)), (Some(first), Shifted::new(&elsewhere, 2))] {
                let mut room = vec![0; given];
                let beside = Beside { from: &from, room: &mut room };
                combine_beside(reduce, dtype, into.bytes_mut(), (first, second), beside).unwrap();
                assert_eq!(into.bytes(), expected, "{reduce} {dtype} {len} beside {given}");
                assert!(room == from, "{reduce} {dtype} {given} bytes beside {len}");
            }
        }
    }
}

#[test]
fn past_the_caches_the_result_is_the_same_and_so_is_what_is_copied_beside() {
    let mut rng = fastrand::Rng::with_seed(9);
    let places = [0, 3, 16];
    for ((reduce, dtype), len) in supported().flat_map(|pair| [0, 1, 33, 1500].map(|len| (pair, len))) {
        let parts = [0, 1].map(|at| Shifted::new(&sample(&mut rng, dtype, len), at));
        let operands = [parts[0].bytes(), parts[1].bytes()];
        let expected = reference(reduce, dtype, &operands);
        for (given, place) in
            [0, 100, len * dtype.byte_len() + 3000].into_iter().flat_map(|given| places.map(|place| (given, place)))
        {
            let from: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(given).collect();
            let (mut into, mut room) = (Shifted::new(&vec![0xa5; expected.len()], place), vec![0; given]);
            let beside = Beside { from: &from, room: &mut room };
            combine_past_caches(reduce, dtype, into.bytes_mut(), operands, beside).unwrap();
            assert_eq!(into.bytes(), expected, "{reduce} {dtype} {len} at {place} beside {given}");
            assert!(room == from, "{reduce} {dtype} {given} bytes beside {len}");
        }
    }
    let refused = combine_past_caches(ReduceOp::Sum, DType::F32, &mut [0; 8], [&[0; 8], &[0; 4]], Beside::nothing());
    assert!(refused.is_err(), "of two lengths");
}

#[test]
fn what_is_joined_in_both_places_is_the_same_there() {
    let mut rng = fastrand::Rng::with_seed(8);
    for ((reduce, dtype), len) in supported().flat_map(|pair| [0, 1, 33, 1500].map(|len| (pair, len))) {
        let mut parts = [0, 1].map(|at| Shifted::new(&sample(&mut rng, dtype, len), at));
        let expected = reference(reduce, dtype, &[parts[0].bytes(), parts[1].bytes()]);
        let [ours, theirs] = &mut parts;
        combine_both(reduce, dtype, ours.bytes_mut(), theirs.bytes_mut()).unwrap();
        assert_eq!(ours.bytes(), expected, "{reduce} {dtype} {len}");
        assert_eq!(theirs.bytes(), expected, "{reduce} {dtype} {len}, theirs");
    }
    let (mut ours, mut theirs) = ([0; 8], [0; 4]);
    assert!(combine_both(ReduceOp::Sum, DType::F32, &mut ours, &mut theirs).is_err(), "of two lengths");
}

#[test]
fn every_16_bit_float_is_converted_right_by_every_instruction_set() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut turned = all.clone();
    turned.rotate_left(2 * 40_503);
    for (dtype, arch) in
        [DType::F16, DType::BF16].into_iter().flat_map(|dtype| archs().into_iter().map(move |arch| (dtype, arch)))
    {
        for parts in [&[&all[..]][..], &[&all, &turned]] {
            let mut into = vec![0; all.len()];
            combine_on(arch, ReduceOp::Sum, dtype, &mut into, Operands { parts, own: None }).unwrap();
            assert!(into == reference(ReduceOp::Sum, dtype, parts), "{dtype} {} {arch:?}", parts.len());
        }
    }
}

#[test]
fn pieces_make_the_same_bits_as_the_whole() {
    let mut rng = fastrand::Rng::with_seed(4);
    for (reduce, dtype) in supported() {
        let parts: [Vec<u8>; 3] = std::array::from_fn(|_| sample(&mut rng, dtype, 1000));
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let mut whole = vec![0; parts[0].len()];
        combine(reduce, dtype, &mut whole, &parts).unwrap();
        for piece in [1, 5, 64, 999] {
            let mut pieces = vec![0; whole.len()];
            for (index, into) in pieces.chunks_mut(piece * dtype.byte_len()).enumerate() {
                let start = index * piece * dtype.byte_len();
                let parts: Vec<_> = parts.iter().map(|part| &part[start..start + into.len()]).collect();
                combine(reduce, dtype, into, &parts).unwrap();
            }
            assert_eq!(pieces, whole, "{reduce} {dtype} in pieces of {piece}");
        }
    }
}

#[test]
fn full_width_elements_fold_to_what_they_combine_to() {
    let mut rng = fastrand::Rng::with_seed(5);
    let rounds_once = |dtype: &DType| !matches!(dtype, DType::F16 | DType::BF16);
    for (reduce, dtype) in foldable().filter(|(_, dtype)| rounds_once(dtype)) {
        let parts: [Vec<u8>; 3] = std::array::from_fn(|_| sample(&mut rng, dtype, 300));
        let mut folded = parts[0].clone();
        fold(reduce, dtype, &mut folded, &parts[1]).unwrap();
        fold(reduce, dtype, &mut folded, &parts[2]).unwrap();
        if reduce == ReduceOp::Avg {
            finish_avg(dtype, &mut folded, 3).unwrap();
        }
        let mut combined = vec![0; folded.len()];
        combine(reduce, dtype, &mut combined, &[&parts[0], &parts[1], &parts[2]]).unwrap();
        assert_eq!(folded, combined, "{reduce} {dtype}");
    }
}

#[test]
fn a_factor_scales_like_a_product_with_one_element() {
    let mut rng = fastrand::Rng::with_seed(6);
    for dtype in DType::ALL.into_iter().filter(|dtype| ReduceOp::PreMulSum.supports(*dtype).is_ok()) {
        let data = sample(&mut rng, dtype, 100);
        for element in specials(dtype) {
            let factor = Factor::from_element(dtype, &element).unwrap();
            let expected = reference(ReduceOp::Product, dtype, &[&data, &element.repeat(100)]);
            let mut scaled = Shifted::new(&data, 1);
            scale(dtype, scaled.bytes_mut(), &factor).unwrap();
            assert_eq!(scaled.bytes(), expected, "{dtype} by {factor:?}");
        }
    }
}

#[test]
fn a_real_factor_scales_both_parts_of_a_complex_number() {
    let mut data = [Complex::new(1.5f32, f32::INFINITY), Complex::new(-2.0, f32::NAN)];
    scale(DType::Complex64, bytemuck::cast_slice_mut(&mut data), &Factor::Real(2.0)).unwrap();
    assert_eq!(data[0], Complex::new(3.0, f32::INFINITY));
    assert_eq!((data[1].re, data[1].im.to_bits()), (-4.0, 0x7fc0_0000));
}

#[test]
fn averages_of_16_bit_floats_are_rounded_once_when_every_operand_is_at_hand() {
    let parts = [1.0, 1.0, 0.0078125].map(bf16::from_f32);
    let parts = parts.each_ref().map(bytes_of);
    let mut sum = [0; 2];
    combine(ReduceOp::Sum, DType::BF16, &mut sum, &parts).unwrap();
    assert_eq!(bf16::from_le_bytes(sum), bf16::from_f32(2.0078125));
    let mut average = parts[0].to_vec();
    fold(ReduceOp::Avg, DType::BF16, &mut average, parts[1]).unwrap();
    finish_avg(DType::BF16, &mut average, 2).unwrap();
    assert_eq!(average, bytes_of(&bf16::ONE));
}

#[test]
fn integer_averages_neither_overflow_nor_round_away_from_zero() {
    let mut average = [0i64; 3];
    let parts = [[i64::MAX, -7, i64::MIN], [i64::MAX, 0, i64::MIN]];
    let parts = parts.each_ref().map(|part| bytemuck::cast_slice(part));
    combine(ReduceOp::Avg, DType::I64, bytemuck::cast_slice_mut(&mut average), &parts).unwrap();
    assert_eq!(average, [i64::MAX, -3, i64::MIN]);
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let mut into = [7; 8];
    let refused = |result: Result<(), ReduceError>| result.unwrap_err().to_string();
    let partial = refused(fold(ReduceOp::Sum, DType::F64, &mut into[..7], &[0; 7]));
    assert_eq!(partial, "7 bytes are not whole elements of f64");
    let length = refused(combine(ReduceOp::Sum, DType::F32, &mut into, &[&[0; 8], &[0; 4]]));
    assert_eq!(length, "an operand has 4 bytes where 8 were expected");
    assert_eq!(combine(ReduceOp::Sum, DType::F32, &mut into, &[]), Err(ReduceError::Empty));
    assert_eq!(finish_avg(DType::F32, &mut into, 0), Err(ReduceError::Empty));
    let past = combine_in_place(ReduceOp::Sum, DType::F32, &mut into, 2, &[&[0; 8]]);
    assert_eq!(past, Err(ReduceError::Position { position: 2, operands: 2 }));
    let integer = refused(fold(ReduceOp::Avg, DType::I32, &mut into, &[0; 8]));
    assert_eq!(integer, "avg is not defined for i32: an integer average needs every operand at hand");
    let factor = Factor::Complex(Complex::new(1.0, 0.0));
    assert!(refused(scale(DType::F32, &mut into, &factor)).contains("complex factor"));
    assert_eq!(into, [7; 8]);
}

#[test]
fn a_kernel_exists_exactly_where_the_rules_say() {
    for (reduce, dtype) in ReduceOp::ALL.into_iter().flat_map(|reduce| DType::ALL.map(|dtype| (reduce, dtype))) {
        let bytes = vec![0; dtype.byte_len()];
        let combined = combine(reduce, dtype, &mut bytes.clone(), &[&bytes]);
        assert_eq!(combined, reduce.supports(dtype).map_err(ReduceError::from), "{reduce} {dtype}");
        let folded = fold(reduce, dtype, &mut bytes.clone(), &bytes);
        assert_eq!(folded, reduce.supports_fold(dtype).map_err(ReduceError::from), "{reduce} {dtype}");
    }
}
