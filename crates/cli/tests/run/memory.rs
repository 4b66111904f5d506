//! A rank that the kernel kills for want of memory. Needs the permission to make a cgroup, and is skipped without.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::job::Job;

/// A cgroup with a limit, removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    /// A cgroup below the root one, of version 1 or 2, if we may make one that limits memory.
    fn new(name: &str, bytes: usize) -> Option<Cgroup> {
        let versions = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        versions.iter().find_map(|(root, limit)| {
            let path = Path::new(root).join(name);
            fs::create_dir(&path).ok()?;
            let cgroup = Cgroup(path);
            let limit = cgroup.0.join(limit);
            // Writing must not make the file: outside a cgroup file system it would.
            (limit.exists() && fs::write(limit, bytes.to_string()).is_ok()).then_some(cgroup)
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_rank_killed_for_want_of_memory_is_told_as_such() {
    let job = Job::new();
    let name = job.directory.file_name().unwrap().to_str().unwrap();
    let Some(cgroup) = Cgroup::new(name, 64 << 20) else {
        writeln!(io::stderr(), "skipped: no permission to make a cgroup that limits memory").unwrap();
        return;
    };
    // The shell doubles a string until the kernel objects; the launcher shares the limit, and is small.
    let hog = "[ $RANK = 1 ] || exec sleep 1000; s=0123456789abcdef; while :; do s=$s$s; done";
    let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$PHALANX\" run --nproc-per-node 2 sh -c \"$1\"";
    let mut command = job.marked("sh");
    command.args(["-c", enter]).arg(&cgroup.0).arg(hog);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("phalanx: rank 1 failed: out of memory after "), "{stderr}");
    assert!(stderr.contains("killed by SIGKILL, and the cgroup's count of such kills rose from 0 to 1"), "{stderr}");
    job.assert_nothing_left();
}
