//! The list that a card goes through too, on the simulator: in worlds of 1 to 8.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use phalanx_core::Layout;
use phalanx_nccl::conformance::{Candidate, Verdict, trials};
use phalanx_nccl::group::Stack;
use phalanx_nccl::sim::{Fault, SimRank, Simulation};

use crate::seats::{DEVICE, clean, seeds};

/// Each seed in a world of its own size, one after the other; simulations have a core each.
#[test]
fn every_trial_is_passed_in_every_world() {
    let seeds = seeds(WORLDS);
    let (next, cores) = (AtomicU64::new(seeds.start), thread::available_parallelism().map_or(1, usize::from));
    let go_through = || {
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                seed if seeds.contains(&seed) => pass(seed, 1 + (seed % WORLDS) as usize),
                _ => return,
            }
        }
    };
    thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(go_through))));
}

/// Has a world go through the list under the order of a seed.
fn pass(seed: u64, size: usize) {
    let outcome = Simulation::new(size, seed).run(gone_through);
    for (rank, verdicts) in outcome.results.iter().enumerate() {
        for (name, verdict) in verdicts.as_ref().expect("an end") {
            let is_alone = size == 1 && ["messages", "batches"].contains(name);
            let is_right = verdict.as_ref().is_ok_and(|skipped| skipped.is_some() == is_alone);
            assert!(is_right, "seed {seed}: {name} on rank {rank} of {size}: {verdict:?}");
        }
    }
    clean(&outcome, seed);
}

/// One rank's part: how each trial ended.
fn gone_through(rank: SimRank) -> Vec<(&'static str, Verdict)> {
    let stack = Stack::new(rank.nccl, rank.cuda, rank.process, DEVICE);
    let layout = Layout::one_host(rank.rank, rank.size).expect("a layout");
    let candidate = Candidate::new(stack, layout, rank.store, Duration::from_secs(5)).expect("a group");
    let candidate = candidate.knowing_nan_check();
    trials().iter().map(|trial| (trial.name(), trial.run(&candidate))).collect()
}

/// Where the library refuses windows, the communicator that was asked for one ends.
#[test]
fn windows_that_there_are_not_cost_their_own_trial_alone() {
    for (fault, is_refused) in [(Fault::RefusesWindows, true), (Fault::OpensNoWindows, false)] {
        let job = (0..2).fold(Simulation::new(2, 1), |job, rank| job.fault(rank, fault));
        let outcome = job.run(gone_through);
        for (name, verdict) in outcome.results.iter().flatten().flatten() {
            let is_right = match verdict {
                _ if *name != "known memory" => *verdict == Ok(None),
                Ok(note) => !is_refused && note.as_ref().is_some_and(|note| note.contains("opens no window here")),
                Err(_) => is_refused,
            };
            assert!(is_right, "{fault:?}: {name}: {verdict:?}");
        }
        assert!(outcome.results.iter().all(Option::is_some));
        clean(&outcome, 1);
    }
}

#[test]
fn a_check_that_the_device_does_not_know_is_left_out_with_the_reason() {
    let outcome = Simulation::new(1, 1).run(|rank| {
        let stack = Stack::new(rank.nccl, rank.cuda, rank.process, DEVICE);
        let layout = Layout::one_host(0, 1).expect("a layout");
        let candidate = Candidate::new(stack, layout, rank.store, Duration::from_secs(5)).expect("a group");
        let candidate = candidate.lacking_nan_check("the driver is too old");
        let all = trials();
        all.iter().find(|trial| trial.name() == "nan").map(|trial| trial.run(&candidate))
    });
    let words = "the device does not know the kernels: the driver is too old".to_owned();
    assert_eq!(outcome.results, [Some(Some(Ok(Some(words))))]);
    clean(&outcome, 1);
}

/// Worlds of 1 to so many ranks.
const WORLDS: u64 = 8;
