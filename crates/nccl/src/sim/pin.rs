//! The core of a simulation. Of its threads one plays at a time: to wake one of another core takes longer than what it does then.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A core that all threads of a simulation share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Core(usize);

impl Core {
    /// The next of those that this thread may use, so that simulations at the same time have different ones; none where the system
    /// does not tell.
    pub(super) fn next() -> Option<Core> {
        static SIMULATIONS: AtomicUsize = AtomicUsize::new(0);
        let allowed = allowed();
        let turn = SIMULATIONS.fetch_add(1, Ordering::Relaxed) % allowed.len().max(1);
        allowed.get(turn).copied().map(Core)
    }

    /// Has this thread run there. Where it may not, it runs where it does.
    pub(super) fn enter(self) {
        bind(self.0);
    }
}

fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

fn bind(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_was_told_to() {
        let core = Core::next().expect("Linux tells");
        let there = std::thread::spawn(move || {
            core.enter();
            allowed()
        });
        assert_eq!(there.join().expect("no panic"), [core.0]);
    }
}
