//! Coalescing: what many operations give one by one, they give as one exchange.

use std::panic::{AssertUnwindSafe, catch_unwind};

use phalanx_core::{Error, Group, OpKind, ReduceOp, Reduction, Scope};

use crate::case::Case;
use crate::setting::{SMALL_WORLDS, Setting};

const LENS: [usize; 5] = [3, 0, 1, 700, 5];

pub(crate) fn as_one(setting: &Setting) {
    for size in SMALL_WORLDS {
        setting.run(size, |group| {
            let before = group.recorder().records().len();
            all_reduce_and_broadcast(group);
            gather_and_scatter(group);
            group.coalesce(|_| ()).unwrap();
            let records = group.recorder().records();
            let ops: Vec<OpKind> = records[before..].iter().map(|record| record.op).collect();
            assert_eq!(ops, [OpKind::AllReduce, OpKind::Broadcast, OpKind::AllGather, OpKind::ReduceScatter]);
        });
    }
}

fn all_reduce_and_broadcast(group: &Group) {
    let case = Case::new(3, group.size(), 0);
    let mut given: Vec<Vec<f32>> = given(&case, group.rank(), 1);
    let mut told = given.clone();
    group.coalesce(|all| given.iter_mut().for_each(|data| all.all_reduce(data, ReduceOp::Sum))).unwrap();
    group.coalesce(|all| told.iter_mut().for_each(|data| all.broadcast(data, case.root))).unwrap();
    for (at, len) in LENS.into_iter().enumerate() {
        assert!(given[at] == case.sum::<f32>(at, len), "entry {at}");
        assert!(told[at] == case.given::<f32>(case.root, at, len), "entry {at}");
    }
}

fn gather_and_scatter(group: &Group) {
    let (me, size) = (group.rank(), group.size());
    let case = Case::new(4, size, 0);
    let (small, wide): (Vec<Vec<i16>>, Vec<Vec<i16>>) = (given(&case, me, 1), given(&case, me, size));
    let mut gathered: Vec<Vec<i16>> = LENS.iter().map(|len| case.stale(len * size)).collect();
    let mut reduced: Vec<Vec<i16>> = LENS.iter().map(|&len| case.stale(len)).collect();
    let pairs = small.iter().zip(&mut gathered);
    group.coalesce(|all| pairs.for_each(|(input, output)| all.all_gather(input, output))).unwrap();
    let pairs = wide.iter().zip(&mut reduced);
    group.coalesce(|all| pairs.for_each(|(input, output)| all.reduce_scatter(input, output, ReduceOp::Sum))).unwrap();
    for (at, len) in LENS.into_iter().enumerate() {
        let all: Vec<i16> = (0..size).flat_map(|from| case.given::<i16>(from, at, len)).collect();
        assert!(gathered[at] == all, "entry {at}");
        assert!(reduced[at] == case.sum::<i16>(at, len * size)[me * len..][..len], "entry {at}");
    }
}

/// The same through lists.
pub(crate) fn many(setting: &Setting) {
    for size in SMALL_WORLDS {
        setting.run(size, |group| {
            let case = Case::new(5, size, 0);
            let (mut first, mut second) =
                (case.given::<f64>(group.rank(), 0, 10), case.given::<f64>(group.rank(), 1, 3));
            let op = Reduction::scaled(0.5);
            group.all_reduce_many(&mut [&mut first, &mut second], op).unwrap();
            let half = |part, len| case.sum::<f64>(part, len).iter().map(|sum| sum / 2.0).collect::<Vec<_>>();
            assert!(first == half(0, 10) && second == half(1, 3));

            let (own, mut all, mut none) = ([group.rank() as u32; 4], vec![9; 4 * size], []);
            group.all_gather_many(&[&own, &[]], &mut [&mut all, &mut none]).unwrap();
            assert!((0..size).all(|from| all[from * 4..][..4] == [from as u32; 4]));

            let mut part = [0_u32; 4];
            group.reduce_scatter_many(&[&all], &mut [&mut part], ReduceOp::Max).unwrap();
            assert_eq!(part, [group.rank() as u32; 4]);
            group.all_reduce_many::<u8>(&mut [], ReduceOp::Sum).unwrap();
        });
    }
}

/// What does not fit together is refused on the rank that asks, with both named; what panics or fails sends nothing.
pub(crate) fn of_different_kinds(setting: &Setting) {
    setting.run(2, |group| {
        let refused = |end: Result<(), Error>, expected: &str| assert_eq!(end.unwrap_err().to_string(), expected);
        let (mut a, mut b, mut c) = ([1_f32; 2], [1_f32; 4], [1_u8; 2]);
        let end = group.coalesce(|all| {
            all.all_reduce(&mut a, ReduceOp::Sum);
            all.all_reduce(&mut b, ReduceOp::Max);
        });
        let first = "must be as the first of its exchange, all_reduce of f32 by sum";
        refused(end, &format!("all_reduce: operation is all_reduce of f32 by max, {first}"));
        let end = group.coalesce(|all| {
            all.all_reduce(&mut a, ReduceOp::Sum);
            all.all_reduce(&mut c, ReduceOp::Sum);
        });
        refused(end, &format!("all_reduce: operation is all_reduce of u8 by sum, {first}"));
        let end = group.coalesce(|all| {
            all.all_reduce(&mut a, ReduceOp::Sum);
            all.broadcast(&mut b, 1);
        });
        refused(end, &format!("broadcast: operation is broadcast of f32 from rank 1, {first}"));
        let end = group.all_gather_many(&[&a, &a], &mut [&mut b, &mut [0.0; 3]]);
        refused(end, "all_gather: output is 3 elements long in entry 1, must be 4");
        let end = group.reduce_scatter_many(&[&b[..3]], &mut [&mut a], ReduceOp::Sum);
        refused(end, "reduce_scatter: input is 3 elements long in entry 0, must be 4");
        let end = group.all_gather_many(&[&a[..]], &mut []);
        refused(end, "all_gather: outputs is a list of 0, must have one for each of the 1 inputs");
        let failed = Error::aborted("not today");
        let end = group.try_coalesce(|all| {
            all.all_reduce(&mut a, ReduceOp::Sum);
            Err(failed.clone())
        });
        assert_eq!(end, Err(failed));
        let add = AssertUnwindSafe(|| {
            group.coalesce(|all| {
                all.all_reduce(&mut c, ReduceOp::Sum);
                std::panic::panic_any("planted");
            })
        });
        assert_eq!(*catch_unwind(add).unwrap_err().downcast::<&str>().unwrap(), "planted");
        assert!(group.recorder().records().is_empty());
        group.barrier().unwrap();
        assert_eq!((a, c), ([1.0; 2], [1; 2]));
    });
}

/// As much in all, cut otherwise: never a wrong answer.
pub(crate) fn cut_otherwise(setting: &Setting) {
    let ends = setting.run(2, |group| {
        let (mut short, mut long) = (vec![1_i32; 2], vec![2_i32; 3]);
        if group.rank() == 1 {
            std::mem::swap(&mut short, &mut long);
        }
        group.all_reduce_many(&mut [&mut short, &mut long], ReduceOp::Sum)
    });
    let desync = |end: &Result<(), Error>| matches!(end, Err(Error::Desync(desync)) if desync.field == "split table");
    assert!(ends.iter().any(desync), "{ends:?}");
    let fails = |end: &Result<(), Error>| matches!(end, Err(error) if error.scope() != Scope::Process);
    assert!(ends.iter().all(fails), "{ends:?}");
}

fn given<T: crate::case::Sample>(case: &Case, rank: usize, times: usize) -> Vec<Vec<T>> {
    LENS.iter().enumerate().map(|(at, len)| case.given(rank, at, len * times)).collect()
}
