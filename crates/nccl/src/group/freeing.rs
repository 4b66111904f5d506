//! Frees memory whose last handle an operation had. To free it, the driver waits for all that runs on the device, and what runs there may wait for
//! another rank: so no lane does that, but one thread of the group, for which nobody waits until the group has ended, or memory is out.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::flight::Clock;
use super::hall::{Hall, lock};
use super::memory::{DeviceBuffer, Last};
use crate::api::{Bell, Cuda, CudaCode, Device, Nccl, Process, Span};

/// What is to be freed.
pub(super) struct Freeing<C: Cuda> {
    state: Mutex<State<C>>,
    /// Rung when there is something to be freed, when that is done, and at the end.
    bell: Arc<dyn Bell>,
    clock: Clock,
    /// How long whoever needs memory waits for it.
    patience: Duration,
}

struct State<C: Cuda> {
    due: Vec<Last<C>>,
    /// How many threads are freeing something: one, unless there was none to be had.
    busy: usize,
    /// Whether there is a thread that does it.
    has_thread: bool,
    /// Whether that ends once nothing is due.
    is_ending: bool,
    /// How often something was freed.
    freed: u64,
}

impl<C: Cuda> State<C> {
    fn is_idle(&self) -> bool {
        self.due.is_empty() && self.busy == 0
    }
}

impl<C: Cuda> Freeing<C> {
    pub(super) fn new(cuda: &Arc<C>, bell: Arc<dyn Bell>, clock: Clock, patience: Duration) -> Arc<Freeing<C>> {
        let state = State { due: Vec::new(), busy: 0, has_thread: false, is_ending: false, freed: 0 };
        let freeing = Arc::new(Freeing { state: Mutex::new(state), bell, clock, patience });
        let known: Weak<dyn Frees> = Arc::<Freeing<C>>::downgrade(&freeing);
        let mut all = lock(&ALL);
        all.retain(|(_, freeing)| freeing.strong_count() > 0);
        all.push((Arc::as_ptr(cuda).addr(), known));
        drop(all);
        freeing
    }

    /// Frees what is due, and what comes meanwhile.
    fn free_due(&self) {
        loop {
            let due = {
                let mut state = lock(&self.state);
                state.busy += usize::from(!state.due.is_empty());
                std::mem::take(&mut state.due)
            };
            if due.is_empty() {
                return;
            }
            due.into_iter().for_each(free);
            {
                let mut state = lock(&self.state);
                state.busy -= 1;
                state.freed += 1;
            }
            self.bell.ring();
        }
    }

    /// The thread.
    fn work(&self) {
        loop {
            let seen = self.bell.count();
            self.free_due();
            {
                let mut state = lock(&self.state);
                if state.is_ending && state.due.is_empty() {
                    state.has_thread = false;
                    return;
                }
            }
            self.bell.wait(seen, None);
        }
    }

    /// Has the thread end, once nothing is due; whether it has.
    pub(super) fn ends(&self) -> bool {
        let (was_ending, has_ended) = {
            let mut state = lock(&self.state);
            let is_idle = state.is_idle();
            (std::mem::replace(&mut state.is_ending, true), is_idle && !state.has_thread)
        };
        if !was_ending {
            self.bell.ring();
        }
        has_ended
    }
}

/// Frees one. What another library keeps its memory by may panic on its way, which is no concern of the others'.
fn free<C: Cuda>(last: Last<C>) {
    if panic::catch_unwind(AssertUnwindSafe(|| drop(last))).is_err() {
        log::warn!("what kept memory that is not needed any more has panicked");
    }
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// Gives handles back. Memory of which one was the last is freed on a thread of its own.
    pub(super) fn give_back(&self, handles: impl IntoIterator<Item = DeviceBuffer<C>>) {
        let last: Vec<Last<C>> = handles.into_iter().filter_map(DeviceBuffer::into_last).collect();
        if last.is_empty() {
            return;
        }
        let has_thread = {
            let mut state = lock(&self.freeing.state);
            state.due.extend(last);
            std::mem::replace(&mut state.has_thread, true)
        };
        if has_thread {
            return self.freeing.bell.ring();
        }
        // It has nothing else of the group: the driver may keep it for long.
        let (freeing, stack, watch) = (Arc::clone(&self.freeing), self.stack.clone(), Arc::clone(&self.bell));
        let work = move || {
            stack.enter_thread();
            freeing.work();
            watch.ring();
        };
        if !self.stack.process.spawn(format!("nccl-free-{}", self.layout.rank()), Box::new(work)) {
            log::warn!("no thread was to be had to free memory, so a communicator's own does that");
            lock(&self.freeing.state).has_thread = false;
            self.freeing.free_due();
        }
    }
}

/// What frees memory, for whoever needs some.
trait Frees: Send + Sync {
    /// How often it has freed something.
    fn freed(&self) -> u64;

    /// Waits until nothing is due, for a while.
    fn settle(&self);
}

impl<C: Cuda> Frees for Freeing<C> {
    fn freed(&self) -> u64 {
        lock(&self.state).freed
    }

    fn settle(&self) {
        let until = (self.clock)().saturating_add(self.patience);
        loop {
            let seen = self.bell.count();
            if lock(&self.state).is_idle() || (self.clock)() >= until {
                return;
            }
            self.bell.wait(seen, Some(until));
        }
    }
}

/// Memory of a device. Where it is out, what groups are about to free is waited for first.
#[track_caller]
pub(super) fn allocate<C: Cuda>(cuda: &Arc<C>, device: Device, byte_len: usize) -> Result<Span, CudaCode> {
    let frees: Vec<Arc<dyn Frees>> = {
        let all = lock(&ALL);
        let own = all.iter().filter(|(of, _)| *of == Arc::as_ptr(cuda).addr());
        own.filter_map(|(_, freeing)| freeing.upgrade()).collect()
    };
    let freed = || frees.iter().map(|freeing| freeing.freed()).sum::<u64>();
    let before = freed();
    let made = cuda.allocate(device, byte_len);
    if made != Err(CudaCode::OUT_OF_MEMORY) {
        return made;
    }
    frees.iter().for_each(|freeing| freeing.settle());
    if freed() == before { made } else { cuda.allocate(device, byte_len) }
}

/// What frees memory in this process, by the driver that it asks.
static ALL: Mutex<Vec<(usize, Weak<dyn Frees>)>> = Mutex::new(Vec::new());
