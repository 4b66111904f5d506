//! Work in its caller's hands: several at once, dropped, leaked, waited for in every way.

use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use phalanx_core::{Error, ErrorKind, ReduceOp, Result, Work};

use crate::case::Case;
use crate::collectives::{Kind, begin, play};
use crate::setting::{Setting, WORLDS};

/// Many under way at once, blocking calls between them, and waits in another order on every rank.
pub(crate) fn several_in_flight(setting: &Setting) {
    for size in WORLDS {
        setting.run(size, |group| {
            let mut endings = Vec::new();
            for (number, kind) in Kind::ALL.into_iter().cycle().take(40).enumerate() {
                let case = Case::new(number as u64, size, number * number % 2000);
                match number % 5 {
                    3 => play::<i16>(kind, group, &case),
                    _ => endings.push(begin::<i16>(kind, group, &case)),
                }
            }
            endings.rotate_left(group.rank() * 7 % 30);
            endings.into_iter().for_each(|end| end());
        });
    }
}

/// A rank that does not wait takes part all the same.
pub(crate) fn dropped_early(setting: &Setting) {
    let unseen = |work: Work<Vec<u32>>| drop(work);
    without_waiting(setting, unseen);
}

/// A leaked work leaks memory and nothing else.
pub(crate) fn leaked(setting: &Setting) {
    let unseen = |work: Work<Vec<u32>>| std::mem::forget(work);
    without_waiting(setting, unseen);
}

fn without_waiting(setting: &Setting, unseen: impl Fn(Work<Vec<u32>>) + Sync) {
    for size in WORLDS {
        setting.run(size, |group| {
            for (number, len) in [0_usize, 1, 100, 20_000].into_iter().cycle().take(12).enumerate() {
                let work = group.all_reduce_async(vec![number as u32; len], ReduceOp::Sum).unwrap();
                match (number + group.rank()) % 3 {
                    0 => assert_eq!(work.wait().unwrap(), vec![(number * size) as u32; len]),
                    _ => unseen(work),
                }
            }
        });
    }
}

/// A limit that passes gives the work back, and the operation goes on.
pub(crate) fn wait_timeout(setting: &Setting) {
    for size in [2, 3, 5] {
        let (late, rank_0_waited) = (size - 1, Barrier::new(2));
        setting.run(size, |group| {
            if group.rank() == late {
                rank_0_waited.wait();
            }
            let mut work = group.all_reduce_async(vec![1_i64, -1], ReduceOp::Sum).unwrap();
            if group.rank() == 0 {
                assert!(!work.is_done());
                work = work.wait_timeout(Duration::from_millis(5)).expect_err("the work");
                work = work.wait_timeout(Duration::ZERO).expect_err("the work");
                rank_0_waited.wait();
                while !work.is_done() {
                    thread::yield_now();
                }
                work = match work.wait_timeout(Duration::ZERO) {
                    Ok(end) => return assert_eq!(end.unwrap(), [size as i64, -(size as i64)]),
                    Err(work) => work,
                };
            }
            assert_eq!(work.wait().unwrap(), [size as i64, -(size as i64)]);
        });
    }
}

/// Behind what is stuck an operation keeps its own deadline, and tells who is waited for; however the one in front is called,
/// and however it is called itself.
pub(crate) fn late_in_the_queue(setting: &Setting) {
    let two = [false, true];
    for (front_blocks, late_blocks) in two.into_iter().flat_map(|front| two.map(|late| (front, late))) {
        let is_told = Barrier::new(2);
        setting.run(2, |group| {
            if group.rank() == 1 {
                is_told.wait();
                return;
            }
            let behind = || {
                let (group, mut data) = (group.within(SHORT), [1_u32]);
                match late_blocks {
                    true => group.all_reduce(&mut data, ReduceOp::Sum),
                    false => group.all_reduce_async(data.to_vec(), ReduceOp::Sum).and_then(Work::wait).map(drop),
                }
            };
            let began = Instant::now();
            let (front, late) = thread::scope(|scope| {
                let late = |error: Result<()>| error.expect_err("rank 1 does not come");
                if front_blocks {
                    let front = scope.spawn(|| group.barrier());
                    while group.recorder().records().is_empty() {
                        thread::yield_now();
                    }
                    let behind = late(behind());
                    return (front.join().expect("no panic"), behind);
                }
                let front = group.barrier_async().expect("it is queued");
                let behind = late(behind());
                (front.wait(), behind)
            });
            assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
            is_told.wait();
            let expected =
                "all_reduce (operation 1) not finished after 400ms; waiting for rank 1, which has called nothing yet";
            assert_eq!(late.to_string(), expected);
            assert_eq!(front, Err(Error::aborted_by(late)));
        });
    }
}

/// Work is a future, for whatever runs futures.
pub(crate) fn awaited(setting: &Setting) {
    for size in WORLDS {
        setting.run(size, |group| {
            let total = size as u32;
            let sum = block_on(async {
                let first = group.all_reduce_async(vec![1_u32; 1000], ReduceOp::Sum)?;
                let second = group.all_reduce_async(vec![2_u32; 10], ReduceOp::Sum)?;
                group.barrier_async()?.await?;
                let second = second.await?;
                Ok::<_, phalanx_core::Error>([first.await?[999], second[9]])
            });
            assert_eq!(sum, Ok([total, 2 * total]));
        });
    }
}

/// Asking for a result that was already given is a mistake that is told, not a wait without end.
pub(crate) fn taken_twice(setting: &Setting) {
    setting.run(2, |group| {
        let mut work = group.all_reduce_async(vec![1_u32], ReduceOp::Sum).unwrap();
        assert_eq!(block_on(&mut work), Ok(vec![2]));
        assert_eq!(block_on(&mut work).unwrap_err().kind(), ErrorKind::Usage);
        let error = work.wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().starts_with("all_reduce: work is "), "{error}");
    });
}

/// The smallest executor there is.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

const SHORT: Duration = Duration::from_millis(400);
/// What a busy machine may take.
const LATE: Duration = Duration::from_secs(10);
