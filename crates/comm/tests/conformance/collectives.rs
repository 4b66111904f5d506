//! Every collective: blocking and asynchronous, even and uneven, apart and in place.

use half::bf16;
use phalanx_core::{Counts, DType, Element, Group, Op, ReduceOp};

use crate::case::{Case, Sample};
use crate::setting::{Setting, WORLDS};

/// The collectives of a group, one for each method that blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    AllReduce,
    AllReduceInto,
    Reduce,
    ReduceInto,
    Broadcast,
    AllGather,
    AllGatherUneven,
    ReduceScatter,
    ReduceScatterUneven,
    AllToAll,
    AllToAllUneven,
    Gather,
    GatherUneven,
    Scatter,
    ScatterUneven,
    Barrier,
}

/// What is left to do for an operation that has begun: wait for it and check what came.
pub(crate) type Ending = Box<dyn FnOnce() + Send>;

/// What a rank gives and what it must get, apart.
struct Expected<T> {
    input: Vec<T>,
    output: Vec<T>,
}

pub(crate) fn blocking(setting: &Setting) {
    on_the_grid(setting, play::<u32>);
}

pub(crate) fn asynchronous(setting: &Setting) {
    on_the_grid(setting, |kind, group, case| begin::<u32>(kind, group, case)());
}

/// Every rank as the root.
pub(crate) fn roots(setting: &Setting) {
    for size in WORLDS {
        setting.run(size, |group| {
            for (root, len) in (0..size).flat_map(|root| [0, 1, 5, 3000].map(|len| (root, len))) {
                let case = Case { root, ..Case::new(len as u64, size, len) };
                for kind in Kind::ALL.into_iter().filter(|kind| kind.has_root()) {
                    play::<i16>(kind, group, &case);
                    begin::<f64>(kind, group, &case)();
                }
            }
        });
    }
}

/// Elements of every width.
pub(crate) fn elements(setting: &Setting) {
    for size in [1, 2, 5] {
        setting.run(size, |group| {
            for kind in Kind::ALL {
                let case = Case::new(kind as u64, size, 333);
                play::<u8>(kind, group, &case);
                play::<bf16>(kind, group, &case);
                play::<f32>(kind, group, &case);
                play::<i64>(kind, group, &case);
            }
        });
    }
}

/// One rank gets everything and the others nothing, in place and in several segments.
pub(crate) fn to_one_alone(setting: &Setting) {
    const LEN: usize = 400_000;
    for size in [2, 3] {
        setting.run(size, |group| {
            for alone in 0..size {
                let counts: Vec<usize> = (0..size).map(|rank| if rank == alone { LEN } else { 0 }).collect();
                let case = Case::new(alone as u64, size, LEN);
                let mut data: Vec<u8> = case.given(group.rank(), 0, LEN);
                let op = Op::ReduceScatter { counts: Counts::uneven(&counts), reduce: ReduceOp::Sum };
                group.run_bytes(op, DType::U8, None, None, &mut data).unwrap();
                assert!(group.rank() != alone || data == case.sum(0, LEN), "rank {alone} of {size}");
            }
        });
    }
}

/// Gathers and scatters in one buffer, in which each rank has its part.
pub(crate) fn in_place(setting: &Setting) {
    for size in WORLDS {
        setting.run(size, |group| {
            for len in [0, 1, 7, 3000] {
                let (me, case) = (group.rank(), Case::new(len as u64, size, len));
                let mut data: Vec<i64> = case.stale(size * len);
                data[me * len..][..len].copy_from_slice(&case.given::<i64>(me, 0, len));
                let all: Vec<i64> = (0..size).flat_map(|rank| case.given::<i64>(rank, 0, len)).collect();
                let gathered = group.all_gather_in_place_async(data.clone()).expect("it begins").wait();
                assert!(gathered == Ok(all.clone()), "{case:?}");
                group.all_gather_in_place(&mut data).expect("all come");
                assert!(data == all, "{case:?}");

                let mut data: Vec<i64> = (0..size).flat_map(|part| case.given::<i64>(me, part, len)).collect();
                let reduced =
                    group.reduce_scatter_in_place_async(data.clone(), ReduceOp::Sum).expect("it begins").wait();
                assert!(reduced.expect("all come")[me * len..][..len] == case.sum::<i64>(me, len), "{case:?}");
                group.reduce_scatter_in_place(&mut data, ReduceOp::Sum).expect("all come");
                assert!(data[me * len..][..len] == case.sum::<i64>(me, len), "{case:?}");
            }
            let mut odd = vec![0_i64; size + 1];
            let refused = [group.all_gather_in_place(&mut odd), group.reduce_scatter_in_place(&mut odd, ReduceOp::Sum)];
            for end in refused.into_iter().filter(|_| size > 1) {
                let told = end.expect_err("parts of different lengths").to_string();
                assert!(told.contains(&format!("data is {} elements long", size + 1)), "{told}");
            }
        });
    }
}

/// All worlds, lengths and operations; the longest in a few worlds.
fn on_the_grid(setting: &Setting, play: impl Fn(Kind, &Group, &Case) + Sync) {
    for size in WORLDS {
        let longest: &[usize] = if [2, 5].contains(&size) { &[65537] } else { &[] };
        setting.run(size, |group| {
            assert_eq!(group.size(), size);
            for len in [0, 1, 2, 7, 1000].iter().chain(longest) {
                for kind in Kind::ALL {
                    play(kind, group, &Case::new((kind as u64) << 32 | *len as u64, size, *len));
                }
            }
        });
    }
}

/// Calls an operation that blocks, and checks what came.
pub(crate) fn play<T: Sample>(kind: Kind, group: &Group, case: &Case) {
    let Expected { input, output } = expected::<T>(kind, group, case);
    let (rank, root) = (group.rank(), case.root);
    let mut got = case.stale(output.len());
    let called = match kind {
        Kind::AllReduce | Kind::Reduce | Kind::Broadcast => {
            got.clone_from(&input);
            match kind {
                Kind::AllReduce => group.all_reduce(&mut got, ReduceOp::Sum),
                Kind::Reduce => group.reduce(&mut got, ReduceOp::Sum, root),
                _ => group.broadcast(&mut got, root),
            }
        }
        Kind::AllReduceInto => group.all_reduce_into(&input, &mut got, ReduceOp::Sum),
        Kind::ReduceInto => group.reduce_into(&input, &mut got, ReduceOp::Sum, root),
        Kind::AllGather => group.all_gather(&input, &mut got),
        Kind::AllGatherUneven => group.all_gather_uneven(&input, &mut got, &case.uneven()),
        Kind::ReduceScatter => group.reduce_scatter(&input, &mut got, ReduceOp::Sum),
        Kind::ReduceScatterUneven => group.reduce_scatter_uneven(&input, &mut got, &case.uneven(), ReduceOp::Sum),
        Kind::AllToAll => group.all_to_all(&input, &mut got),
        Kind::AllToAllUneven => {
            let [give, take] = give_and_take(rank, case);
            group.all_to_all_uneven(&input, &give, &mut got, &take)
        }
        Kind::Gather => group.gather(&input, &mut got, root),
        Kind::GatherUneven => group.gather_uneven(&input, &mut got, &case.uneven(), root),
        Kind::Scatter => group.scatter(&input, &mut got, root),
        Kind::ScatterUneven => group.scatter_uneven(&input, &mut got, &case.uneven(), root),
        Kind::Barrier => group.barrier(),
    };
    called.unwrap_or_else(|error| panic!("{kind:?} {case:?} on rank {rank}: {error}"));
    check(kind, case, rank, &got, &output);
}

/// Begins an operation; what it returns waits for it.
pub(crate) fn begin<T: Sample>(kind: Kind, group: &Group, case: &Case) -> Ending {
    let Expected { input, output } = expected::<T>(kind, group, case);
    let (case, rank, root) = (*case, group.rank(), case.root);
    let room = || case.stale(output.len());
    let alone = match kind {
        Kind::AllReduce => group.all_reduce_async(input, ReduceOp::Sum),
        Kind::Reduce => group.reduce_async(input, ReduceOp::Sum, root),
        Kind::Broadcast => group.broadcast_async(input, root),
        Kind::Barrier => {
            let work = group.barrier_async().expect("a barrier");
            return Box::new(move || work.wait().expect("a barrier"));
        }
        _ => {
            let given = input.clone();
            let apart = match kind {
                Kind::AllGather => group.all_gather_async(input, room()),
                Kind::ReduceScatter => group.reduce_scatter_async(input, room(), ReduceOp::Sum),
                Kind::AllToAll => group.all_to_all_async(input, room()),
                Kind::Gather => group.gather_async(input, room(), root),
                Kind::Scatter => group.scatter_async(input, room(), root),
                Kind::AllReduceInto => group.all_reduce_into_async(input, room(), ReduceOp::Sum),
                Kind::ReduceInto => group.reduce_into_async(input, room(), ReduceOp::Sum, root),
                Kind::AllGatherUneven => group.all_gather_uneven_async(input, room(), &case.uneven()),
                Kind::ReduceScatterUneven => {
                    group.reduce_scatter_uneven_async(input, room(), &case.uneven(), ReduceOp::Sum)
                }
                Kind::AllToAllUneven => {
                    let [give, take] = give_and_take(rank, &case);
                    group.all_to_all_uneven_async(input, &give, room(), &take)
                }
                Kind::GatherUneven => group.gather_uneven_async(input, room(), &case.uneven(), root),
                Kind::ScatterUneven => group.scatter_uneven_async(input, room(), &case.uneven(), root),
                Kind::AllReduce | Kind::Reduce | Kind::Broadcast | Kind::Barrier => {
                    unreachable!("{kind:?} is in place")
                }
            };
            let work = apart.expect("an operation under way");
            return Box::new(move || {
                let (input, got) =
                    work.wait().unwrap_or_else(|error| panic!("{kind:?} {case:?} on rank {rank}: {error}"));
                assert_eq!(input, given, "the input of {kind:?} {case:?} on rank {rank}");
                check(kind, &case, rank, &got, &output);
            });
        }
    };
    let work = alone.expect("an operation under way");
    Box::new(move || check(kind, &case, rank, &work.wait().expect("an end"), &output))
}

fn check<T: Element>(kind: Kind, case: &Case, rank: usize, got: &[T], expected: &[T]) {
    let wrong = got.iter().zip(expected).position(|(got, expected)| got != expected);
    assert!(
        wrong.is_none() && got.len() == expected.len(),
        "{kind:?} of {} {case:?} on rank {rank} differs at {wrong:?}",
        T::DTYPE
    );
}

fn expected<T: Sample>(kind: Kind, group: &Group, case: &Case) -> Expected<T> {
    let (me, size, len) = (group.rank(), case.size, case.len);
    let is_root = me == case.root;
    let given = |rank, part, len| case.given::<T>(rank, part, len);
    let uneven = case.uneven();
    let counts = if kind.is_uneven() { uneven } else { case.even() };
    let parts = |rank: usize| -> Vec<T> { (0..size).flat_map(|part| given(rank, part, counts[part])).collect() };
    let all = || -> Vec<T> { (0..size).flat_map(|rank| given(rank, 0, counts[rank])).collect() };
    let (input, output) = match kind {
        Kind::AllReduce | Kind::AllReduceInto => (given(me, 0, len), case.sum(0, len)),
        Kind::Reduce if !is_root => (given(me, 0, len), given(me, 0, len)),
        Kind::ReduceInto if !is_root => (given(me, 0, len), vec![]),
        Kind::Reduce | Kind::ReduceInto => (given(me, 0, len), case.sum(0, len)),
        Kind::Broadcast => (given(me, 0, len), given(case.root, 0, len)),
        Kind::AllGather | Kind::AllGatherUneven => (given(me, 0, counts[me]), all()),
        Kind::ReduceScatter | Kind::ReduceScatterUneven => (parts(me), case.sum(me, counts[me])),
        Kind::AllToAll | Kind::AllToAllUneven => {
            let table = if kind.is_uneven() { case.uneven_table() } else { vec![case.even(); size] };
            let give = (0..size).flat_map(|to| given(me, to, table[me][to])).collect();
            let take = (0..size).flat_map(|from| given(from, me, table[from][me])).collect();
            (give, take)
        }
        Kind::Gather | Kind::GatherUneven => (given(me, 0, counts[me]), if is_root { all() } else { vec![] }),
        Kind::Scatter | Kind::ScatterUneven => {
            let input = if is_root { parts(me) } else { vec![] };
            (input, given(case.root, me, counts[me]))
        }
        Kind::Barrier => (vec![], vec![]),
    };
    Expected { input, output }
}

fn give_and_take(rank: usize, case: &Case) -> [Vec<usize>; 2] {
    let table = case.uneven_table();
    let take = table.iter().map(|row| row[rank]).collect();
    [table[rank].clone(), take]
}

impl Kind {
    pub(crate) const ALL: [Kind; 16] = [
        Kind::AllReduce,
        Kind::AllReduceInto,
        Kind::Reduce,
        Kind::ReduceInto,
        Kind::Broadcast,
        Kind::AllGather,
        Kind::AllGatherUneven,
        Kind::ReduceScatter,
        Kind::ReduceScatterUneven,
        Kind::AllToAll,
        Kind::AllToAllUneven,
        Kind::Gather,
        Kind::GatherUneven,
        Kind::Scatter,
        Kind::ScatterUneven,
        Kind::Barrier,
    ];

    fn is_uneven(self) -> bool {
        use Kind::*;
        matches!(self, AllGatherUneven | ReduceScatterUneven | AllToAllUneven | GatherUneven | ScatterUneven)
    }

    fn has_root(self) -> bool {
        use Kind::*;
        matches!(self, Reduce | ReduceInto | Broadcast | Gather | GatherUneven | Scatter | ScatterUneven)
    }
}
