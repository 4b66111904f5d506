//! A simulated job: so many ranks, each a program on a thread of the stage, one seed, and what was found in the end.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use phalanx_core::store::Store;

use super::cuda::SimCuda;
use super::engine::Engine;
use super::fault::{Fault, Plant, Script};
use super::finding::Finding;
use super::kernel::{Operand, Twins};
use super::nccl::SimNccl;
use super::process::SimProcess;
use super::stage::Stage;
use super::store::SimStore;
use crate::api::{KernelId, Version};

/// A job that is to be simulated.
#[derive(Clone, Debug)]
#[must_use]
pub struct Simulation {
    size: usize,
    seed: u64,
    script: Script,
    version: Version,
    twins: Twins,
}

/// What one rank works with.
pub struct SimRank {
    /// Its number.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// NCCL.
    pub nccl: Arc<SimNccl>,
    /// CUDA.
    pub cuda: Arc<SimCuda>,
    /// Threads and time.
    pub process: Arc<SimProcess>,
    /// The job's store.
    pub store: Store,
}

/// How a job went.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What each rank's program gave; none of a rank that vanished or could not end.
    pub results: Vec<Option<T>>,
    /// What the programs did wrong.
    pub findings: Vec<Finding>,
    /// Threads that did not end, though all programs had.
    pub left_over: Vec<String>,
    /// Bytes that were not freed, of devices and of the host, by rank.
    pub not_freed: Vec<(usize, usize)>,
    /// When it was over.
    pub ended: Duration,
}

impl Simulation {
    /// A job of so many ranks, in which the seed decides all that may differ.
    pub fn new(size: usize, seed: u64) -> Simulation {
        Simulation { size, seed, script: Script::default(), version: Version::new(2, 28, 9), twins: Twins::default() }
    }

    /// Adds a misbehaviour of a rank.
    pub fn fault(mut self, rank: usize, fault: Fault) -> Simulation {
        self.script.add(rank, fault);
        self
    }

    /// Plants a bug into the groups of all ranks.
    pub fn plant(mut self, plant: Plant) -> Simulation {
        self.script.plant(plant);
        self
    }

    /// Has devices know a kernel of the program's own, which this function does the work of.
    pub fn kernel(
        mut self,
        kernel: KernelId,
        name: &'static str,
        twin: impl Fn(&mut [Operand]) -> bool + Send + Sync + 'static,
    ) -> Simulation {
        self.twins.add(kernel, name, Arc::new(twin));
        self
    }

    /// The version that NCCL says it has.
    pub fn version(mut self, version: Version) -> Simulation {
        self.version = version;
        self
    }

    /// Runs `program` on every rank. A panic of a rank goes on in the caller, once all is over.
    pub fn run<T: Send + 'static>(self, program: impl Fn(SimRank) -> T + Send + Sync + 'static) -> Outcome<T> {
        let stage = Arc::new(Stage::new(self.seed, Engine::new(self.size, self.script, self.twins)));
        let program = Arc::new(program);
        let results: Vec<Arc<Mutex<Option<std::thread::Result<T>>>>> = (0..self.size).map(|_| Arc::default()).collect();
        for (rank, store) in SimStore::shared(&stage, self.size).into_iter().enumerate() {
            let seat = SimRank {
                rank,
                size: self.size,
                nccl: Arc::new(SimNccl { stage: Arc::clone(&stage), rank, version: self.version }),
                cuda: Arc::new(SimCuda { stage: Arc::clone(&stage), rank }),
                process: Arc::new(SimProcess { stage: Arc::clone(&stage), rank }),
                store: Store::new(store),
            };
            let (program, result) = (Arc::clone(&program), Arc::clone(&results[rank]));
            let body = move || {
                let ended = panic::catch_unwind(AssertUnwindSafe(|| program(seat)));
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            };
            stage.spawn(rank, "the program".to_owned(), true, Box::new(body));
        }
        stage.run();
        let results = results.iter().map(|result| result.lock().unwrap_or_else(PoisonError::into_inner).take());
        let results: Vec<Option<T>> = results.map(|result| result.and_then(settled)).collect();
        let mut state = stage.look();
        let not_freed = (0..self.size).map(|rank| state.engine.memory.in_use.get(&rank).copied().unwrap_or_default());
        Outcome {
            results,
            not_freed: not_freed.collect(),
            left_over: std::mem::take(&mut state.left_over),
            findings: std::mem::take(&mut state.found),
            ended: state.now,
        }
    }
}

/// What a program gave. One that the end of the run has swept off gave nothing; a panic of its own goes on here.
fn settled<T>(result: std::thread::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(payload) if Stage::is_over(&*payload) => None,
        Err(payload) => panic::resume_unwind(payload),
    }
}
