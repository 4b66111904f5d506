//! So much memory and no more, for a process: a control group of the system, which ends whoever takes more.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::world::unique_name;

/// The control group, removed at the end.
pub(crate) struct Allowance(PathBuf);

impl Allowance {
    /// So many bytes; none where this system does not let us say so, which is said.
    pub(crate) fn of_memory(byte_len: u64) -> Option<Allowance> {
        let made = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
            .map(|(root, limit)| Allowance::below(Path::new(root), limit, byte_len));
        if let [Err(first), Err(second)] = &made {
            let line = format!("skipped, because there can be no control groups here: {first}; {second}\n");
            io::stderr().write_all(line.as_bytes()).expect("stderr");
        }
        made.into_iter().find_map(Result::ok)
    }

    fn below(root: &Path, limit: &str, byte_len: u64) -> io::Result<Allowance> {
        let group = Allowance(root.join(unique_name()));
        fs::create_dir(&group.0)?;
        // Not created: where the directory is no control group, there is no such file.
        fs::OpenOptions::new().write(true).open(group.0.join(limit))?.write_all(byte_len.to_string().as_bytes())?;
        Ok(group)
    }

    /// From now on what this process takes counts.
    pub(crate) fn bind(&self, process: Pid) {
        fs::write(self.0.join("cgroup.procs"), process.as_raw_nonzero().to_string())
            .expect("a process that may be bound");
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        let began = Instant::now();
        // What a process had is counted back for a moment after its end.
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && began.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
    }
}
