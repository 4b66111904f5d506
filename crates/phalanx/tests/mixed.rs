//! Two ranks in Rust and two in Python form one group, and five collectives give on each what plain arithmetic gives: every reduction,
//! dtype, length and root. Python's half, with the same numbers, is `crates/py/tests/mixed_rank.py`.
//!
//! Needs a Python with PyTorch and the package, named by `PHALANX_TEST_PYTHON`: `interop/python` has one.

use std::env;
use std::path::Path;
use std::process::{Child, Command};

use phalanx::{Class, Counts, DType, Group, Op, ReduceOp, bf16, f16};

#[test]
#[ignore = "needs PyTorch and the package: interop/python"]
fn rust_and_python_ranks_agree_on_every_value() {
    let directory = env::temp_dir().join(format!("phalanx-mixed-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a new directory");
    let url = |rank: usize| format!("file://{}/store?rank={rank}&world_size={SIZE}", directory.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../py/tests/mixed_rank.py");
    let python = env::var("PHALANX_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let ranks: Vec<Child> = (0..SIZE)
        .map(|rank| {
            let mut command = if rank % 2 == 0 {
                let mut command = Command::new(env::current_exe().expect("this program"));
                command.args(["--exact", "--ignored", "--nocapture", "a_rank_in_rust"]);
                command
            } else {
                let mut command = Command::new(&python);
                command.arg(&script);
                command
            };
            command.env(URL, url(rank)).spawn().expect("a rank")
        })
        .collect();
    let ends: Vec<bool> = ranks.into_iter().map(|mut rank| rank.wait().expect("our child").success()).collect();
    std::fs::remove_dir_all(&directory).expect("ours");
    assert_eq!(ends, [true; SIZE]);
}

#[test]
#[ignore = "one rank of the test above, which starts it"]
fn a_rank_in_rust() {
    let Ok(url) = env::var(URL) else { return };
    let world = phalanx::join(&url).expect("a world");
    let group = world.group().expect("a group");
    for length in LENGTHS {
        // torch.distributed hands complex numbers to some collectives as twice as many real ones.
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.class() != Class::Complex) {
            for wild in if is_float(dtype) { &[false, true][..] } else { &[false] } {
                let given: Vec<Vec<f64>> = (0..SIZE).map(|rank| values(rank, length, dtype, *wild)).collect();
                Sweep { group: &group, dtype, given }.play();
            }
        }
    }
    group.barrier().expect("all are done");
}

/// All ranks' numbers of one dtype, through the five collectives.
struct Sweep<'a> {
    group: &'a Group,
    dtype: DType,
    given: Vec<Vec<f64>>,
}

impl Sweep<'_> {
    fn play(&self) {
        let (length, rank) = (self.given[0].len(), self.group.rank());
        let (part, ours) = (length / SIZE, rank * (length / SIZE)..(rank + 1) * (length / SIZE));
        for reduce in reductions(self.dtype) {
            let expected: Vec<f64> = (0..length).map(|at| self.reduced(at, reduce)).collect();
            self.run(Op::AllReduce { count: length, reduce }, &self.given[rank], &expected);
            let counts = Counts::Even(part);
            self.run(Op::ReduceScatter { counts, reduce }, &self.given[rank][..part * SIZE], &expected[ours.clone()]);
        }
        for root in 0..SIZE {
            let mut data = self.bytes(&self.given[rank]);
            let op = Op::Broadcast { count: length, root };
            self.group.run_bytes(op.clone(), self.dtype, None, None, &mut data).expect("a collective");
            self.compare(&op, &data, &self.given[root]);
        }
        self.run(Op::AllGather { counts: Counts::Even(length) }, &self.given[rank], &self.given.concat());
        let parts: Vec<f64> = self.given.iter().flat_map(|given| given[ours.clone()].to_vec()).collect();
        let op = Op::AllToAll { give: Counts::Even(part), take: Counts::Even(part) };
        self.run(op, &self.given[rank][..part * SIZE], &parts);
    }

    fn run(&self, op: Op, input: &[f64], expected: &[f64]) {
        let mut output = vec![0xa5; expected.len() * self.dtype.byte_len()];
        self.group
            .run_bytes(op.clone(), self.dtype, None, Some(&self.bytes(input)), &mut output)
            .expect("a collective");
        self.compare(&op, &output, expected);
    }

    fn bytes(&self, numbers: &[f64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| encoded(self.dtype, *number).into_iter().take(self.dtype.byte_len())).collect()
    }

    fn compare(&self, op: &Op, output: &[u8], expected: &[f64]) {
        let byte_len = self.dtype.byte_len();
        for (at, (bytes, expected)) in output.chunks_exact(byte_len).zip(expected).enumerate() {
            // Which NaN it is, is nobody's promise.
            let same =
                *bytes == encoded(self.dtype, *expected)[..byte_len] || expected.is_nan() && is_nan(self.dtype, bytes);
            assert!(same, "{op:?} of {:?}: element {at} is {bytes:?}, must be {expected}", self.dtype);
        }
    }

    /// What the ranks' elements at one place are together. All numbers are so small that every dtype holds them.
    fn reduced(&self, at: usize, reduce: ReduceOp) -> f64 {
        let all = || self.given.iter().map(|given| given[at]);
        let bits = |join: fn(u64, u64) -> u64| all().map(|number| number as u64).reduce(join).expect("ranks") as f64;
        let or_nan = |pick: fn(f64, f64) -> f64| {
            move |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) }
        };
        let whole = |number: f64| if self.dtype == DType::Bool { number.min(1.0) } else { number };
        match reduce {
            ReduceOp::Sum => whole(all().sum()),
            ReduceOp::Product => all().product(),
            ReduceOp::Min => all().reduce(or_nan(f64::min)).expect("ranks"),
            ReduceOp::Max => all().reduce(or_nan(f64::max)).expect("ranks"),
            ReduceOp::Avg if is_float(self.dtype) => all().sum::<f64>() / SIZE as f64,
            ReduceOp::Avg => (all().sum::<f64>() / SIZE as f64).trunc(),
            ReduceOp::BitAnd => bits(|a, b| a & b),
            ReduceOp::BitOr => bits(|a, b| a | b),
            ReduceOp::BitXor => bits(|a, b| a ^ b),
            other => panic!("{other:?} is not played"),
        }
    }
}

/// What a rank gives. The wild ones have a NaN and infinities here and there.
fn values(rank: usize, length: usize, dtype: DType, wild: bool) -> Vec<f64> {
    let value = |at: usize| match (wild, at % 7) {
        (true, 3) if rank == at % SIZE => f64::NAN,
        (true, 5) if rank < 2 => [f64::INFINITY, f64::NEG_INFINITY][(rank + at) % 2 * (at % 2)],
        _ if dtype == DType::Bool => ((at * 5 + rank * 3) % 4 / 2) as f64,
        _ => ((at * 5 + rank * 3) % 4) as f64,
    };
    (0..length).map(value).collect()
}

fn reductions(dtype: DType) -> Vec<ReduceOp> {
    let bits = [ReduceOp::BitAnd, ReduceOp::BitOr, ReduceOp::BitXor];
    let order = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
    match dtype.class() {
        Class::Float8 | Class::Complex => vec![],
        Class::Bool => [&order[..], &bits].concat(),
        Class::Float => [&order[..], &[ReduceOp::Avg]].concat(),
        _ => [&order[..], &[ReduceOp::Avg], &bits].concat(),
    }
}

fn is_float(dtype: DType) -> bool {
    dtype.class() == Class::Float
}

/// A number as it lies in memory, in the first bytes. Eight-bit floats are only moved: theirs is a byte like any other.
fn encoded(dtype: DType, number: f64) -> [u8; 8] {
    match dtype {
        DType::F64 => number.to_le_bytes(),
        DType::F32 => u64::from((number as f32).to_bits()).to_le_bytes(),
        DType::F16 => u64::from(f16::from_f64(number).to_bits()).to_le_bytes(),
        DType::BF16 => u64::from(bf16::from_f64(number).to_bits()).to_le_bytes(),
        _ => (number as u64).to_le_bytes(),
    }
}

fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    match dtype {
        DType::F64 => f64::from_le_bytes(bytes.try_into().expect("its size")).is_nan(),
        DType::F32 => f32::from_le_bytes(bytes.try_into().expect("its size")).is_nan(),
        DType::F16 => f16::from_le_bytes(bytes.try_into().expect("its size")).is_nan(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().expect("its size")).is_nan(),
        _ => false,
    }
}

const SIZE: usize = 4;
const LENGTHS: [usize; 4] = [0, 1, 1000, 1_048_577];
/// Names the world to a rank.
const URL: &str = "PHALANX_TEST_MIXED_URL";
