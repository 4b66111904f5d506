//! How many cores ranks may use, and for how much of the time.

use std::fs;

use super::cgroup;
use super::finding::Finding;
use crate::run::process::cores;

/// Numbers of cores; none where the system does not say.
#[derive(Debug)]
pub(super) struct Reading {
    /// Those this process may be on.
    usable: usize,
    /// Those the machine has.
    online: Option<usize>,
    /// As many as the time that the control group gives.
    quota: Option<f64>,
}

pub(super) fn read() -> Reading {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let quota = cgroup::read("cpu", "cpu.max", "cpu.cfs_quota_us");
    let period = cgroup::read("cpu", "cpu.max", "cpu.cfs_period_us");
    let quota = quota.zip(period).and_then(|(quota, period)| share(&quota, &period));
    Reading { usable: cores::usable().len(), online: online.and_then(|text| count(&text)), quota }
}

pub(super) fn judge(reading: &Reading) -> Finding {
    let usable = reading.usable;
    let of = reading.online.map(|online| format!(" of {online}")).unwrap_or_default();
    if let Some(quota) = reading.quota.filter(|&quota| quota < usable as f64) {
        let found = format!("{usable}{of}, but time for {quota:.1}");
        let why = "ranks that wait for each other use up the time, and then all of them are stopped for a while";
        return Finding::slow(CHECK, found, why, "give the container whole cores (cpuset) instead of a quota");
    }
    if usable == 1 {
        let why = "two ranks on one core take turns, so that each message costs a switch between them";
        return Finding::slow(
            CHECK,
            format!("1{of}"),
            why,
            "let this process use more (taskset, or the container's cpuset)",
        );
    }
    Finding::ok(CHECK, format!("{usable}{of}"))
}

/// Cores that a quota amounts to, in the words of either version.
fn share(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.split_whitespace().next()?.parse().ok()?;
    let period: f64 = period.split_whitespace().next_back()?.parse().ok()?;
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// How many there are in a list as the kernel writes it: `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let run = |run: &str| -> Option<usize> {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first).map(|more| more + 1)
    };
    list.trim().split(',').map(run).sum()
}

const CHECK: &str = "cores";

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn quotas_of_both_versions_are_cores() {
        assert_eq!(share("150000 100000\n", "150000 100000\n"), Some(1.5));
        assert_eq!(share("max 100000\n", "max 100000\n"), None);
        assert_eq!(share("-1\n", "100000\n"), None);
        assert_eq!(share("200000\n", "100000\n"), Some(2.0));
    }

    #[test]
    fn lists_are_counted() {
        assert_eq!(["0", "0-3\n", "0-3,8,10-11"].map(count), [Some(1), Some(4), Some(7)]);
        assert_eq!(["", "3-1", "a"].map(count), [None; 3]);
    }

    #[test]
    fn less_time_than_cores_and_one_core_alone_are_slow() {
        let judged = |usable, quota| judge(&Reading { usable, online: Some(8), quota });
        assert_eq!(judged(4, None), Finding::ok(CHECK, "4 of 8"));
        assert_eq!(judged(4, Some(4.0)), Finding::ok(CHECK, "4 of 8"));
        assert_eq!((judged(4, Some(1.5)).level, judged(1, None).level), (Level::Slow, Level::Slow));
        assert_eq!(judged(4, Some(1.5)).found, "4 of 8, but time for 1.5");
    }
}
