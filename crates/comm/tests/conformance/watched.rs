//! What can be seen of operations: by hooks, in works, and what a group looks for that is asked to.

use std::sync::{Arc, Barrier, Mutex};

use phalanx_core::backend::Buffers;
use phalanx_core::recorder::{Record, State};
use phalanx_core::{Alarm, DType, Delivered, Error, ErrorKind, Group, GroupOptions, Hook, Op, OpKind, ReduceOp, Scope};

use crate::setting::{SMALL_WORLDS, Setting, run};

/// Writes down what it is told.
#[derive(Default)]
struct Diary {
    begun: Mutex<Vec<u64>>,
    ended: Mutex<Vec<(Record, Option<ErrorKind>)>>,
}

impl Hook for Diary {
    fn before(&self, record: &Record) {
        assert_eq!((record.state, record.ended), (State::Queued, None));
        self.begun.lock().unwrap().push(record.number);
    }

    fn after(&self, record: &Record, error: Option<&Error>) {
        self.ended.lock().unwrap().push((*record, error.map(Error::kind)));
    }
}

/// A hook that is no good.
struct Clumsy;

impl Hook for Clumsy {
    fn after(&self, _: &Record, _: Option<&Error>) {
        std::panic::panic_any("planted");
    }
}

/// Counts the failures that it is told of.
#[derive(Default)]
struct Siren(Mutex<Vec<ErrorKind>>);

impl Alarm for Siren {
    fn failed(&self, _: &Group, error: &Error) {
        self.0.lock().unwrap().push(error.kind());
    }
}

/// Whoever gets a failure, the alarm is told of it once, whichever way the operation was called; not of wrong arguments.
pub(crate) fn by_alarms(setting: &Setting) {
    let (size, siren) = (2, Arc::new(Siren::default()));
    let ready = Barrier::new(size);
    let options = GroupOptions::default().alarm(Arc::clone(&siren) as Arc<dyn Alarm>);
    run((setting.make)(size, options).expect("a world"), |group| {
        group.broadcast(&mut [0_u8], size).unwrap_err();
        group.barrier().unwrap();
        ready.wait();
        group.abort("enough");
        group.barrier().unwrap_err();
        group.all_reduce_async(vec![1], ReduceOp::Sum).unwrap().wait().unwrap_err();
        let mut raw = group.submit_bytes(Op::Barrier, DType::U8, None, Buffers::default()).unwrap();
        assert!(raw.wait(None).is_some_and(|end| end.is_err()));
    });
    assert_eq!(*siren.0.lock().unwrap(), [ErrorKind::Aborted; 6]);
}

/// Every operation is told once when it begins and once when it ends, whoever plays it and however it ends.
pub(crate) fn by_hooks(setting: &Setting) {
    for size in SMALL_WORLDS {
        // One diary a rank: the ranks of a setting are made alike.
        let diary = Arc::new(Diary::default());
        let played = Barrier::new(size);
        let options = GroupOptions::default().hook(Arc::new(Clumsy)).hook(Arc::clone(&diary) as Arc<dyn Hook>);
        run((setting.make)(size, options).expect("a world"), |group| {
            group.all_reduce(&mut [1.0_f32; 10], ReduceOp::Sum).unwrap();
            group.broadcast(&mut [0_u8], size).unwrap_err();
            group.all_reduce_async(vec![1], ReduceOp::Sum).unwrap().wait().unwrap();
            if size > 1 {
                let (next, before) = ((group.rank() + 1) % size, (group.rank() + size - 1) % size);
                let coming = group.recv_async(vec![0_u8; 3], before, 1).unwrap();
                group.send(&[1_u8; 3], next, 1).unwrap();
                coming.wait().unwrap();
            }
            group.barrier().unwrap();
            played.wait();
            group.abort("enough");
            group.barrier().unwrap_err();
        });
        let (begun, ended) = (diary.begun.lock().unwrap(), diary.ended.lock().unwrap());
        let each = if size > 1 { 6 } else { 4 };
        assert_eq!((begun.len(), ended.len()), (each * size, each * size));
        let count = |kind| ended.iter().filter(|(record, _)| record.op == kind).count();
        assert_eq!((count(OpKind::AllReduce), count(OpKind::Barrier)), (2 * size, 2 * size));
        for (record, error) in ended.iter() {
            assert_eq!(record.state, error.map_or(State::Done, State::Failed));
            assert!(record.ended.is_some_and(|ended| ended >= record.created));
        }
        let failed = ended.iter().filter(|(_, error)| *error == Some(ErrorKind::Aborted)).count();
        assert_eq!(failed, size, "{ended:?}");
    }
}

/// A work says how it stands before its result is taken, and its result can be made into another.
pub(crate) fn works(setting: &Setting) {
    for size in SMALL_WORLDS {
        setting.run(size, |group| {
            let mut work = group.all_reduce_async(vec![1_u32; 5], ReduceOp::Sum).unwrap().map(|sums| sums[0] + 1);
            while !work.is_done() {
                std::thread::yield_now();
            }
            assert!(work.is_success() && work.is_done());
            assert_eq!(work.error(), None);
            assert_eq!(work.source(), None);
            let record = work.record().unwrap();
            assert_eq!((record.op, record.state, record.output), (OpKind::AllReduce, State::Done, 5));
            assert!(work.duration().unwrap() <= record.ended.unwrap());
            let mut work = work.map(|sum| sum * 2);
            assert!(work.is_success());
            assert_eq!(work.wait(), Ok((size as u32 + 1) * 2));
            if size > 1 {
                source(group);
            }
        });
        failed_work(setting, size);
    }
}

fn source(group: &Group) {
    let (next, before) = ((group.rank() + 1) % group.size(), (group.rank() + group.size() - 1) % group.size());
    let mut coming = group.recv_async(vec![0_u8], None, 5).unwrap();
    assert!(!coming.is_success() && coming.source().is_none());
    group.barrier().unwrap();
    group.send(&[7_u8], next, 5).unwrap();
    while !coming.is_done() {
        std::thread::yield_now();
    }
    assert_eq!((coming.source(), coming.is_success()), (Some(before), true));
    assert_eq!(coming.wait(), Ok(Delivered { data: vec![7], peer: before }));
}

fn failed_work(setting: &Setting, size: usize) {
    setting.run(size, |group| {
        group.abort("enough");
        let mut work = group.barrier_async().unwrap();
        while !work.is_done() {
            std::thread::yield_now();
        }
        assert!(!work.is_success());
        assert_eq!(work.error().map(Error::kind), Some(ErrorKind::Aborted));
        assert_eq!(work.wait().unwrap_err().kind(), ErrorKind::Aborted);
    });
}

/// A NaN is refused where it is given, and only where it is asked for; what is only written may hold what it likes.
pub(crate) fn for_nan(setting: &Setting) {
    for size in SMALL_WORLDS {
        let groups = (setting.make)(size, GroupOptions::default().check_nan(true)).expect("a world");
        run(groups, |group| {
            let (me, nan) = (group.rank(), f64::NAN);
            let error = group.all_reduce(&mut [0.0, nan, nan], ReduceOp::Max).unwrap_err();
            let expected = format!("data is NaN at element 1 on rank {me}, must be numbers, as this group checks");
            assert_eq!(error.to_string(), format!("all_reduce: {expected}"));
            assert_eq!(error.scope(), Scope::Call);
            let error = group.all_reduce_async(vec![0.0, nan], ReduceOp::Max).unwrap_err();
            assert_eq!(error.to_string(), format!("all_reduce: {expected}"));
            let error = group.all_gather(&[nan], &mut vec![0.0; size]).unwrap_err();
            assert!(error.to_string().starts_with("all_gather: input is NaN at element 0 on rank"), "{error}");
            let error = group.all_reduce_many(&mut [&mut [0.0, 1.0], &mut [2.0, nan]], ReduceOp::Sum).unwrap_err();
            assert!(
                error.to_string().starts_with("all_reduce: data is NaN at element 1 of entry 1 on rank"),
                "{error}"
            );
            let inputs: Vec<[f64; 2]> = (0..size).map(|to| if to == me { [0.0, nan] } else { [0.0; 2] }).collect();
            let inputs: Vec<&[f64]> = inputs.iter().map(|input| &input[..]).collect();
            let error = group.reduce_scatter_list(&inputs, &mut [0.0; 2], ReduceOp::Sum).unwrap_err();
            let expected = format!("inputs is NaN at element 1 of entry {me} on rank {me}");
            assert!(error.to_string().starts_with(&format!("reduce_scatter: {expected}")), "{error}");

            // Of joined broadcasts the root alone gives.
            let mut told = [if me == 0 { 3.0 } else { nan }];
            group.coalesce(|all| all.broadcast(&mut told, 0)).unwrap();
            assert_eq!(told, [3.0]);
            let mut output = vec![nan; size];
            group.all_gather(&[1.0], &mut output).unwrap();
            assert_eq!(output, vec![1.0; size]);
            let mut told = [if me == 0 { 3.0 } else { nan }];
            group.broadcast(&mut told, 0).unwrap();
            assert_eq!(told, [3.0]);
        });
        setting.run(size, |group| {
            let mut data = [f32::NAN];
            group.all_reduce(&mut data, ReduceOp::Max).unwrap();
            assert!(data[0].is_nan());
        });
    }
}
