//! The source that devices run, compiled for the host and run by its threads, beside the twins. Ignored unless asked for, because it needs a
//! compiler of C++: `interop/nccl` asks.

use std::path::Path;
use std::process::Command;

use half::{bf16, f16};
use phalanx_core::DType;
use phalanx_nccl::kernels::{Measure, Multiply, Plan, Stretch, fold, measure, multiply, norm};

use crate::stub::{Stub, directory};

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
/// As the library numbers them, after one to measure and one to multiply for each type.
const FOLD: i32 = 6;
const NORM: i32 = 7;

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
