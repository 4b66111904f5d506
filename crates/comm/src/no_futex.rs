//! Stands in for `futex` where the system has none that is safe to call: a sleeper looks again every now and then.

use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::Duration;

/// Sleeps for a moment, at most this long.
pub(crate) fn wait(_word: &AtomicU32, _value: u32, limit: Duration, _scope: Scope) {
    thread::park_timeout(limit.min(MOMENT));
}

pub(crate) fn wake_all(_word: &AtomicU32, _scope: Scope) {}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope {
    Process,
}

const MOMENT: Duration = Duration::from_micros(200);
