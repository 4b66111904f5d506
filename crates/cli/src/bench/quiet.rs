//! Whether the processors have nothing to do, as the system tells it in `/proc/stat`.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

/// Waits until the machine is quiet, or this long.
pub(super) fn wait(at_most: Duration) {
    let deadline = Instant::now() + at_most;
    while let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        let (began, before) = (Instant::now(), busy());
        // No event tells what was not done.
        thread::sleep(LOOK.min(left));
        let (Some(before), Some(after)) = (before, busy()) else { return };
        if (after - before) / began.elapsed().as_secs_f64() < QUIET {
            return;
        }
    }
}

/// Seconds that all processors have worked so far.
fn busy() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    Some(busy_ticks(&stat)? as f64 / clock_ticks_per_second() as f64)
}

/// User, nice, system, both kinds of interrupts, and what the host gave to others; not idle and waiting for disks.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    [0, 1, 2, 5, 6, 7].into_iter().map(|at| fields.get(at)).sum()
}

const LOOK: Duration = Duration::from_millis(250);
/// Processors that may be busy: as much as the peers' programs take for quiet.
const QUIET: f64 = 0.12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_from_idleness() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(87_600_321));
        assert_eq!(busy_ticks("cpu  1 2 3\n"), None);
        assert_eq!(busy_ticks("intr 1\n"), None);
    }

    #[test]
    fn a_wait_of_no_time_ends_at_once_and_work_only_grows() {
        wait(Duration::ZERO);
        let before = busy().expect("a system that counts");
        wait(Duration::from_millis(20));
        assert!(busy().expect("a system that counts") >= before);
    }
}
