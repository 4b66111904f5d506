//! The monitored barrier: nobody leaves before all have come, and who has not is named by all that have.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use phalanx_core::{Error, ReduceOp, Timeout, Waiting};

use crate::setting::{SMALL_WORLDS, Setting};

pub(crate) fn all_come(setting: &Setting) {
    for size in SMALL_WORLDS {
        let come = AtomicUsize::new(0);
        setting.run(size, |group| {
            for round in 1_usize..20 {
                come.fetch_add(1, Ordering::SeqCst);
                group.monitored_barrier(round.is_multiple_of(2)).unwrap();
                assert!(come.load(Ordering::SeqCst) >= round * size);
            }
            assert_eq!(group.all_reduce(&mut [1], ReduceOp::Sum), Ok(()));
        });
    }
}

/// With `wait_all` all that are missing are named, else the first; on all ranks that came.
pub(crate) fn some_are_missing(setting: &Setting) {
    for (size, wait_all, expected) in [(3, true, &[2][..]), (5, true, &[1, 3]), (5, false, &[1])] {
        let gone = Barrier::new(size);
        let is_missing = |rank: usize| if size == 3 { rank == 2 } else { rank % 2 == 1 };
        let ends = setting.run(size, |group| {
            group.barrier().unwrap();
            let end = (!is_missing(group.rank())).then(|| group.within(SHORT).monitored_barrier(wait_all));
            gone.wait();
            end
        });
        for end in ends.into_iter().flatten() {
            let error = end.unwrap_err();
            let Some(timeout) = first_cause(&error) else { panic!("{error}") };
            assert!(timeout.stuck.iter().all(|stuck| stuck.on == Waiting::Arriving), "{timeout}");
            let missing: Vec<usize> = timeout.stuck.iter().map(|stuck| stuck.peer).collect();
            assert_eq!((missing.as_slice(), timeout.after), (expected, SHORT), "{error}");
        }
    }
}

pub(crate) fn rank_0_is_missing(setting: &Setting) {
    let gone = Barrier::new(3);
    let ends = setting.run(3, |group| {
        let end = (group.rank() != 0).then(|| group.within(SHORT).monitored_barrier(true));
        gone.wait();
        end
    });
    for end in ends.into_iter().flatten() {
        let error = end.unwrap_err();
        let said = first_cause(&error).map(ToString::to_string);
        assert_eq!(said.as_deref(), Some("barrier (operation 0) not finished after 400ms; waiting for rank 0 to come"));
    }
}

fn first_cause(error: &Error) -> Option<&Timeout> {
    match error {
        Error::Timeout(timeout) => Some(timeout),
        Error::Aborted(aborted) => first_cause(aborted.cause.as_deref()?),
        _ => None,
    }
}

const SHORT: Duration = Duration::from_millis(200);
