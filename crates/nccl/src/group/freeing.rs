//! Frees memory whose last handle an operation had. To free it, the driver waits for all that runs on the device, and what runs there may wait for
//! another rank: so no lane does that, but a thread that nobody waits for until the group has ended.

use std::sync::{Arc, Mutex};

use super::hall::{Hall, lock};
use super::memory::{DeviceBuffer, Last};
use crate::api::{Cuda, Nccl, Process};

/// What is to be freed.
pub(super) struct Freeing<C: Cuda>(Mutex<State<C>>);

struct State<C: Cuda> {
    due: Vec<Last<C>>,
    /// Whether there is a thread that frees it.
    is_under_way: bool,
}

impl<C: Cuda> Freeing<C> {
    pub(super) fn new() -> Arc<Freeing<C>> {
        Arc::new(Freeing(Mutex::new(State { due: Vec::new(), is_under_way: false })))
    }

    /// Frees what is due, and what comes meanwhile.
    fn free_all(&self) {
        loop {
            let due = {
                let mut state = lock(&self.0);
                let due = std::mem::take(&mut state.due);
                state.is_under_way = !due.is_empty();
                due
            };
            if due.is_empty() {
                return;
            }
            drop(due);
        }
    }
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// Gives handles back. Memory of which one was the last is freed on a thread of its own.
    pub(super) fn give_back(&self, handles: impl IntoIterator<Item = DeviceBuffer<C>>) {
        let last: Vec<Last<C>> = handles.into_iter().filter_map(DeviceBuffer::into_last).collect();
        if last.is_empty() {
            return;
        }
        let is_under_way = {
            let mut state = lock(&self.freeing.0);
            state.due.extend(last);
            std::mem::replace(&mut state.is_under_way, true)
        };
        if is_under_way {
            return;
        }
        // It has nothing else of the group: the driver may keep it for long.
        let (freeing, stack, watch) = (Arc::clone(&self.freeing), self.stack.clone(), Arc::clone(&self.bell));
        let work = move || {
            stack.enter_thread();
            freeing.free_all();
            watch.ring();
        };
        if !self.stack.process.spawn(format!("nccl-free-{}", self.layout.rank()), Box::new(work)) {
            log::warn!("no thread was to be had to free memory, so a communicator's own does that");
            self.freeing.free_all();
        }
    }

    /// Whether memory is still being freed.
    pub(super) fn is_freeing(&self) -> bool {
        lock(&self.freeing.0).is_under_way
    }
}
