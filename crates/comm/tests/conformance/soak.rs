//! Thousands of operations of random kind, length and type, some asynchronous, while other threads send messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use half::bf16;
use phalanx_core::Group;

use crate::case::{Case, hash};
use crate::collectives::{Ending, Kind, begin, play};
use crate::setting::Setting;

pub(crate) fn soak(setting: &Setting) {
    for (size, operations) in [(2, 500), (3, 400), (5, 200)] {
        let seed = fastrand::Rng::with_seed(hash(size as u64)).u64(..);
        setting.run(size, |group| {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                if size > 1 {
                    (0..2).for_each(|thread| {
                        drop(scope.spawn({
                            let over = &over;
                            move || chatter(group, thread, over)
                        }))
                    });
                }
                collectives(group, seed, operations);
                over.store(true, Ordering::Relaxed);
            });
        });
    }
}

/// Worlds that end as soon as they have begun: a rank that leaves has given what its peers still need.
pub(crate) fn many_short_worlds(setting: &Setting) {
    for world in 0..60 {
        let size = 2 + world % 3;
        setting.run(size, |group| {
            let kind = Kind::ALL[world % Kind::ALL.len()];
            let case = Case::new(world as u64, size, 100 * world);
            match world % 2 {
                0 => play::<u32>(kind, group, &case),
                _ => begin::<u32>(kind, group, &case)(),
            }
        });
    }
}

/// The same operations on every rank, waited for in another order on each.
fn collectives(group: &Group, seed: u64, operations: usize) {
    let mut plan = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed ^ group.rank() as u64);
    let mut endings: Vec<Ending> = Vec::new();
    for number in 0..operations {
        let kind = Kind::ALL[plan.usize(..Kind::ALL.len())];
        let longest = [2, 40, 3000, 30_000][plan.usize(..4)];
        let case = Case::new(seed ^ (number as u64) << 24, group.size(), plan.usize(..longest));
        let blocks = plan.u8(..10) < 6;
        let ending = match plan.u8(..5) {
            0 => one::<u8>(kind, group, &case, blocks),
            1 => one::<bf16>(kind, group, &case, blocks),
            2 => one::<f32>(kind, group, &case, blocks),
            3 => one::<i64>(kind, group, &case, blocks),
            _ => one::<u32>(kind, group, &case, blocks),
        };
        endings.extend(ending);
        while endings.len() > own.usize(1..20) {
            endings.swap_remove(own.usize(..endings.len()))();
        }
    }
    endings.into_iter().for_each(|end| end());
}

fn one<T: crate::case::Sample>(kind: Kind, group: &Group, case: &Case, blocks: bool) -> Option<Ending> {
    if blocks {
        play::<T>(kind, group, case);
        return None;
    }
    Some(begin::<T>(kind, group, case))
}

/// Messages around the circle until the collectives are over, the first rank saying which is the last.
fn chatter(group: &Group, tag: u32, over: &AtomicBool) {
    let (rank, size) = (group.rank(), group.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    for round in 0_u64.. {
        let len = (hash(round ^ u64::from(tag)) % 3000) as usize;
        let coming = group.recv_async(vec![0; len + 1], before, tag).unwrap();
        let mut is_last = rank == 0 && over.load(Ordering::Relaxed);
        let mut message = vec![round; len + 1];
        if rank == 0 {
            message[0] = u64::from(is_last);
            group.send(&message, next, tag).unwrap();
            assert_eq!(coming.wait().unwrap().data, message);
        } else {
            message = coming.wait().unwrap().data;
            assert!(message[1..].iter().all(|word| *word == round));
            is_last = message[0] == 1;
            group.send_async(message, next, tag).unwrap().wait().unwrap();
        }
        if is_last {
            return;
        }
    }
}
