//! Evidence that the kernel killed a process because memory ran out: it tells by a signal only, but it counts.

use std::fs;
use std::path::Path;

/// The kernel's counts of processes killed for want of memory, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kills {
    /// In the cgroup of this process and its ranks; absent in the root cgroup of version 2.
    cgroup: Option<u64>,
    /// On the whole machine.
    machine: Option<u64>,
}

impl Kills {
    pub(crate) fn now() -> Kills {
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let cgroup = places(&membership).iter().find_map(|path| count(&fs::read_to_string(path).ok()?));
        let machine = fs::read_to_string("/proc/vmstat").ok();
        Kills { cgroup, machine: machine.as_deref().and_then(count) }
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

/// Where the cgroup's count may stand, from the text of `/proc/self/cgroup`: in version 2 of cgroups, or in version 1.
fn places(membership: &str) -> Vec<String> {
    let place = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.events"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.oom_control")
            }
            _ => return None,
        };
        Some(Path::new(root).join(path.trim_start_matches('/')).join(file).to_string_lossy().into_owned())
    };
    membership.lines().filter_map(place).collect()
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
    fn both_versions_of_cgroups_are_looked_into() {
        let hybrid = "9:name=systemd:/\n4:cpu,memory:/a/b:c\n0::/user.slice\n";
        let expected = ["/sys/fs/cgroup/memory/a/b:c/memory.oom_control", "/sys/fs/cgroup/user.slice/memory.events"];
        assert_eq!(places(hybrid), expected);
        assert_eq!(places("nonsense\n3:cpu:/x"), Vec::<String>::new());
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
