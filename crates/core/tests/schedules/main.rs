//! Schedules, exhaustively: every algorithm, world, size and segment count is valid and gives the oracle's answer.

mod oracle;
mod replay;

use phalanx_core::schedule::{Algorithm, Schedule, Step, check};
use phalanx_core::{Counts, DType, Op, ReduceOp};
use replay::{Case, Memory};

const WORLDS: std::ops::RangeInclusive<usize> = 1..=17;
const SIZES: [usize; 6] = [0, 1, 2, 7, 1000, 65537];
const SEGMENTS: [usize; 3] = [1, 3, 8];

#[test]
fn all_reduce() {
    sweep(true, |count, _| {
        vec![Op::AllReduce {
            count,
            reduce: ReduceOp::Sum,
        }]
    });
}

#[test]
fn reduce() {
    sweep(true, |count, world| {
        roots(world)
            .map(|root| Op::Reduce {
                count,
                reduce: ReduceOp::Sum,
                root,
            })
            .collect()
    });
}

#[test]
fn broadcast() {
    sweep(true, |count, world| {
        roots(world).map(|root| Op::Broadcast { count, root }).collect()
    });
}

#[test]
fn all_gather() {
    sweep(true, |count, world| {
        both(count, world).map(|counts| Op::AllGather { counts }).to_vec()
    });
}

#[test]
fn reduce_scatter() {
    sweep(true, |count, world| {
        both(count, world)
            .map(|counts| Op::ReduceScatter {
                counts,
                reduce: ReduceOp::Sum,
            })
            .to_vec()
    });
}

#[test]
fn all_to_all() {
    sweep(false, |size, world| {
        let [even, _] = both(size, world);
        vec![Op::AllToAll {
            give: even.clone(),
            take: even,
        }]
    });
}

#[test]
fn gather_and_scatter() {
    sweep(false, |count, world| {
        let with_root = |root| {
            both(count, world).into_iter().flat_map(move |counts| {
                [
                    Op::Gather {
                        counts: counts.clone(),
                        root,
                    },
                    Op::Scatter { counts, root },
                ]
            })
        };
        roots(world).flat_map(with_root).collect()
    });
}

#[test]
fn all_to_all_with_tables_of_their_own() {
    for world in WORLDS {
        for size in SIZES {
            let table = |from: usize, to: usize| size / world * ((from + 2 * to) % 3) + from % 2;
            let counts = |of: &dyn Fn(usize) -> usize| Counts::uneven(&(0..world).map(of).collect::<Vec<_>>());
            let op_of = |rank: usize| Op::AllToAll {
                give: counts(&|to| table(rank, to)),
                take: counts(&|from| table(from, rank)),
            };
            for segments in SEGMENTS {
                let hosts = vec![0; world];
                let algorithm = Algorithm::Exchange;
                let op = &op_of(0);
                let dtype = DType::I32;
                run(&Case {
                    op,
                    op_of: &op_of,
                    dtype,
                    hosts: &hosts,
                    algorithm,
                    segments,
                    in_place: false,
                    windows: true,
                });
            }
        }
    }
}

#[test]
fn barrier_lets_nobody_leave_before_all_have_come() {
    for world in WORLDS {
        for algorithm in [Algorithm::Dissemination, Algorithm::Direct] {
            let (op, dtype, hosts) = (&Op::Barrier, DType::U8, &vec![0; world][..]);
            let case = Case {
                op,
                op_of: &|_| Op::Barrier,
                dtype,
                hosts,
                algorithm,
                segments: 1,
                in_place: false,
                windows: true,
            };
            // Whoever waits for a rank directly or through others must be everybody.
            let schedules = case.schedules().unwrap();
            check(&schedules, hosts, |_, _| 0).unwrap();
            let heard = knowledge(&schedules);
            assert!(
                heard.iter().all(|known| known.iter().all(|&known| known)),
                "{case:?}: {heard:?}"
            );
        }
    }
}

#[test]
fn every_rank_hears_from_another_through_windows() {
    let (count, root, reduce) = (5, 1, ReduceOp::Sum);
    let counts = Counts::Even(count);
    let ops = [
        Op::AllReduce { count, reduce },
        Op::Reduce { count, reduce, root },
        Op::Broadcast { count, root },
        Op::AllGather { counts: counts.clone() },
        Op::Gather {
            counts: counts.clone(),
            root,
        },
        Op::Scatter { counts, root },
    ];
    for (op, world) in ops.iter().flat_map(|op| (2..=17).map(move |world| (op, world))) {
        let case = Case {
            op,
            op_of: &|_| op.clone(),
            dtype: DType::I32,
            hosts: &vec![0; world],
            algorithm: Algorithm::Direct,
            segments: 3,
            in_place: false,
            windows: true,
        };
        let schedules = case.schedules().unwrap();
        assert!(schedules.iter().enumerate().all(hears_another), "{case:?}");
    }
}

fn hears_another((rank, schedule): (usize, &Schedule)) -> bool {
    schedule.steps.iter().any(|step| match step {
        Step::Pull { from, .. } => *from != rank,
        Step::PullAll { from, .. } => from.iter().any(|from| *from != rank),
        _ => false,
    })
}

/// Plays `ops` at every world, size and segment count with every algorithm, on one host and on several.
fn sweep(can_be_in_place: bool, ops: impl Fn(usize, usize) -> Vec<Op>) {
    let mut played = std::collections::BTreeSet::new();
    for world in WORLDS {
        for size in SIZES {
            for op in ops(size, world) {
                for algorithm in Algorithm::ALL
                    .into_iter()
                    .filter(|algorithm| algorithm.plays(&op, DType::I32))
                {
                    played.insert(algorithm);
                    for segments in SEGMENTS {
                        sweep_ground(&op, world, algorithm, segments, can_be_in_place);
                    }
                }
            }
        }
    }
    assert!(!played.is_empty());
}

fn sweep_ground(op: &Op, world: usize, algorithm: Algorithm, segments: usize, can_be_in_place: bool) {
    let grounds = if algorithm == Algorithm::TwoLevel {
        spread(world)
    } else {
        vec![vec![0; world]]
    };
    for hosts in &grounds {
        for in_place in [false, true]
            .into_iter()
            .filter(|in_place| !in_place || can_be_in_place)
        {
            for windows in [false, true]
                .into_iter()
                .filter(|windows| !windows || algorithm == Algorithm::TwoLevel)
            {
                let op_of = |_: usize| op.clone();
                run(&Case {
                    op,
                    op_of: &op_of,
                    dtype: DType::I32,
                    hosts,
                    algorithm,
                    segments,
                    in_place,
                    windows,
                });
            }
        }
    }
}

/// Plays one case on small numbers and compares every rank with the oracle.
fn run(case: &Case<'_>) {
    let Some(schedules) = case.schedules() else {
        panic!("{case:?} cannot be built")
    };
    let size = case.size();
    let need = |rank: usize| (case.op_of)(rank).need(rank, size);
    let inputs: Vec<Vec<i32>> = (0..size).map(|rank| numbers(rank, need(rank).input)).collect();
    let expected = oracle::outputs(case.op_of, &inputs, |all| all.iter().sum());
    let mut memory: Vec<Memory> = (0..size).map(|rank| memory_of(case, rank, &inputs[rank])).collect();
    let before: Vec<Vec<u8>> = memory.iter().map(|memory| memory.output.clone()).collect();
    case.play(&schedules, &mut memory, None);
    for (rank, expected) in expected.into_iter().enumerate() {
        let output = &memory[rank].output;
        match expected {
            Some(expected) => {
                let start = result_start(case, rank);
                let got = &output[start * 4..][..expected.len() * 4];
                assert!(
                    got == bytemuck::cast_slice::<i32, u8>(&expected),
                    "{case:?}: rank {rank} has a wrong answer"
                );
            }
            None => assert!(*output == before[rank], "{case:?}: rank {rank}'s buffer was touched"),
        }
    }
}

fn memory_of(case: &Case<'_>, rank: usize, input: &[i32]) -> Memory {
    let op = (case.op_of)(rank);
    let bytes = |numbers: &[i32]| bytemuck::cast_slice::<i32, u8>(numbers).to_vec();
    if !case.in_place {
        let output = vec![-1; op.need(rank, case.size()).output];
        return Memory::new(bytes(input), bytes(&output));
    }
    let mut output = vec![-1; op.need_in_place(rank, case.size()).expect("works in place")];
    let start = if let Op::AllGather { counts } = &op {
        (0..rank).map(|before| counts.of(before)).sum()
    } else {
        0
    };
    output[start..start + input.len()].copy_from_slice(input);
    Memory::new(vec![], bytes(&output))
}

/// Where in the output buffer the result begins.
fn result_start(case: &Case<'_>, rank: usize) -> usize {
    match (case.op, case.in_place) {
        (Op::ReduceScatter { counts, .. }, true) => (0..rank).map(|before| counts.of(before)).sum(),
        _ => 0,
    }
}

/// Numbers that differ by rank and place, small enough that sums are exact.
fn numbers(rank: usize, len: usize) -> Vec<i32> {
    (0..len)
        .map(|at| ((rank * 7919 + at * 31) % 2003) as i32 - 1000)
        .collect()
}

fn roots(world: usize) -> impl Iterator<Item = usize> {
    let mut roots = vec![0, world / 2, world - 1];
    roots.dedup();
    roots.into_iter()
}

/// Even counts and uneven ones, some of them zero. The largest size is that of the whole, so that the suite stays quick.
fn both(size: usize, world: usize) -> [Counts; 2] {
    let count = if size > 1000 { size / world } else { size };
    let uneven: Vec<usize> = (0..world).map(|rank| [count, 0, count / 2 + 1][rank % 3]).collect();
    [Counts::Even(count), Counts::uneven(&uneven)]
}

/// Ways to spread a world over hosts: one, two of equal size, uneven blocks, scattered.
fn spread(world: usize) -> Vec<Vec<u32>> {
    let ranks = 0..world as u32;
    vec![
        vec![0; world],
        ranks.clone().map(|rank| rank / (world as u32).div_ceil(2)).collect(),
        ranks.clone().map(|rank| rank / 3).collect(),
        ranks.map(|rank| rank % 3).collect(),
    ]
}

/// `knowledge[a][b]`: whether rank `a`, when it ends, can know that rank `b` has begun. What is learnt in a step can be
/// told in the next one only.
fn knowledge(schedules: &[Schedule]) -> Vec<Vec<bool>> {
    let world = schedules.len();
    let mut known: Vec<Vec<bool>> = (0..world).map(|a| (0..world).map(|b| a == b).collect()).collect();
    for at in 0..schedules.iter().map(|schedule| schedule.steps.len()).max().unwrap_or(0) {
        let before = known.clone();
        for (rank, schedule) in schedules.iter().enumerate() {
            let from = match schedule.steps.get(at) {
                Some(Step::Move { recv: Some(recv), .. }) => recv.from,
                Some(Step::Pull { from, .. }) => *from,
                _ => continue,
            };
            known[rank]
                .iter_mut()
                .zip(&before[from])
                .for_each(|(known, news)| *known |= news);
        }
    }
    known
}
