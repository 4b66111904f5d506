//! Batches that collectives are being added to. Those have their numbers, and what comes after them in the group waits for them; but the batch has its
//! place among what its thread begins in all groups when it is complete, behind what the thread has begun meanwhile. An operation of the same group
//! that the thread begins in between would wait for the batch, and the batch for what came after that: so it is refused.

use std::sync::Mutex;
use std::thread::{self, ThreadId};

use phalanx_core::{Error, OpKind, Result};

use super::hall::{Hall, lock};
use crate::api::{Cuda, Nccl, Process};

/// That a thread is adding to a batch.
pub(super) struct Adding<'a> {
    threads: &'a Mutex<Vec<ThreadId>>,
    thread: ThreadId,
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// The calling thread is adding to a batch, until this is dropped.
    pub(super) fn begin_adding(&self) -> Adding<'_> {
        let thread = thread::current().id();
        lock(&self.adding).push(thread);
        Adding { threads: &self.adding, thread }
    }

    /// That the calling thread may begin a collective: it is not adding to a batch.
    pub(super) fn check_adding(&self, op: OpKind) -> Result<()> {
        let threads = lock(&self.adding);
        if op.is_message() || threads.is_empty() || !threads.contains(&thread::current().id()) {
            return Ok(());
        }
        let expected = "must be added to that, or begun once it is complete";
        Err(Error::usage(op, "call", "beside a batch that this thread is adding to", expected))
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        let mut threads = lock(self.threads);
        if let Some(at) = threads.iter().position(|thread| *thread == self.thread) {
            threads.swap_remove(at);
        }
    }
}
