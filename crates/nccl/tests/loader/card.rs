//! What needs a card: kernels beside their twins.

use std::sync::Arc;

use phalanx_core::DType;
use phalanx_nccl::api::{Argument, Cuda, KernelId, RedOp, Span, Stream};
use phalanx_nccl::group::{DeviceBuffer, PinnedBuffer};
use phalanx_nccl::kernels::nan::{self, Pattern};
use phalanx_nccl::kernels::{
    Carry, Factor, Fold, Join, Measure, Multiply, Norm, Plan, Stretch, Way, carry, fold, join, measure, multiply, norm,
};
use phalanx_nccl::library::{CudaDriver, Program};

use place::{compiler, device, programs, search};

#[path = "../jobs/place.rs"]
#[allow(dead_code, reason = "some of it is for those who need NCCL too")]
mod place;

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Random stretches of several tiles, some of which begin where 16 bytes may not go at a time, and the bytes of both sides.
fn stretches(random: &mut fastrand::Rng, from: DType, to: DType) -> (Vec<Stretch>, [usize; 2]) {
    let (mut stretches, mut ends) = (Vec::new(), [0, 0]);
    for _ in 0..40 {
        let (len, zeros) = (random.usize(..30_000) >> random.usize(..12), random.usize(..20));
        stretches.push(Stretch { from: ends[0], to: ends[1], len, zeros });
        let gap = if random.bool() { 0 } else { 3 };
        let lens = [len * from.byte_len(), (len + zeros) * to.byte_len()];
        ends = [ends[0] + lens[0] + gap * from.byte_len(), ends[1] + lens[1] + gap * to.byte_len()];
        if random.bool() {
            ends = ends.map(|end| end.next_multiple_of(16));
        }
    }
    (stretches, ends)
}

/// Numbers of this type that are neither infinite nor none at all.
fn numbers(random: &mut fastrand::Rng, byte_len: usize, dtype: DType) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..byte_len).map(|_| random.u8(..)).collect();
    for element in bytes.chunks_exact_mut(dtype.byte_len()) {
        // The highest bit of the exponent is clear.
        element[dtype.byte_len() - 1] &= 0xbf;
    }
    bytes
}

#[test]
#[ignore = "needs a card"]
fn kernels_are_equal_to_their_twins_on_a_card() {
    let cuda = Arc::new(CudaDriver::open(&search()).expect("the driver"));
    let compiler = compiler();
    let stream = cuda.create_stream(device(), false).expect("a stream");
    let memory = |bytes: &[u8]| {
        let (host, memory) = (PinnedBuffer::new(&cuda, bytes.len())?, DeviceBuffer::new(&cuda, device(), bytes.len())?);
        host.write(bytes)?;
        cuda.copy(memory.span(), host.span(), stream).expect("copied");
        cuda.synchronize_stream(stream).expect("an end");
        Ok::<_, phalanx_core::Error>(memory)
    };
    let mut random = fastrand::Rng::with_seed(5);
    for program in programs(compiler.as_ref()) {
        place::load(&program, &cuda);
        let pairs = TYPES.into_iter().flat_map(|from| TYPES.map(|to| (from, to)));
        for ((from, to), (adds, divisor)) in
            pairs.flat_map(|pair| [(false, 1.0), (true, 1.0), (false, 3.0), (true, 2.0)].map(|way| (pair, way)))
        {
            let (list, [from_len, to_len]) = stretches(&mut random, from, to);
            let (source, mut target) = (numbers(&mut random, from_len, from), numbers(&mut random, to_len, to));
            let plan = Plan::new(&list);
            let [read, table, write] =
                [&source[..], plan.bytes(), &target[..]].map(|bytes| memory(bytes).expect("memory"));
            let tiles = plan.tiles(0..plan.stretches());
            let kernel = Carry::kernel(from, to, adds).expect("a kernel");
            let launch = Carry {
                into: write.span(),
                from: read.span(),
                table: table.span(),
                stretches: plan.stretches(),
                first: tiles.start,
                tiles: tiles.end - tiles.start,
                skip: 0,
                divisor,
            };
            let processors = cuda.device_info(device()).expect("a device").multiprocessors;
            let grid = Plan::grid(launch.tiles, processors);
            cuda.launch(kernel, grid, &launch.arguments(), stream).expect("launched");
            let host = PinnedBuffer::new(&cuda, to_len).expect("memory");
            cuda.copy(host.span(), write.span(), stream).expect("copied");
            cuda.synchronize_stream(stream).expect("an end");
            let mut got = vec![0; to_len];
            host.read(&mut got).expect("read");
            let numbers = [plan.stretches() as u64, launch.first, launch.tiles, 0];
            assert!(carry(kernel, &mut target, [&source, plan.bytes()], numbers, divisor));
            assert!(got == target, "{program:?}: {from} to {to}, adds {adds}, divided by {divisor}");
        }
    }
}

/// A card with the kernels that this crate was made with, and a stream on it.
struct Card {
    cuda: Arc<CudaDriver>,
    stream: Stream,
}

impl Card {
    fn new() -> Card {
        let cuda = Arc::new(CudaDriver::open(&search()).expect("the driver"));
        place::load(&Program::new(), &cuda);
        let stream = cuda.create_stream(device(), false).expect("a stream");
        Card { cuda, stream }
    }

    fn put(&self, bytes: &[u8]) -> DeviceBuffer<CudaDriver> {
        let memory = DeviceBuffer::new(&self.cuda, device(), bytes.len()).expect("memory");
        let host = PinnedBuffer::new(&self.cuda, bytes.len()).expect("memory");
        host.write(bytes).expect("written");
        self.cuda.copy(memory.span(), host.span(), self.stream).expect("copied");
        self.cuda.synchronize_stream(self.stream).expect("an end");
        memory
    }

    fn read(&self, memory: &DeviceBuffer<CudaDriver>) -> Vec<u8> {
        let host = PinnedBuffer::new(&self.cuda, memory.byte_len()).expect("memory");
        self.cuda.copy(host.span(), memory.span(), self.stream).expect("copied");
        self.cuda.synchronize_stream(self.stream).expect("an end");
        let mut bytes = vec![0; memory.byte_len()];
        host.read(&mut bytes).expect("read");
        bytes
    }

    fn launch(&self, kernel: KernelId, tiles: u64, arguments: &[Argument]) {
        let processors = self.cuda.device_info(device()).expect("a device").multiprocessors;
        self.cuda.launch(kernel, Plan::grid(tiles, processors), arguments, self.stream).expect("launched");
    }
}

/// As near as powers of the card are to those of the host; to the bit where there are none.
fn is_near(got: &[u8], wanted: &[u8], p: f64) -> bool {
    let numbers = |bytes: &[u8]| -> Vec<f64> {
        bytes.chunks_exact(8).map(|number| f64::from_ne_bytes(number.try_into().expect("8 bytes"))).collect()
    };
    let near = |(got, wanted): (&f64, &f64)| (got - wanted).abs() <= 1e-12 * wanted.abs();
    match [1.0, 2.0, f64::INFINITY].contains(&p) {
        true => got == wanted,
        false => numbers(got).iter().zip(&numbers(wanted)).all(near),
    }
}

#[test]
#[ignore = "needs a card"]
fn norms_are_equal_to_their_twins_on_a_card() {
    let card = Card::new();
    let mut random = fastrand::Rng::with_seed(6);
    for (dtype, p) in TYPES.into_iter().flat_map(|dtype| [1.0, 2.0, 3.0, f64::INFINITY].map(|p| (dtype, p))) {
        let (list, [byte_len, _]) = stretches(&mut random, dtype, dtype);
        let plan = Plan::new(&list.iter().map(|stretch| Stretch { zeros: 0, ..*stretch }).collect::<Vec<_>>());
        let (tiles, stretches) = (plan.tiles(0..plan.stretches()).end, plan.stretches());
        let mut data = numbers(&mut random, byte_len, dtype);
        let [read, table, parts] = [&data[..], plan.bytes(), &vec![0; tiles as usize * 8]].map(|bytes| card.put(bytes));
        let [sum, result] = [8, 16].map(|byte_len| card.put(&vec![0; byte_len]));
        let (memory, place, bits) = (read.span(), table.span(), p.to_bits());
        let kernel = Measure::kernel(dtype).expect("a kernel");
        let launch = Measure { data: memory, table: place, parts: parts.span(), stretches, tiles, p };
        card.launch(kernel, tiles, &launch.arguments());
        let mut wanted = vec![0; tiles as usize * 8];
        assert!(measure(kernel, [&data, plan.bytes()], &mut wanted, [stretches as u64, 0, tiles, bits]));
        let got = card.read(&parts);
        assert!(is_near(&got, &wanted, p), "{dtype}, {p}: parts");
        card.launch(Fold::KERNEL, 1, &Fold { parts: parts.span(), p, sum: sum.span() }.arguments());
        let all = fold(&got, tiles, bits).expect("a sum").to_ne_bytes();
        assert_eq!(card.read(&sum), all, "{dtype}, {p}: the sum");
        let most = 3.0;
        card.launch(Norm::KERNEL, 1, &Norm { sums: sum.span(), p, most, norm: result.span() }.arguments());
        let wanted = norm(&all, [1, bits, most.to_bits()]).expect("a norm").map(f64::to_ne_bytes).concat();
        let got = card.read(&result);
        assert!(is_near(&got, &wanted, p), "{dtype}, {p}: the norm");
        let kernel = Multiply::kernel(dtype).expect("a kernel");
        let by = Factor::At(result.part(8, 8).expect("a part").span());
        let launch = Multiply { data: memory, table: place, by, stretches, tiles };
        card.launch(kernel, tiles, &launch.arguments());
        assert!(multiply(kernel, &mut data, [plan.bytes(), &got[8..]], [0, stretches as u64, 0, tiles]));
        assert!(card.read(&read) == data, "{dtype}, {p}: multiplied");
    }
}

#[test]
#[ignore = "needs a card"]
fn elements_joined_on_a_card_are_those_of_the_twin() {
    let card = Card::new();
    let mut random = fastrand::Rng::with_seed(7);
    for (number, dtype) in Join::types() {
        let kernel = Join::kernel(number).expect("a kernel");
        for way in [RedOp::SUM, RedOp::PRODUCT, RedOp::MAX, RedOp::MIN, RedOp::AVG].map(Way::Own) {
            let (parts, count) = (random.usize(1..=8), random.usize(1..50_000));
            let given: Vec<Vec<u8>> =
                (0..parts).map(|_| numbers(&mut random, count * dtype.byte_len(), dtype)).collect();
            let lying: Vec<_> = given.iter().map(|bytes| card.put(bytes)).collect();
            let spans: Vec<Span> = lying.iter().map(DeviceBuffer::span).collect();
            let into = card.put(&vec![0; count * dtype.byte_len()]);
            let launch = Join { into: into.span(), parts: &spans, way, count };
            let processors = card.cuda.device_info(device()).expect("a device").multiprocessors;
            let arguments = launch.arguments();
            card.cuda.launch(kernel, launch.grid(processors), &arguments, card.stream).expect("launched");
            let mut wanted = vec![0; count * dtype.byte_len()];
            let slices: Vec<&[u8]> = given.iter().map(Vec::as_slice).collect();
            assert!(join(kernel, &mut wanted, &slices, &[], [parts as u64, count as u64, way.number(), 0]));
            assert!(card.read(&into) == wanted, "{dtype}, {way:?}: {parts} parts of {count}");
        }
    }
}

#[test]
#[ignore = "needs a card"]
fn the_first_nan_is_found_on_a_card() {
    let (card, compiler) = (Card::new(), compiler());
    let mut random = fastrand::Rng::with_seed(8);
    for program in programs(compiler.as_ref()) {
        place::load(&program, &card.cuda);
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E5M2] {
            let (pattern, width) = (Pattern::of(dtype).expect("a type with NaN"), dtype.byte_len());
            let mut data = numbers(&mut random, 300_001 * width, dtype);
            for at in [None, Some(300_000), Some(31_337)] {
                if let Some(at) = at {
                    data[at * width..][..width].fill(0xFF);
                }
                let (read, first) = (card.put(&data), card.put(&nan::NONE.to_ne_bytes()));
                let (arguments, grid) = (pattern.arguments(read.span(), first.span()), pattern.grid(data.len()));
                card.cuda.launch(pattern.kernel(), grid, &arguments, card.stream).expect("launched");
                let wanted = at.map_or(nan::NONE, |at| at as u64);
                assert_eq!(card.read(&first), wanted.to_ne_bytes(), "{program:?}: {dtype}, {at:?}");
            }
        }
    }
}
