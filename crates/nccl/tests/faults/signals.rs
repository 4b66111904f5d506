//! Signals of PyTorch's ranks, written here as they write them, and ours as they read them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_core::store::Store;
use phalanx_core::{Error, GroupOptions, Layout, ReduceOp};
use phalanx_nccl::api::Process;
use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack, TorchJob};
use phalanx_nccl::sim::{Fault, SimRank, Simulation};

use crate::seats::{DEVICE, Group, clean, seeds};

/// The ranks of the job that are those of the group.
const MEMBERS: [usize; 3] = [4, 6, 9];

/// The keys that the group's ranks have in the job's store: of its group 1.
const KEYS: &str = "/default_pg/0//1//cuda//";

/// A rank's group, shared with PyTorch's ranks, and which of the job's ranks asked for dumps.
fn shared(rank: &SimRank, timeout: Duration) -> (Group, Arc<Mutex<Vec<Option<usize>>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    let job = TorchJob::new(rank.store.clone(), 1, MEMBERS.to_vec());
    let job = job.on_dump(move |by| notes.lock().expect("no panic").push(by));
    let stack = Stack::new(rank.nccl.clone(), rank.cuda.clone(), rank.process.clone(), DEVICE);
    let layout = Layout::one_host(rank.rank, rank.size).expect("a layout");
    let (keys, options) = (job.keys(), NcclOptions::default().heartbeat(Duration::from_millis(50)).torch(job));
    let group = DeviceGroup::new(stack, layout, keys, options, GroupOptions::default().timeout(timeout));
    (group.expect("a group"), asked)
}

fn wait(rank: &SimRank, time: Duration) {
    let (bell, until) = (rank.process.bell(), rank.process.now() + time);
    while rank.process.now() < until {
        bell.wait(bell.count(), Some(until));
    }
}

/// What the two others are told when the last rank, which is PyTorch's, says something and comes to nothing.
fn told(seed: u64, say: impl Fn(&Store) + Send + Sync + 'static) -> Vec<(Error, Duration, Vec<Option<usize>>)> {
    let outcome = Simulation::new(3, seed).run(move |rank| {
        let (group, asked) = shared(&rank, Duration::from_secs(20));
        let host = group.group();
        host.barrier().expect("all came");
        let begun = rank.process.now();
        if rank.rank == 2 {
            wait(&rank, Duration::from_millis(100));
            say(&rank.store);
            return None;
        }
        let error = host.all_reduce(&mut [1.0_f32], ReduceOp::Sum).expect_err("the last does not come");
        let took = rank.process.now() - begun;
        let asked = asked.lock().expect("no panic").clone();
        Some((error, took, asked))
    });
    clean(&outcome, seed);
    outcome.results.into_iter().flatten().flatten().collect()
}

#[test]
fn a_rank_of_pytorch_asks_for_dumps() {
    for seed in seeds(6) {
        let ends = told(seed, |store| store.set("/exception_dump", 9_i32.to_le_bytes()).expect("set"));
        assert_eq!(ends.len(), 2);
        for (error, took, asked) in &ends {
            assert!(
                error.to_string().contains("rank 9 of the job saw an operation fail and asks for dumps"),
                "{error}"
            );
            assert!(*took < Duration::from_secs(2), "{took:?}");
            // The other may have said why before the signal was looked for.
            assert!(*asked == [Some(9)] || asked.is_empty());
        }
        assert!(ends.iter().any(|(_, _, asked)| *asked == [Some(9)]), "seed {seed}");
    }
}

#[test]
fn a_signal_of_no_sense_is_one_all_the_same() {
    let ends = told(1, |store| store.set("/exception_dump", "what").expect("set"));
    let text = ends[0].0.to_string();
    assert!(text.contains("of the job saw an operation fail"), "{text}");
}

#[test]
fn a_rank_of_pytorch_says_that_the_group_failed() {
    let ends = told(2, |store| store.set(&format!("{KEYS}remote_error:1"), 9_i32.to_le_bytes()).expect("set"));
    assert!(ends.iter().all(|(error, ..)| error.to_string().contains("rank 9 of the job says that the group failed")));
    assert!(ends.iter().all(|(_, _, asked)| asked.is_empty()));
}

#[test]
fn a_rank_of_pytorch_has_aborted_the_communicator() {
    let ends = told(3, |store| {
        // Its id is under the key of the first communicator.
        let id = store.get(&format!("{KEYS}0")).expect("an id");
        let digits: String = id.iter().map(|byte| format!("{byte:x}")).collect();
        store.set(&format!("{KEYS}NCCLABORTEDCOMM:{digits}"), "2").expect("set");
    });
    // What is written there is its number in the group.
    assert!(ends.iter().all(|(error, ..)| error.to_string().contains("rank 9 has aborted a communicator")), "{ends:?}");
}

#[test]
fn what_fails_here_is_told_as_pytorch_tells_it() {
    for seed in seeds(6) {
        // The kernel of the second collective of rank 1 never ends.
        let job = Simulation::new(3, seed).fault(1, Fault::AsyncError { comm: 0, polls: 3, status: 6 });
        let outcome = job.run(|rank| {
            let (group, asked) = shared(&rank, Duration::from_secs(5));
            let failed = (0..50).any(|_| {
                wait(&rank, Duration::from_millis(20));
                group.group().all_reduce(&mut [1.0_f32], ReduceOp::Sum).is_err()
            });
            wait(&rank, Duration::from_secs(1));
            let find = |key: &str| rank.store.find(key).expect("asked");
            let keys = rank.store.list_keys().expect("listed");
            let aborted = keys.into_iter().find(|key| key.starts_with(&format!("{KEYS}NCCLABORTEDCOMM:")));
            let said =
                (find("/exception_dump"), find(&format!("{KEYS}remote_error:1")), aborted.and_then(|key| find(&key)));
            (failed, said, asked.lock().expect("no panic").clone())
        });
        for (rank, (failed, (dump, error, aborted), _)) in outcome.results.iter().flatten().enumerate() {
            assert!(failed, "seed {seed}: rank {rank}");
            assert_eq!((dump, error), (&Some(6_i32.to_le_bytes().to_vec()), &Some(6_i32.to_le_bytes().to_vec())));
            assert!(matches!(aborted.as_deref(), Some([b'0'..=b'2'])), "seed {seed}: {aborted:?}");
        }
        // Nobody asks itself.
        assert_eq!(outcome.results[1].as_ref().expect("an end").2, []);
    }
}
