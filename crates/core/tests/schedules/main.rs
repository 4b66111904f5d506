//! Schedules, exhaustively: every algorithm, world, size and segment count is valid and gives the oracle's answer.

mod bytes;
mod chooser;
mod formula;
mod ground;
mod matrix;
mod moving;
mod oracle;
mod pages;
mod random;
mod replay;
mod value;

use ground::{SEGMENTS, SIZES, WORLDS, both, roots, spread};
use phalanx_core::schedule::{Algorithm, Schedule, Step, check};
use phalanx_core::{Counts, DType, Op, ReduceOp};
use replay::{Case, Stage};

#[test]
fn all_reduce() {
    sweep(true, |count, _| vec![Op::AllReduce { count, reduce: ReduceOp::Sum }]);
}

#[test]
fn reduce() {
    sweep(true, |count, world| roots(world).map(|root| Op::Reduce { count, reduce: ReduceOp::Sum, root }).collect());
}

#[test]
fn broadcast() {
    sweep(true, |count, world| roots(world).map(|root| Op::Broadcast { count, root }).collect());
}

#[test]
fn all_gather() {
    sweep(true, |count, world| both(count, world).map(|counts| Op::AllGather { counts }).to_vec());
}

#[test]
fn reduce_scatter() {
    sweep(true, |count, world| {
        both(count, world).map(|counts| Op::ReduceScatter { counts, reduce: ReduceOp::Sum }).to_vec()
    });
}

#[test]
fn all_to_all() {
    sweep(false, |size, world| {
        let [even, _] = both(size, world);
        vec![Op::AllToAll { give: even.clone(), take: even }]
    });
}

#[test]
fn gather_and_scatter() {
    sweep(false, |count, world| {
        let with_root = |root| {
            both(count, world)
                .into_iter()
                .flat_map(move |counts| [Op::Gather { counts: counts.clone(), root }, Op::Scatter { counts, root }])
        };
        roots(world).flat_map(with_root).collect()
    });
}

#[test]
fn all_to_all_with_tables_of_their_own() {
    let mut stage = Stage::default();
    for world in WORLDS {
        for size in SIZES {
            let table = |from: usize, to: usize| size / world * ((from + 2 * to) % 3) + from % 2;
            let counts = |of: &dyn Fn(usize) -> usize| Counts::uneven(&(0..world).map(of).collect::<Vec<_>>());
            let op_of = |rank: usize| Op::AllToAll {
                give: counts(&|to| table(rank, to)),
                take: counts(&|from| table(from, rank)),
            };
            let scene = Scene::new(&op_of, world);
            for segments in SEGMENTS {
                let (op, hosts) = (&op_of(0), &vec![0; world][..]);
                scene.run(&mut stage, &case(op, &op_of, hosts, Algorithm::Exchange, segments));
            }
        }
    }
}

#[test]
fn barrier_lets_nobody_leave_before_all_have_come() {
    for world in WORLDS {
        for algorithm in [Algorithm::Dissemination, Algorithm::Direct] {
            let (op, hosts) = (&Op::Barrier, &vec![0; world][..]);
            let case = case(op, &|_| Op::Barrier, hosts, algorithm, 1);
            // Whoever waits for a rank directly or through others must be everybody.
            let schedules = case.schedules().unwrap();
            check(&schedules, hosts, |_, _| 0).unwrap();
            let heard = knowledge(&schedules);
            assert!(heard.iter().all(|known| known.iter().all(|&known| known)), "{case:?}: {heard:?}");
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
        Op::Gather { counts: counts.clone(), root },
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
        Step::PullAll { from, .. } => from.iter().any(|from| from.rank != rank),
        _ => false,
    })
}

/// Plays `ops` at every world, size and segment count with every algorithm, on one host and on several.
fn sweep(can_be_in_place: bool, ops: impl Fn(usize, usize) -> Vec<Op>) {
    let mut stage = Stage::default();
    for world in WORLDS {
        for size in SIZES {
            for op in ops(size, world) {
                let op_of = |_: usize| op.clone();
                let scene = Scene::new(&op_of, world);
                let played: Vec<_> =
                    Algorithm::ALL.into_iter().filter(|algorithm| algorithm.plays(&op, DType::I32)).collect();
                assert!(!played.is_empty());
                for algorithm in played {
                    for hosts in spread(world, algorithm) {
                        for segments in SEGMENTS {
                            let case = case(&op, &op_of, &hosts, algorithm, segments);
                            scene.run_everywhere(&mut stage, case, can_be_in_place);
                        }
                    }
                }
            }
        }
    }
}

/// A case out of place and without windows.
fn case<'a>(
    op: &'a Op,
    op_of: &'a dyn Fn(usize) -> Op,
    hosts: &'a [u32],
    algorithm: Algorithm,
    segments: usize,
) -> Case<'a> {
    Case { op, op_of, dtype: DType::I32, hosts, algorithm, segments, in_place: false, windows: false }
}

/// What all ranks give and should get, whatever the algorithm.
struct Scene {
    inputs: Vec<Vec<u8>>,
    expected: Vec<Option<Vec<u8>>>,
}

impl Scene {
    fn new(op_of: &dyn Fn(usize) -> Op, world: usize) -> Scene {
        let inputs: Vec<_> = (0..world).map(|rank| numbers(rank, op_of(rank).need(rank, world).input)).collect();
        let bytes = |numbers: Vec<i32>| bytemuck::cast_slice::<i32, u8>(&numbers).to_vec();
        let expected = oracle::outputs(op_of, &inputs, |all| all.iter().sum());
        Scene {
            inputs: inputs.into_iter().map(bytes).collect(),
            expected: expected.into_iter().map(|output| output.map(bytes)).collect(),
        }
    }

    /// In place and not, with windows and without, as far as the case can tell a difference.
    fn run_everywhere(&self, stage: &mut Stage, case: Case<'_>, can_be_in_place: bool) {
        for in_place in [false, true] {
            for windows in [false, true] {
                let tells = (!in_place || can_be_in_place) && (!windows || case.algorithm == Algorithm::TwoLevel);
                if tells {
                    self.run(stage, &Case { in_place, windows, ..case });
                }
            }
        }
    }

    fn run(&self, stage: &mut Stage, case: &Case<'_>) {
        case.play(&self.inputs, &[], stage);
        case.compare(stage, &self.inputs, &self.expected);
        if case.lend(&self.inputs, stage) {
            case.compare(stage, &self.inputs, &self.expected);
        }
    }
}

#[test]
fn long_data_is_lent_where_it_is_in_place_and_joined_without_factors() {
    let lends = |op: &Op, in_place, algorithm, segments| {
        let op_of = |_| op.clone();
        let case = Case { in_place, ..case(op, &op_of, &[0; 3], algorithm, segments) };
        let schedules = case.schedules().unwrap();
        schedules.into_iter().map(|schedule| schedule.lending.map(|lending| lending.room.is_some())).collect::<Vec<_>>()
    };
    let (reduce, root) = (ReduceOp::Sum, 1);
    let of = |count| [Op::AllReduce { count, reduce }, Op::Broadcast { count, root }];
    let [short, long] = [of(100), of(10_000)];
    assert_eq!(lends(&short[0], true, Algorithm::AtOnce, 1), [None; 3]);
    assert_eq!(lends(&short[0], true, Algorithm::AtOnce, 2), [Some(true); 3]);
    assert_eq!(lends(&long[0], true, Algorithm::AtOnce, 1), [Some(true); 3]);
    assert_eq!(lends(&long[0], false, Algorithm::Direct, 1), [Some(false); 3]);
    assert_eq!(lends(&long[0], true, Algorithm::Ring, 2), [None; 3], "over links");
    assert_eq!(lends(&long[1], true, Algorithm::Direct, 1), [Some(true); 3]);
    assert_eq!(lends(&long[1], false, Algorithm::Direct, 1), [Some(true), Some(false), Some(true)]);
    let scaled = Op::AllReduce { count: 10_000, reduce: ReduceOp::PreMulSum };
    assert_eq!(lends(&scaled, true, Algorithm::AtOnce, 2), [None; 3]);
}

/// Numbers that differ by rank and place, small enough that sums are exact.
fn numbers(rank: usize, len: usize) -> Vec<i32> {
    (0..len).map(|at| ((rank * 7919 + at * 31) % 2003) as i32 - 1000).collect()
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
            known[rank].iter_mut().zip(&before[from]).for_each(|(known, news)| *known |= news);
        }
    }
    known
}
