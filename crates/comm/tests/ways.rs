//! What lies in ordinary memory reaches the peers through slots or is fetched, as each rank has weighed it: either way the same comes.

use std::thread;
use std::time::Duration;

use phalanx_comm::{Door, Processes};
use phalanx_core::Group;

#[test]
fn long_moves_are_right_while_ranks_try_both_ways() {
    let name = format!("phalanx-ways-{}", std::process::id());
    let join = |rank| Processes::new(rank, RANKS, Door::named(name.clone()), [5; 16]).join(PATIENCE);
    thread::scope(|scope| {
        for rank in 0..RANKS {
            scope.spawn(move || (0..ROUNDS).for_each(|round| move_all(&join(rank).expect("a world"), round)));
        }
    });
}

/// Every element says whose it is, whom it is for, and in which round.
fn move_all(group: &Group, round: usize) {
    for turn in round * CALLS..(round + 1) * CALLS {
        let value = |from: usize, to: usize, at: usize| (turn << 20 | from << 18 | to << 16 | (at % 65_521)) as u64;
        let rank = group.rank();
        let given: Vec<u64> = (0..LEN).map(|at| value(rank, 0, at)).collect();
        let mut all = vec![0; RANKS * LEN];
        group.all_gather(&given, &mut all).expect("a group");
        assert!(all.iter().enumerate().all(|(at, got)| *got == value(at / LEN, 0, at % LEN)), "gathered, turn {turn}");
        let given: Vec<u64> = (0..RANKS * LEN).map(|at| value(rank, at / LEN, at % LEN)).collect();
        group.all_to_all(&given, &mut all).expect("a group");
        assert!(
            all.iter().enumerate().all(|(at, got)| *got == value(at / LEN, rank, at % LEN)),
            "changed, turn {turn}"
        );
    }
}

const RANKS: usize = 3;
/// Long enough to be fetched, and of several pieces.
const LEN: usize = 40_000;
const ROUNDS: usize = 2;
/// More than come before the first trials.
const CALLS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(60);
