//! The check for NaN of memory of the device: what it finds and names, and that nothing was moved.

use phalanx_core::{Counts, DType, Error, ErrorKind, Message, Op, ReduceOp, Result};
use phalanx_nccl::group::NcclOptions;
use phalanx_nccl::sim::Simulation;

use crate::seats::{DEVICE, clean, group, seeds};
use crate::setting::Member;
use phalanx_nccl::api::Cuda;

/// Three ranks whose groups check; how each ended.
fn checked(seed: u64, program: impl Fn(&Member) -> Result<()> + Send + Sync + 'static) -> Vec<Result<()>> {
    let outcome = Simulation::new(3, seed).run(move |rank| {
        let group = group(&rank, "group", NcclOptions::default().check_nan(true)).expect("a group");
        let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        program(&Member { rank: rank.rank, size: rank.size, group, cuda: rank.cuda.clone(), stream })
    });
    clean(&outcome, seed);
    outcome.results.into_iter().map(|end| end.expect("an end")).collect()
}

/// Elements of a type, of which one is a NaN on one rank.
fn bytes(dtype: DType, len: usize, nan: Option<usize>) -> Vec<u8> {
    let one = |at: usize| -> Vec<u8> {
        let value = if nan == Some(at) { f64::NAN } else { 1.0 };
        match dtype {
            DType::F64 => value.to_le_bytes().to_vec(),
            DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
            DType::BF16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
            DType::Complex64 => [1.0, value as f32].iter().flat_map(|part| part.to_le_bytes()).collect(),
            DType::F8E5M2 => vec![if nan == Some(at) { 0x7E } else { 0x3C }],
            _ => (value as f32).to_le_bytes().to_vec(),
        }
    };
    (0..len).flat_map(one).collect()
}

/// That rank 1 is told of the place, and the others of what rank 1 was told.
fn told(ends: &[Result<()>], words: &str) {
    for (rank, end) in ends.iter().enumerate() {
        let error = end.as_ref().expect_err("a NaN");
        assert!(error.to_string().contains(words), "rank {rank}: {error}");
        assert_eq!(error.kind() == ErrorKind::Usage, rank == 1, "rank {rank}: {error}");
    }
}

#[test]
fn the_place_is_named_whatever_the_type() {
    let types = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::Complex64, DType::F8E5M2];
    for (seed, dtype) in seeds(2).flat_map(|seed| types.map(|dtype| (seed, dtype))) {
        let ends = checked(seed, move |member| {
            let own = member.upload(&bytes(dtype, 700, (member.rank == 1).then_some(613)));
            let all = member.upload(&bytes(dtype, 2100, None));
            let op = Op::AllGather { counts: Counts::Even(700) };
            member.group.submit(op, dtype, None, (Some(&own), &all), member.stream)?.wait()
        });
        told(&ends, "all_gather: input is NaN at element 613 on rank 1, must be numbers, as this group checks");
    }
}

#[test]
fn in_place_only_what_a_rank_gives_is_looked_at() {
    for seed in seeds(4) {
        // What the others will write is full of NaN before.
        let run = move |own: Option<usize>| {
            checked(seed, move |member| {
                let mut all = bytes(DType::F32, 12, None);
                for part in (0..3).filter(|part| *part != member.rank) {
                    all[16 * part..16 * (part + 1)].copy_from_slice(&[0xFF; 16]);
                }
                if let (1, Some(at)) = (member.rank, own) {
                    all[16 + 4 * at..20 + 4 * at].copy_from_slice(&f32::NAN.to_le_bytes());
                }
                let all = member.upload(&all);
                let op = Op::AllGather { counts: Counts::Even(4) };
                member.group.submit(op, DType::F32, None, (None, &all), member.stream)?.wait()?;
                let op = Op::Broadcast { count: 12, root: 0 };
                member.group.submit(op, DType::F32, None, (None, &all), member.stream)?.wait()
            })
        };
        assert!(run(None).iter().all(Result::is_ok));
        told(&run(Some(2)), "all_gather: data is NaN at element 6 on rank 1");
    }
}

#[test]
fn batches_and_memory_of_the_host_are_looked_at_too() {
    let ends = checked(1, |member| {
        let datas = [0, 1].map(|at| member.upload(&bytes(DType::F32, 8, (member.rank == 1 && at == 1).then_some(5))));
        let work = member.group.coalesce(member.stream, |batch| {
            for data in &datas {
                batch.add(Op::AllReduce { count: 8, reduce: ReduceOp::Sum }, DType::F32, None, (None, data));
            }
        });
        work?.wait()
    });
    told(&ends, "all_reduce: data is NaN at element 5 on rank 1");
    let ends = checked(2, |member| {
        let value = if member.rank == 1 { f32::NAN } else { 1.0 };
        member.group.group().all_reduce(&mut [1.0, value], ReduceOp::Max)
    });
    told(&ends, "NaN at element 1 on rank 1");
    let ends = checked(3, |member| {
        let (to, from) = ((member.rank + 1) % 3, (member.rank + 2) % 3);
        let value = if member.rank == 1 { f64::NAN } else { 1.0 };
        let messages = vec![
            Message::Send { data: vec![value], to, tag: 0 },
            Message::Recv { data: vec![f64::NAN], from: Some(from), tag: 0 },
        ];
        member.group.group().batch(messages).map(drop)
    });
    told(&ends, "send: input is NaN at element 0 on rank 1");
}

#[test]
fn numbers_pass_and_so_does_what_can_be_no_nan() {
    let ends = checked(4, |member| {
        let data = member.upload(&bytes(DType::F32, 8, None));
        let op = || Op::AllReduce { count: 8, reduce: ReduceOp::Sum };
        member.group.submit(op(), DType::F32, None, (None, &data), member.stream)?.wait()?;
        // The bits of a NaN as a whole number.
        let whole = member.upload(&[0xFF; 32]);
        member.group.submit(op(), DType::I32, None, (None, &whole), member.stream)?.wait()?;
        member.group.barrier(member.stream)?.wait()
    });
    assert!(
        ends.iter().all(Result::is_ok),
        "{:?}",
        ends.iter().filter_map(|end| end.as_ref().err()).collect::<Vec<&Error>>()
    );
}
