//! Faults planted in a world of threads: nobody hangs, nobody gets a wrong answer, and all name the same culprit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::Threads;
use phalanx_core::{Error, ErrorKind, Group, GroupOptions, Message, PeerReason, ReduceOp, Scope};

/// A world whose operations have as long as they like, which nothing here may need.
fn patient(size: usize) -> Threads {
    Threads::new(size).options(GroupOptions::default().timeout(Duration::from_secs(60)))
}

/// A world whose operations must end soon.
fn hasty(size: usize) -> Threads {
    Threads::new(size).options(GroupOptions::default().timeout(HASTE))
}

/// A world with windows, one without, and one of several hosts.
fn kinds(world: &Threads, size: usize) -> [Threads; 3] {
    let hosts = (0..size as u32).map(|rank| rank / 2).collect();
    [world.clone(), world.clone().windows(false), world.clone().hosts(hosts)]
}

/// The first failure of a group, whoever reports it.
fn root_cause(error: &Error) -> Error {
    match error {
        Error::Aborted(aborted) => aborted.cause.as_deref().map_or_else(|| error.clone(), root_cause),
        other => other.clone(),
    }
}

fn promptly<R>(what: impl FnOnce() -> R) -> R {
    let began = Instant::now();
    let result = what();
    assert!(began.elapsed() < Duration::from_secs(10), "took {:?}", began.elapsed());
    result
}

/// Calls until the first error, which must come.
fn until_it_fails(group: &Group) -> Error {
    for round in 0_u32.. {
        let ended = match round % 3 {
            0 => group.all_reduce(&mut [1.0_f32; 100], ReduceOp::Sum),
            1 => group.barrier(),
            _ => group.broadcast(&mut [0_u8; 10], 0),
        };
        if let Err(error) = ended {
            return error;
        }
    }
    unreachable!("some round fails")
}

#[test]
fn a_rank_that_panics_is_named_by_all_others() {
    for world in kinds(&patient(4), 4) {
        let ((tell, told), played) = (mpsc::channel(), Barrier::new(4));
        let ended = promptly(|| {
            catch_unwind(AssertUnwindSafe(|| {
                world.run(|group| {
                    (0..5).for_each(|_| group.barrier().unwrap());
                    played.wait();
                    if group.rank() == 2 {
                        std::panic::panic_any("planted");
                    }
                    let first = until_it_fails(&group);
                    let began = Instant::now();
                    let again = group.all_reduce_async(vec![1], ReduceOp::Sum).unwrap().wait().unwrap_err();
                    let message = group.recv(&mut [0_u8], None, 0).unwrap_err();
                    assert!(began.elapsed() < Duration::from_secs(5));
                    tell.send([first, again, message]).unwrap();
                })
            }))
        });
        assert_eq!(*ended.unwrap_err().downcast::<&str>().unwrap(), "planted");
        drop(tell);
        let errors: Vec<_> = told.iter().flatten().collect();
        assert_eq!(errors.len(), 9);
        let culprit = Error::peer(2, PeerReason::Dead, "its thread panicked");
        assert!(errors.iter().all(|error| root_cause(error) == culprit), "{errors:?}");
        assert!(errors.iter().all(|error| error.scope() == Scope::Group));
    }
}

#[test]
fn a_rank_that_leaves_is_named_by_all_others() {
    for world in kinds(&patient(5), 5) {
        let played = Barrier::new(5);
        let errors = promptly(|| {
            world.run(|group| {
                (0..5).for_each(|_| group.barrier().unwrap());
                played.wait();
                (group.rank() != 1).then(|| {
                    let first = until_it_fails(&group);
                    [first, group.barrier().unwrap_err()]
                })
            })
        });
        for error in errors.unwrap().into_iter().flatten().flatten() {
            assert_eq!(root_cause(&error), Error::peer(1, PeerReason::Left, "its group was dropped"));
        }
    }
}

#[test]
fn a_message_to_or_from_a_rank_that_left_ends() {
    let errors = promptly(|| {
        patient(3).run(|group| match group.rank() {
            0 => {
                drop(group);
                None
            }
            1 => Some(group.recv(&mut [0_u8], 0, 3).unwrap_err()),
            _ => Some(group.send(&vec![0_u8; 1 << 20], 0, 3).unwrap_err()),
        })
    });
    for error in errors.unwrap().into_iter().flatten() {
        assert_eq!(root_cause(&error), Error::peer(0, PeerReason::Left, "its group was dropped"));
    }
}

#[test]
fn a_rank_that_never_comes_is_listed() {
    for world in kinds(&hasty(3), 3) {
        let (here, gone) = (Barrier::new(3), Barrier::new(3));
        let ends = world
            .run(|group| {
                group.barrier().unwrap();
                here.wait();
                let began = Instant::now();
                let end = (group.rank() != 2).then(|| group.all_reduce(&mut [1.0_f64; 5], ReduceOp::Sum));
                let took = began.elapsed();
                gone.wait();
                end.map(|end| (end, took))
            })
            .unwrap();
        let ends: Vec<_> = ends.into_iter().flatten().collect();
        assert_eq!(ends.len(), 2);
        for (end, took) in &ends {
            let error = end.as_ref().unwrap_err();
            assert!(*took >= HASTE - Duration::from_millis(50) && *took < HASTE + LATE, "took {took:?}");
            let Error::Timeout(timeout) = root_cause(error) else {
                panic!("{error}");
            };
            assert_eq!((timeout.sequence, timeout.after), (1, HASTE));
            let (said, here) = (timeout.to_string(), file!());
            let expected = "all_reduce (operation 1) not finished after 400ms; waiting for rank 2, whose last was barrier \
                            (operation 0, called at ";
            assert!(said.starts_with(expected) && said.contains(here), "{said}");
        }
    }
}

#[test]
fn a_message_that_never_comes_ends_in_time() {
    for asynchronous in [false, true] {
        let (came, done) = (Barrier::new(2), Barrier::new(2));
        let ends = hasty(2)
            .run(|group| {
                came.wait();
                let end = (group.rank() == 0).then(|| {
                    let began = Instant::now();
                    let end = match asynchronous {
                        false => group.recv(&mut [0_u16; 3], 1, 5).map(drop),
                        true => group.recv_async(vec![0_u16; 3], None, 5).unwrap().wait().map(drop),
                    };
                    (end, began.elapsed())
                });
                done.wait();
                end
            })
            .unwrap();
        let (end, took) = ends[0].as_ref().unwrap();
        assert!(*took >= HASTE && *took < HASTE + LATE, "took {took:?}");
        assert_eq!(
            end.as_ref().unwrap_err().to_string(),
            "recv (operation 0) not finished after 400ms; waiting for rank 1 to give data"
        );
    }
}

#[test]
fn a_queue_of_operations_ends_with_its_first_deadline() {
    let (came, done) = (Barrier::new(2), Barrier::new(2));
    let ends = hasty(2)
        .run(|group| {
            came.wait();
            let end = (group.rank() == 0).then(|| {
                let began = Instant::now();
                let begin = || group.all_reduce_async(vec![1_u8], ReduceOp::Sum).unwrap();
                let works: Vec<_> = (0..5).map(|_| begin()).collect();
                let mut ends = vec![group.barrier()];
                ends.extend(works.into_iter().map(|work| work.wait().map(drop)));
                (ends, began.elapsed())
            });
            done.wait();
            end
        })
        .unwrap();
    let (ends, took) = ends[0].as_ref().unwrap();
    assert!(*took < HASTE + LATE, "took {took:?}");
    let causes: Vec<_> = ends.iter().map(|end| root_cause(end.as_ref().unwrap_err())).collect();
    assert!(causes.iter().all(|cause| *cause == causes[0]), "{causes:?}");
}

#[test]
fn an_abort_ends_what_is_blocked() {
    for world in kinds(&patient(2), 2) {
        let blocked = Barrier::new(2);
        let errors = promptly(|| {
            world.run(|group| {
                if group.rank() == 1 {
                    blocked.wait();
                    let error = group.barrier().unwrap_err();
                    return vec![error];
                }
                thread::scope(|scope| {
                    let begun = group.recv_async(vec![0_u8], 1, 1).unwrap();
                    let calls = [
                        scope.spawn(|| group.all_reduce(&mut [1_u32], ReduceOp::Max).unwrap_err()),
                        scope.spawn(|| group.recv(&mut [0_u8], 1, 2).unwrap_err()),
                    ];
                    group.abort("the operator said so");
                    group.abort("and once more");
                    blocked.wait();
                    let mut errors: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
                    errors.push(begun.wait().unwrap_err());
                    errors.push(group.send(&[1_u8], 1, 0).unwrap_err());
                    errors
                })
            })
        });
        for error in errors.unwrap().into_iter().flatten() {
            assert_eq!(error.kind(), ErrorKind::Aborted);
            assert_eq!(error.to_string(), "group aborted: rank 0: the operator said so");
        }
    }
}

#[test]
fn a_batch_with_a_mistake_sends_nothing() {
    patient(2)
        .run(|group| {
            let peer = 1 - group.rank();
            let data = vec![9_u8];
            let good = Message::Send { data: data.clone(), to: peer, tag: 0 };
            let error = group.batch(vec![good, Message::Send { data, to: 2, tag: 0 }]).unwrap_err();
            assert_eq!(error.to_string(), "send: to is 2, must be below the group size 2");
            group.send(&[1_u8], peer, 0).unwrap();
            let mut got = [0_u8];
            group.recv(&mut got, peer, 0).unwrap();
            assert_eq!(got, [1]);
        })
        .unwrap();
}

#[test]
fn a_rank_that_leaves_with_work_queued_still_does_its_part() {
    promptly(|| {
        patient(3).run(|group| {
            let works: Vec<_> =
                (0..8).map(|_| group.all_reduce_async(vec![1_u32; 1000], ReduceOp::Sum).unwrap()).collect();
            if group.rank() == 1 {
                return;
            }
            works.into_iter().for_each(|work| assert_eq!(work.wait().unwrap(), vec![3; 1000]));
        })
    })
    .unwrap();
}

/// A waiter on another thread of the rank that fails first is told as well.
#[test]
fn all_threads_of_a_rank_hear_of_the_end() {
    promptly(|| {
        patient(2).run(|group| {
            if group.rank() == 1 {
                return;
            }
            let group = Arc::new(group);
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let group = Arc::clone(&group);
                    thread::spawn(move || match thread % 3 {
                        0 => group.barrier().unwrap_err(),
                        1 => group.barrier_async().unwrap().wait().unwrap_err(),
                        _ => group.recv(&mut [0_u8], 1, thread).unwrap_err(),
                    })
                })
                .collect();
            for thread in threads {
                let error = thread.join().unwrap();
                assert!(matches!(root_cause(&error), Error::Peer(peer) if peer.rank == 1), "{error}");
            }
        })
    })
    .unwrap();
}

const HASTE: Duration = Duration::from_millis(400);
/// What a busy machine may add.
const LATE: Duration = Duration::from_millis(1500);
