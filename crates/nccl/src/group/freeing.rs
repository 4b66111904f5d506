//! Frees memory whose last handle an operation had. To free it, the driver waits for all that runs on the device, and what runs there may wait for
//! another rank: so no lane does that, but one thread of the group, for which nobody waits until the group has ended, or memory is out.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::flight::Clock;
use super::hall::{Hall, lock};
use super::memory::{DeviceBuffer, Last};
use super::stack::Stack;
use crate::api::{Bell, Cuda, CudaCode, Device, Nccl, Process, Span};

/// What is to be freed.
pub(super) struct Freeing<C: Cuda> {
    state: Mutex<State<C>>,
    /// Rung when there is something to be freed, and at the end.
    bell: Arc<dyn Bell>,
    done: Arc<Done>,
    clock: Clock,
    /// How long whoever needs memory waits for it.
    patience: Duration,
}

/// What all groups on a device have freed, for whoever waits for any of it.
struct Done {
    count: AtomicU64,
    /// Rung after each piece.
    bell: Arc<dyn Bell>,
}

struct State<C: Cuda> {
    due: Vec<Last<C>>,
    /// How many pieces threads are freeing, or about to: one thread has them, unless there was none to be had.
    busy: usize,
    /// Whether there is a thread that does it.
    has_thread: bool,
    /// Whether that ends once nothing is due.
    is_ending: bool,
}

impl<C: Cuda> State<C> {
    fn is_idle(&self) -> bool {
        self.due.is_empty() && self.busy == 0
    }
}

impl<C: Cuda> Freeing<C> {
    pub(super) fn new<N: Nccl, P: Process>(stack: &Stack<N, C, P>, patience: Duration) -> Arc<Freeing<C>> {
        let process = Arc::clone(&stack.process);
        let clock: Clock = Arc::new(move || process.now());
        let state = Mutex::new(State { due: Vec::new(), busy: 0, has_thread: false, is_ending: false });
        let (bell, place) = (stack.process.bell(), (Arc::as_ptr(&stack.cuda).addr(), stack.device));
        let mut all = lock(&ALL);
        all.retain(|(_, freeing)| freeing.strong_count() > 0);
        // Dropped without the lock: it may be the last of its group, and free what that had.
        let other = all.iter().filter(|(of, _)| *of == place).find_map(|(_, freeing)| freeing.upgrade());
        let done = match &other {
            Some(other) => other.done(),
            None => Arc::new(Done { count: AtomicU64::new(0), bell: stack.process.bell() }),
        };
        let freeing = Arc::new(Freeing { state, bell, done, clock, patience });
        let known: Weak<dyn Frees> = Arc::<Freeing<C>>::downgrade(&freeing);
        all.push((place, known));
        drop(all);
        freeing
    }

    /// Frees what is due, and what comes meanwhile.
    fn free_due(&self) {
        loop {
            let due = {
                let mut state = lock(&self.state);
                state.busy += state.due.len();
                std::mem::take(&mut state.due)
            };
            if due.is_empty() {
                return;
            }
            for last in due {
                free(last);
                // First: whoever sees that nothing is due any more sees that it was freed.
                self.done.count.fetch_add(1, Ordering::AcqRel);
                lock(&self.state).busy -= 1;
                self.done.bell.ring();
            }
        }
    }

    /// Frees what is due here, if there was no thread to be had for it.
    fn free_stranded(&self) {
        let is_stranded = {
            let state = lock(&self.state);
            !state.has_thread && !state.due.is_empty()
        };
        if is_stranded {
            log::warn!("no thread was to be had to free memory, so a communicator's own does that");
            self.free_due();
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
    /// Gives handles back. Memory of which one was the last is freed on a thread of its own; where none is to be had, here and now.
    pub(super) fn give_back(&self, handles: impl IntoIterator<Item = DeviceBuffer<C>>) {
        self.hand_over(handles);
        self.freeing.free_stranded();
    }

    /// The same, but that nothing is freed here: whoever calls this gives something back, or nothing, soon after.
    pub(super) fn hand_over(&self, handles: impl IntoIterator<Item = DeviceBuffer<C>>) {
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
            lock(&self.freeing.state).has_thread = false;
        }
    }
}

/// What frees memory, for whoever needs some.
trait Frees: Send + Sync {
    /// What it and the others on its device have freed.
    fn done(&self) -> Arc<Done>;

    /// Whether nothing is due.
    fn is_idle(&self) -> bool;

    /// Until when whoever needs memory from now on waits for it.
    fn until(&self) -> Duration;

    /// Whether that is over.
    fn is_over(&self, until: Duration) -> bool;
}

impl<C: Cuda> Frees for Freeing<C> {
    fn done(&self) -> Arc<Done> {
        Arc::clone(&self.done)
    }

    fn is_idle(&self) -> bool {
        lock(&self.state).is_idle()
    }

    fn until(&self) -> Duration {
        (self.clock)().saturating_add(self.patience)
    }

    fn is_over(&self, until: Duration) -> bool {
        (self.clock)() >= until
    }
}

/// Memory of a device. Where it is out, it is asked for again after each piece that groups on the device free, until they have none.
#[track_caller]
pub(super) fn allocate<C: Cuda>(cuda: &Arc<C>, device: Device, byte_len: usize) -> Result<Span, CudaCode> {
    let place = (Arc::as_ptr(cuda).addr(), device);
    let frees: Vec<Arc<dyn Frees>> = {
        let all = lock(&ALL);
        all.iter().filter(|(of, _)| *of == place).filter_map(|(_, freeing)| freeing.upgrade()).collect()
    };
    let Some(first) = frees.first() else { return cuda.allocate(device, byte_len) };
    let (done, mut until) = (first.done(), None::<Duration>);
    loop {
        let freed = done.count.load(Ordering::Acquire);
        let is_last = until.is_some_and(|until| first.is_over(until));
        let made = cuda.allocate(device, byte_len);
        if is_last || made != Err(CudaCode::OUT_OF_MEMORY) {
            return made;
        }
        let until = *until.get_or_insert_with(|| frees.iter().map(|freeing| freeing.until()).max().unwrap_or_default());
        loop {
            let (seen, is_over) = (done.bell.count(), first.is_over(until));
            let is_idle = frees.iter().all(|freeing| freeing.is_idle());
            // Looked at after that: what was freed last of all counts too.
            if done.count.load(Ordering::Acquire) != freed {
                break;
            }
            if is_idle || is_over {
                return made;
            }
            done.bell.wait(seen, Some(until));
        }
    }
}

/// What frees memory in this process, by whom it asks for which device.
static ALL: Mutex<Vec<(Asked, Weak<dyn Frees>)>> = Mutex::new(Vec::new());

/// A driver, by its address, and the device.
type Asked = (usize, Device);
