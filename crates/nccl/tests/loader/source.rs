//! The source that devices run, compiled for the host and run by its threads, beside the twins. Ignored unless asked for, because it needs a
//! compiler of C++: `interop/nccl` asks.

use std::path::Path;
use std::process::Command;

use half::{bf16, f16};
use phalanx_core::DType;
use phalanx_nccl::api::{RedOp, Scalar};
use phalanx_nccl::kernels::{Join, Measure, Multiply, Plan, Stretch, Way, fold, join, measure, multiply, norm};

use crate::stub::{Stub, directory};

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
/// As the library numbers them, after one to measure and one to multiply for each type.
const FOLD: i32 = 6;
const NORM: i32 = 7;
/// The first that joins; the others follow by NCCL's numbers.
const JOINS: i32 = 8;

/// Has the kernels run: which one, of how many blocks, with these words.
type Launch = unsafe extern "C" fn(i32, u32, *const u64);

fn built() -> Stub {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (directory, kernels) = (directory(), source.join("src/kernels"));
    let path = directory.join("libthreads.so");
    let mut compiler = Command::new("c++");
    compiler
        .args([
            "-std=c++17",
            "-O2",
            "-ffp-contract=off",
            "-Wall",
            "-Wno-unknown-pragmas",
            "-shared",
            "-fPIC",
            "-pthread",
        ])
        .arg(format!("-I{}", kernels.display()))
        .arg("-o")
        .arg(&path)
        .arg(source.join("tests/stub/threads.cpp"));
    let built = compiler.output().expect("a compiler of C++");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Stub::new(directory, path)
}

fn element(value: f32, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f32(value).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value).to_ne_bytes().to_vec(),
        _ => value.to_ne_bytes().to_vec(),
    }
}

/// Stretches of numbers large and small, some of several tiles and some where 16 bytes may not go at a time.
fn stretches(random: &mut fastrand::Rng, dtype: DType) -> (Vec<u8>, Plan) {
    let (mut data, mut list) = (Vec::new(), Vec::new());
    for len in [5, 0, 8192, 20_001, 1, 70_000] {
        list.push(Stretch { from: data.len(), to: 0, len, zeros: 0 });
        for _ in 0..len {
            let value = (random.f32() * 8.0 - 4.0) * 10.0_f32.powi(random.i32(-5..3));
            data.extend(element(value, dtype));
        }
        data.resize(data.len().next_multiple_of(if random.bool() { 16 } else { 4 }), 0);
    }
    (data, Plan::new(&list))
}

#[test]
#[ignore = "needs a compiler of C++: interop/nccl"]
fn norms_by_the_source_of_devices_are_those_of_their_twins() {
    let stub = built();
    // SAFETY: the type of this function.
    let launch: Launch = unsafe { stub.function("threads_launch") };
    let run = |kernel: i32, blocks: u32, words: &[u64]| {
        // SAFETY: a kernel that there is, and its arguments: memory that is as long as the plan and the numbers say.
        unsafe { launch(kernel, blocks, words.as_ptr()) }
    };
    let place = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
    let room = |numbers: &mut [f64]| numbers.as_mut_ptr().expose_provenance() as u64;
    let bytes = |numbers: &[f64]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
    let mut random = fastrand::Rng::with_seed(8);
    for ((kind, dtype), p) in
        (0..).zip(TYPES).flat_map(|of_type| [1.0, 2.0, 2.5, f64::INFINITY].map(|p: f64| (of_type, p)))
    {
        let (mut data, plan) = stretches(&mut random, dtype);
        let (stretches, tiles, table) = (plan.stretches() as u64, plan.tiles(0..plan.stretches()).end, plan.bytes());
        let (mut parts, mut sum, mut result) = (vec![0.0_f64; tiles as usize], [0.0], [0.0; 2]);
        let words = [place(&data), place(table), room(&mut parts), stretches, 0, tiles, p.to_bits()];
        run(kind, 3, &words);
        run(FOLD, 1, &[room(&mut parts), tiles, p.to_bits(), room(&mut sum)]);
        run(NORM, 1, &[room(&mut sum), 1, p.to_bits(), 3.0_f64.to_bits(), room(&mut result)]);
        let mut wanted = vec![0; parts.len() * 8];
        let kernel = Measure::kernel(dtype).expect("a kernel");
        assert!(measure(kernel, [&data, table], &mut wanted, [stretches, 0, tiles, p.to_bits()]));
        assert!(bytes(&parts) == wanted, "{dtype}, {p}: parts");
        assert_eq!(Some(sum[0]), fold(&wanted, tiles, p.to_bits()), "{dtype}, {p}");
        assert_eq!(Some(result), norm(&bytes(&sum), [1, p.to_bits(), 3.0_f64.to_bits()]), "{dtype}, {p}");
        let mut twin = data.clone();
        let kernel = Multiply::kernel(dtype).expect("a kernel");
        assert!(multiply(kernel, &mut twin, [table, &bytes(&result[1..])], [0, stretches, 0, tiles]));
        let (target, factor) = (data.as_mut_ptr().expose_provenance() as u64, room(&mut result[1..]));
        run(3 + kind, 3, &[target, place(table), factor, 0, stretches, 0, tiles]);
        assert!(data == twin, "{dtype}, {p}: multiplied");
    }
}

/// Elements of every kind: any bits at all, and numbers that are equal, opposite, the least, or none.
fn anything(random: &mut fastrand::Rng, dtype: DType, count: usize) -> Vec<u8> {
    let special = |value: f32| match dtype {
        DType::F64 => f64::from(value).to_ne_bytes().to_vec(),
        DType::F32 | DType::F16 | DType::BF16 => element(value, dtype),
        _ => (value as i64).to_ne_bytes()[..dtype.byte_len()].to_vec(),
    };
    let mut one = || match random.u8(..4) {
        0 => special([0.0, -0.0, 1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -3.0][random.usize(..7)]),
        _ => (0..dtype.byte_len()).map(|_| random.u8(..)).collect(),
    };
    (0..count).flat_map(|_| one()).collect()
}

#[test]
#[ignore = "needs a compiler of C++: interop/nccl"]
fn elements_joined_by_the_source_of_devices_are_those_of_the_twin() {
    let stub = built();
    // SAFETY: the type of this function.
    let launch: Launch = unsafe { stub.function("threads_launch") };
    let mut random = fastrand::Rng::with_seed(9);
    let own = [RedOp::SUM, RedOp::PRODUCT, RedOp::MAX, RedOp::MIN, RedOp::AVG].map(Way::Own);
    let ways = own.into_iter().chain([Way::Scale(Scalar::Host([0; 8]))]);
    for ((number, dtype), way) in Join::types().flat_map(|of_type| ways.clone().map(move |way| (of_type, way))) {
        let is_scaled = matches!(way, Way::Scale(_));
        if is_scaled && dtype.class() != phalanx_core::Class::Float {
            continue;
        }
        for (parts, shift) in
            [(1, 0), (1, 1), (2, 0), (3, 1), (8, 0), (8, 1)].into_iter().filter(|one| !is_scaled || one.0 == 1)
        {
            let count = random.usize(..3000);
            let (width, skip) = (dtype.byte_len(), shift * dtype.byte_len());
            // Sixteen bytes go at a time only where all begin at such a place, so they do, or all beside one.
            let room = |bytes: &[u8]| {
                let mut memory = vec![0_u8; bytes.len() + skip + 16];
                let start = memory.as_ptr().align_offset(16) + skip;
                memory[start..][..bytes.len()].copy_from_slice(bytes);
                (memory, start)
            };
            let place =
                |(memory, start): &mut (Vec<u8>, usize)| memory[*start..].as_mut_ptr().expose_provenance() as u64;
            let given: Vec<Vec<u8>> = (0..parts).map(|_| anything(&mut random, dtype, count)).collect();
            let mut lying: Vec<_> = given.iter().map(|bytes| room(bytes)).collect();
            let mut into = room(&vec![0; count * width]);
            let factor = anything(&mut random, dtype, 1);
            let mut words = vec![place(&mut into)];
            words.extend(lying.iter_mut().map(place));
            words.resize(9, 0);
            let way = way.number();
            let mut bits = [0; 8];
            bits[..width].copy_from_slice(&factor);
            let numbers = [parts as u64, count as u64, way, u64::from_le_bytes(bits)];
            words.extend([numbers[0], numbers[1], numbers[2], 0, numbers[3]]);
            // SAFETY: a kernel that there is, and its arguments: memory of so many elements each.
            unsafe { launch(JOINS + number.0, 2, words.as_ptr()) };
            let mut wanted = vec![0; count * width];
            let kernel = Join::kernel(number).expect("a kernel");
            let slices: Vec<&[u8]> = given.iter().map(Vec::as_slice).collect();
            assert!(join(kernel, &mut wanted, &slices, &[], numbers));
            let got = &into.0[into.1..][..count * width];
            let differs = got.chunks(width).zip(wanted.chunks(width)).position(|(got, wanted)| got != wanted);
            assert_eq!(differs, None, "{dtype}, {way}, {parts} parts of {count}, {shift} beside");
        }
    }
}
