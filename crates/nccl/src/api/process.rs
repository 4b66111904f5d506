//! What is asked of the process itself: the time, threads, and something to wait on. The simulator gives all three, so that one seed
//! decides how threads interleave and no test waits for a real clock.

use std::sync::Arc;
use std::time::Duration;

/// The time, threads, and bells.
pub trait Process: Send + Sync + 'static {
    /// The time since a moment that all of one process have in common: what one group has noted, another compares with its own.
    fn now(&self) -> Duration;

    /// Starts a thread; false where the system has none left.
    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> bool;

    /// Lets other threads go first, for a moment that is too short to sleep.
    fn give_way(&self);

    /// A new bell.
    fn bell(&self) -> Arc<dyn Bell>;
}

/// Something to wait on. Whoever looks at its count before what it stands for misses no ring.
///
/// What a thread did before it rang is seen by who has seen the count: this is how a thread passes on that it has seen the end of an
/// event, so there is a bell beside every state that says so.
pub trait Bell: Send + Sync {
    /// How often it was rung.
    fn count(&self) -> u64;

    /// Rings.
    fn ring(&self);

    /// Waits until it was rung more often than this, or until a moment of the process's time.
    fn wait(&self, seen: u64, until: Option<Duration>);
}
