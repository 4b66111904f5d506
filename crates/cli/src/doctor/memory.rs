//! How much memory is left, on the machine and in this control group.

use std::fs;

use super::cgroup;
use super::finding::{Finding, amount};

/// Bytes; none where the system does not say or has no limit.
#[derive(Debug)]
pub(super) struct Reading {
    /// What the machine has left.
    available: Option<u64>,
    /// What this control group may have in all.
    limit: Option<u64>,
    /// What it has, less what it could give back at once.
    used: Option<u64>,
}

pub(super) fn read() -> Reading {
    let of_group = |second: &str, first: &str| cgroup::read("memory", second, first);
    let limit = of_group("memory.max", "memory.limit_in_bytes").and_then(|text| number(&text));
    let used = of_group("memory.current", "memory.usage_in_bytes").and_then(|text| number(&text));
    let spare = of_group("memory.stat", "memory.stat").and_then(|stat| field(&stat, "inactive_file"));
    let used = used.map(|used| used.saturating_sub(spare.unwrap_or(0)));
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let available = machine.and_then(|text| field(&text, "MemAvailable:")).map(|kibibytes| kibibytes << 10);
    // Without a limit, the first version says a number beyond every machine.
    Reading { available, limit: limit.filter(|&limit| limit < 1 << 60), used }
}

pub(super) fn judge(reading: &Reading) -> Finding {
    let in_group = reading.limit.map(|limit| limit.saturating_sub(reading.used.unwrap_or(0)));
    let Some(left) = in_group.into_iter().chain(reading.available).min() else {
        return Finding::ok(CHECK, "the system does not say how much is left");
    };
    let limit = reading.limit.map(|limit| format!(", this control group may have {}", amount(limit)));
    let found = format!("{} left{}", amount(left), limit.unwrap_or_default());
    if left < LEAST {
        let why = "ranks that meet need some MiB for each pair of them, and are refused or killed without";
        return Finding::wrong(CHECK, found, why, "end other programs, or give the container more memory");
    }
    Finding::ok(CHECK, found)
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The number behind a name.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

const CHECK: &str = "memory";
const LEAST: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_is_left_is_the_least_of_both() {
        let found = |available, limit, used| judge(&Reading { available, limit, used }).found;
        assert_eq!(found(Some(8 * GIB), None, None), "8 GiB left");
        let in_a_group = found(Some(8 * GIB), Some(4 * GIB), Some(GIB));
        assert_eq!(in_a_group, "3 GiB left, this control group may have 4 GiB");
        assert_eq!(found(None, None, Some(GIB)), "the system does not say how much is left");
    }

    #[test]
    fn too_little_is_wrong_whoever_sets_the_limit() {
        let level = |available, limit, used| judge(&Reading { available, limit, used }).level;
        assert_eq!(level(Some(100 << 20), None, None), Level::Wrong);
        assert_eq!(level(Some(8 * GIB), Some(GIB), Some(GIB - 5)), Level::Wrong);
        assert_eq!(level(Some(8 * GIB), Some(GIB), Some(2 * GIB)), Level::Wrong);
        assert_eq!(level(Some(8 * GIB), Some(GIB), None), Level::Ok);
    }

    #[test]
    fn fields_are_read() {
        let text = "MemTotal:  900 kB\nMemAvailable:  700 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(700));
        assert_eq!(field("active_file 3\ninactive_file 4\n", "inactive_file"), Some(4));
        assert_eq!((number("max\n"), number("12\n")), (None, Some(12)));
    }
}
