//! Rate of the pairwise sum, in bytes of the accumulator per second. `bench/kernels.sh` sets it beside the same in C.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use memmap2::{Advice, MmapMut};
use phalanx_core::{DType, ReduceOp, reduce};

const MIB: usize = 1 << 20;
const SIZES: [usize; 2] = [MIB, 64 * MIB];
const DTYPES: [DType; 5] = [DType::F32, DType::F64, DType::I32, DType::BF16, DType::F16];
/// Bytes of a huge page.
const HUGE: usize = 2 * MIB;

/// Touched memory on huge pages: without them the large size measures page walks.
fn buffer(len: usize) -> MmapMut {
    let mut memory = MmapMut::map_anon(len.next_multiple_of(HUGE)).expect("memory");
    memory.advise(Advice::HugePage).expect("huge pages");
    memory.fill(0);
    memory
}

fn fold_sum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fold_sum");
    for size in SIZES {
        group.sampling_mode(SamplingMode::Flat).throughput(Throughput::BytesDecimal(size as u64));
        let (mut accumulator, incoming) = (buffer(size), buffer(size));
        for dtype in DTYPES {
            let (accumulator, incoming) = (&mut accumulator[..size], &incoming[..size]);
            group.bench_function(BenchmarkId::new(dtype.name(), size / MIB), |bencher| {
                bencher.iter(|| reduce::fold(ReduceOp::Sum, dtype, black_box(accumulator), black_box(incoming)));
            });
        }
    }
}

fn short() -> Criterion {
    let criterion = Criterion::default().sample_size(15).nresamples(1000);
    criterion.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400))
}

criterion_group! {
    name = kernels;
    config = short();
    targets = fold_sum
}
criterion_main!(kernels);
