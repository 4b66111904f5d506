//! The control groups this process is in: where the limits of memory and processor time of a container stand.

use std::fs;
use std::path::{Path, PathBuf};

/// What a control group says, by the name of the file in each version; the group's own or, in a container that does not see
/// its path, that at the root.
pub(super) fn read(controller: &str, second_version: &str, first_version: &str) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let root = Path::new("/sys/fs/cgroup");
    let first = path(&groups, controller).map(|path| (root.join(controller), path, first_version));
    let second = path(&groups, "").map(|path| (root.to_owned(), path, second_version));
    first.into_iter().chain(second).find_map(|(root, path, file)| {
        let places: [PathBuf; 2] = [root.join(path.trim_start_matches('/')), root];
        places.iter().find_map(|place| fs::read_to_string(place.join(file)).ok())
    })
}

/// The path of a process's group of this controller; the second version has one group for all, under no name.
fn path<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_by_controller_in_both_versions() {
        let groups = "4:memory:/job/7\n3:cpu,cpuacct:/x:y\n0::/\n";
        let found = ["memory", "cpu", "cpuacct", "", "blkio"].map(|controller| path(groups, controller));
        assert_eq!(found, [Some("/job/7"), Some("/x:y"), Some("/x:y"), Some("/"), None]);
    }
}
