//! How a job of groups is made, and what is expected of it in the end.

use std::sync::Arc;

use phalanx_nccl::api::{Cuda, Stream};
use phalanx_nccl::group::NcclOptions;
use phalanx_nccl::sim::{SimCuda, Simulation};

use crate::memory::{self, Memory};
use crate::seats::{DEVICE, Group, clean, group};

/// One rank of a job and its group.
pub(crate) struct Member {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) group: Group,
    pub(crate) cuda: Arc<SimCuda>,
    pub(crate) stream: Stream,
}

/// Runs `program` on each rank of a job, and sees that nothing is found and nothing stays behind.
pub(crate) fn run<T: Send + 'static>(
    size: usize,
    seed: u64,
    program: impl Fn(&Member) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let outcome = Simulation::new(size, seed).run(move |rank| {
        let group = group(&rank, "group", NcclOptions::default()).expect("a group");
        let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        program(&Member { rank: rank.rank, size: rank.size, group, cuda: Arc::clone(&rank.cuda), stream })
    });
    clean(&outcome, seed);
    outcome.results.into_iter().map(|result| result.expect("an end")).collect()
}

impl Member {
    /// Memory of the device with these bytes, written on the member's stream.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Memory {
        memory::upload(&self.cuda, self.stream, bytes)
    }

    /// The bytes of the device's memory, after what is on the member's stream.
    pub(crate) fn download(&self, memory: &Memory) -> Vec<u8> {
        memory::download(&self.cuda, self.stream, memory)
    }
}
