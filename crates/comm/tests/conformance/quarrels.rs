//! Disagreements: whatever one rank calls otherwise, all ranks are told the field, two ranks and both values, nobody gets a wrong
//! answer, and what all call next is right.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::recorder::Record;
use phalanx_core::{Desync, Error, Group, GroupOptions, Hook, ReduceOp, Scope};

use crate::mistakes::{self, Planted};
use crate::setting::{Setting, run};

/// Every mistake, one after the other in one world.
pub(crate) fn every_mistake(setting: &Setting) {
    for size in 2..=5 {
        let told =
            setting.run(size, |group| mistakes::of(size).map(|planted| told_of(group, planted)).collect::<Vec<_>>());
        for (at, planted) in mistakes::of(size).enumerate() {
            let desync = &told[0][at];
            assert!(told.iter().all(|told| told[at] == *desync), "{}: {told:?}", planted.what);
            planted.check(&desync.to_string());
            assert!(desync.rank == 1 || desync.peer == 1, "{desync}");
        }
    }
}

/// Makes the mistake, and goes on; returns what this rank was told.
fn told_of(group: &Group, planted: &Planted) -> Desync {
    let what = planted.what;
    let began = Instant::now();
    let end = planted.make(group);
    let error = end.expect_err(what);
    assert!(began.elapsed() < LATE, "{what} took {:?}", began.elapsed());
    assert_eq!(error.scope(), Scope::Call, "{what}: {error}");
    let mut sum = [group.rank() as u64 + 1, 7];
    group.all_reduce(&mut sum, ReduceOp::Sum).expect(what);
    let size = group.size() as u64;
    assert_eq!(sum, [size * (size + 1) / 2, 7 * size], "{what}");
    match error {
        Error::Desync(desync) => {
            let site = desync.site.expect("it was called here");
            assert!(site.file().ends_with("planted/mistakes.rs"), "{what}: {desync}");
            // Which of the lines it was is each rank's own.
            Desync { site: None, ..*desync }
        }
        other => panic!("{what}: {other}"),
    }
}

/// A rank that aborts after a disagreement ends the calls of those who are back already, and of those who come later.
pub(crate) fn aborted(setting: &Setting) {
    let told = setting.run(3, |group| {
        mistakes::of(3).next().expect("there are some").make(group).expect_err("planted");
        let began = Instant::now();
        let told = thread::scope(|scope| {
            let back = scope.spawn(|| group.barrier().expect_err("rank 1 gave the group up"));
            if group.rank() == 1 {
                group.abort("the operator said so");
            }
            back.join().expect("no panic")
        });
        assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
        assert_eq!(group.barrier().expect_err("it is over"), told);
        told
    });
    assert_eq!(told[1], Error::aborted("rank 1: the operator said so"));
    for rank in [0, 2] {
        let whatever = [Error::aborted("rank 1 aborted the group"), told[1].clone()];
        assert!(whatever.contains(&told[rank]), "{:?}", told[rank]);
    }
}

/// Who comes back after a disagreement when another one has waited long enough does not wait for that one.
pub(crate) fn given_up(setting: &Setting) {
    let has_given_up = Barrier::new(3);
    setting.run(3, |group| {
        mistakes::of(3).next().expect("there are some").make(group).expect_err("planted");
        if group.rank() == 0 {
            let error = group.within(Duration::from_millis(50)).barrier().expect_err("nobody else is back");
            assert_eq!(error.culprits(), [1, 2], "{error}");
        }
        has_given_up.wait();
        let began = Instant::now();
        let error = group.barrier().expect_err("rank 0 is not there");
        assert!(began.elapsed() < LATE, "{error} after {:?}", began.elapsed());
        let expected = if group.rank() == 0 { "not finished after 50ms" } else { "rank 0 aborted the group" };
        assert!(error.to_string().contains(expected), "{error}");
    });
}

/// In strict mode two operations of one shape are told apart by the lines that call them.
pub(crate) fn swapped(setting: &Setting) {
    let options = GroupOptions::default().timeout(Duration::from_secs(60)).compare_call_sites(true);
    let told = run((setting.make)(3, options).expect("a world"), |group| {
        let weights = |group: &Group| group.all_reduce(&mut [1.0_f32; 10], ReduceOp::Sum);
        let biases = |group: &Group| group.all_reduce(&mut [2.0_f32; 10], ReduceOp::Sum);
        weights(group).unwrap();
        let swapped = if group.rank() == 1 { biases(group) } else { weights(group) };
        let told = swapped.expect_err("they are not the same");
        biases(group).expect("all call the same again");
        told
    });
    let lines: Vec<u32> = told
        .into_iter()
        .map(|error| match error {
            Error::Desync(desync) if (desync.field, desync.sequence) == ("call site", 1) => {
                desync.site.expect("it was called here").line()
            }
            other => panic!("{other}"),
        })
        .collect();
    assert!(lines[0] == lines[2] && lines[0] != lines[1], "each rank's own line: {lines:?}");
}

/// A message that is not what its receiver expects is told there alone, and seen by nobody.
pub(crate) fn messages(setting: &Setting) {
    setting.run(2, |group| {
        if group.rank() == 0 {
            group.send(&[1_u32; 50], 1, 1).unwrap();
            group.send(&[1_u32; 200], 1, 2).unwrap();
            group.send(&[1_u32; 100], 1, 3).unwrap();
            return group.barrier().unwrap();
        }
        let mut room = [7_u32; 100];
        let told = |error: Error, text: &str| {
            assert_eq!(error.scope(), Scope::Call);
            assert!(error.to_string().contains(text), "{error}");
            assert!(
                error.to_string().contains("; called here at crates/comm/tests/conformance/quarrels.rs:"),
                "{error}"
            );
        };
        told(group.recv(&mut room, 0, 1).unwrap_err(), "rank 1 called with count 100, rank 0 with count 50");
        told(group.recv(&mut room, None, 2).unwrap_err(), "rank 1 called with count 100, rank 0 with count 200");
        assert_eq!(room, [7; 100], "no part of a refused message is seen");
        let other = group.recv_async(vec![0.0_f32; 100], 0, 3).unwrap().wait().unwrap_err();
        told(other, "rank 1 called with dtype f32, rank 0 with dtype u32");
        group.barrier().unwrap();
    });
}

/// A rank that gives up an operation from before a disagreement may write to its memory at once: nobody takes that for what was sent.
pub(crate) fn given_up_before(setting: &Setting) {
    let (has_quarrelled, has_given_up) = (Barrier::new(4), Barrier::new(4));
    setting.run(4, |group| {
        let mut memory = group.buffer(8 << 10).expect("memory");
        let is_early = group.rank() != 2;
        if is_early {
            let patient = group.within(if group.rank() == 0 { Duration::from_millis(500) } else { LATE });
            memory.as_bytes_mut().fill(u8::from(group.rank() == 0));
            let end = patient.broadcast(memory.as_bytes_mut(), 0);
            // Where they need rank 2 for the first operation, they do not come to the one that they disagree about.
            match group.rank() {
                0 => memory.as_bytes_mut().fill(9),
                1 => drop(end.and_then(|()| patient.barrier())),
                _ => drop(end.and_then(|()| patient.all_reduce(&mut [1_u8], ReduceOp::Sum))),
            }
        }
        has_quarrelled.wait();
        has_given_up.wait();
        if !is_early && group.within(LATE).broadcast(memory.as_bytes_mut(), 0).is_ok() {
            assert!(memory.as_bytes().iter().all(|byte| *byte == 1), "what rank 0 wrote once it had given up");
        }
    });
}

/// What takes its time behind the first asynchronous operation that ends.
#[derive(Default)]
struct Dawdles(AtomicBool);

impl Hook for Dawdles {
    fn after(&self, _record: &Record, _error: Option<&Error>) {
        let is_driver = thread::current().name() == Some("phalanx-lane");
        if is_driver && !self.0.swap(true, Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(300));
        }
    }
}

/// A rank that comes back while operations from before the disagreement are queued ends them first: they need the links of then.
pub(crate) fn queued_before(setting: &Setting) {
    let options = GroupOptions::default().timeout(Duration::from_secs(60)).hook(Arc::new(Dawdles::default()));
    let has_quarrelled = Barrier::new(3);
    run((setting.make)(3, options).expect("a world"), |group| {
        let given = |number: u8| vec![if group.rank() == 0 { number } else { 0 }; 100];
        if group.rank() == 2 {
            let works = [1, 2].map(|number| group.broadcast_async(given(number), 0).expect("it is queued"));
            has_quarrelled.wait();
            group.barrier().expect_err("the others disagree");
            group.barrier().expect("all are back");
            return assert_eq!(works.map(|work| work.wait().expect("what came before")), [[1; 100], [2; 100]]);
        }
        [1, 2].map(given).iter_mut().for_each(|data| group.broadcast(data, 0).expect("all come"));
        let end = if group.rank() == 0 { group.barrier() } else { group.all_reduce(&mut [1_u8], ReduceOp::Sum) };
        end.expect_err("they do not call the same");
        has_quarrelled.wait();
        group.barrier().expect("all are back");
    });
}

/// An abort ends an operation from before a disagreement as well, of ranks that have not come to the one in question.
pub(crate) fn aborted_before(setting: &Setting) {
    let has_quarrelled = Barrier::new(2);
    setting.run(4, |group| {
        let (part, mut whole) = ([group.rank() as u8; 100], [0; 400]);
        match group.rank() {
            2 => {}
            3 => {
                let began = Instant::now();
                let error = group.gather(&part, &mut whole, 3).expect_err("rank 2 does not come");
                assert!(began.elapsed() < 2 * LATE, "{error} after {:?}", began.elapsed());
            }
            rank => {
                let patient = group.within(LATE);
                let gathered = patient.gather(&part, &mut [], 3);
                let quarrel = gathered.and_then(|()| match rank {
                    0 => patient.barrier(),
                    _ => patient.all_reduce(&mut [1_u8], ReduceOp::Sum),
                });
                quarrel.expect_err("they do not call the same");
                has_quarrelled.wait();
                group.abort("the operator said so");
            }
        }
    });
}

/// Asynchronous messages for which a rank waits that was told of a disagreement end with it, as those do that are waited for.
pub(crate) fn messages_of_who_was_told(setting: &Setting) {
    setting.run(3, |group| {
        if group.rank() == 2 {
            let began = Instant::now();
            let works = [1, 2].map(|tag| group.recv_async(vec![0_u8; 10], 0, tag).expect("a receive"));
            for work in works {
                let error = work.wait().expect_err("rank 0 sends nothing any more");
                assert!(matches!(error, Error::Desync(_)), "{error}");
            }
            assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
        }
        let mut values = [0_u8; 5];
        let len = if group.rank() == 0 { 4 } else { 5 };
        group.all_reduce(&mut values[..len], ReduceOp::Max).expect_err("they are of two lengths");
        group.barrier().expect("all are back");
        match group.rank() {
            0 => group.send(&[7_u8; 10], 2, 1).expect("sent"),
            2 => {
                let end = group.recv_async(vec![0_u8; 10], 0, 1).expect("a receive").wait().expect("received");
                assert_eq!(end.data, [7; 10]);
            }
            _ => {}
        }
    });
}

/// A rank whose time ends as all are back goes on with the others, or the others are told.
pub(crate) fn back_in_the_last_moment(setting: &Setting) {
    for micros in [0, 50, 200, 1000] {
        let began = Barrier::new(2);
        setting.run(2, |group| {
            mistakes::of(2).next().expect("there are some").make(group).expect_err("planted");
            began.wait();
            if group.rank() == 1 {
                thread::sleep(Duration::from_millis(20));
                return drop(group.within(Duration::from_micros(micros)).barrier());
            }
            let began = Instant::now();
            let end = group.within(2 * LATE).barrier();
            assert!(began.elapsed() < LATE, "{end:?} after {:?}", began.elapsed());
        });
    }
}

/// A table of counts that nobody has the memory for is told before steps are made for all of it.
pub(crate) fn beyond_all_memory(setting: &Setting) {
    setting.run(2, |group| {
        let began = Instant::now();
        let end = match group.rank() {
            0 => group.gather_uneven(&[1_u8], &mut [], &[1, 1 << 48], 1),
            _ => group.gather_uneven(&[2_u8; 3], &mut [0; 4], &[1, 3], 1),
        };
        let error = end.expect_err("the tables differ");
        assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
        if error.scope() == Scope::Call {
            group.barrier().expect("the group goes on");
        }
    });
}

/// What a busy machine may take.
const LATE: Duration = Duration::from_secs(5);
