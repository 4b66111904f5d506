//! Evidence that the kernel killed a process because memory ran out: it tells by a signal only, but it counts.

use std::fs;
use std::path::PathBuf;

/// The kernel's counts of processes killed for want of memory, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kills {
    /// In the cgroup of this process and its ranks; absent in the root cgroup and without cgroup v2.
    cgroup: Option<u64>,
    /// On the whole machine.
    machine: Option<u64>,
}

impl Kills {
    pub(crate) fn now() -> Kills {
        let cgroup = own_cgroup().and_then(|path| fs::read_to_string(path.join("memory.events")).ok());
        let machine = fs::read_to_string("/proc/vmstat").ok();
        Kills { cgroup: cgroup.as_deref().and_then(count), machine: machine.as_deref().and_then(count) }
    }

    /// What has risen between `self` and `later`, in words. The machine's count is believed only where there is no
    /// better one, for it counts strangers too.
    pub(crate) fn rose(self, later: Kills) -> Option<String> {
        let (of, before, after) = match (self.cgroup, later.cgroup) {
            (Some(before), Some(after)) => ("the cgroup's", before, after),
            _ => ("the machine's", self.machine?, later.machine?),
        };
        (after > before).then(|| format!("{of} count of such kills rose from {before} to {after}"))
    }
}

fn own_cgroup() -> Option<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(PathBuf::from("/sys/fs/cgroup").join(path))
}

/// The value of `oom_kill` among lines of names and numbers.
fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_among_others() {
        assert_eq!(count("low 0\noom 7\noom_kill 3\noom_group_kill 0\n"), Some(3));
        assert_eq!(count("pgfault 9\noom_kill 12"), Some(12));
        assert_eq!(count("oom_killed 1\noom_kill x"), None);
    }

    #[test]
    fn the_cgroup_is_believed_before_the_machine() {
        let kills = |cgroup, machine| Kills { cgroup, machine };
        let rose = kills(Some(1), Some(1)).rose(kills(Some(2), Some(5))).unwrap();
        assert_eq!(rose, "the cgroup's count of such kills rose from 1 to 2");
        assert_eq!(kills(Some(1), Some(1)).rose(kills(Some(1), Some(5))), None);
        assert_eq!(kills(None, Some(1)).rose(kills(None, Some(1))), None);
        assert!(kills(None, Some(1)).rose(kills(Some(1), Some(2))).unwrap().contains("machine's count"));
        assert_eq!(kills(None, None).rose(kills(None, None)), None);
    }
}
