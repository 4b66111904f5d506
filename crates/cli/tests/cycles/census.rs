//! What a program could leave behind, counted: processes, sockets, files, memory without a name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Everything that is there and should not be, in words.
pub(crate) type Leftovers = BTreeSet<String>;

/// Where to look.
#[derive(Debug)]
pub(crate) struct Census<'a> {
    /// A variable, `NAME=value`, that every process of the test has in its environment.
    pub(crate) mark: &'a str,
    /// The directory for temporary files of those processes.
    pub(crate) directory: &'a Path,
    /// The port that they listen on.
    pub(crate) port: u16,
    /// Where they may have sockets with a path.
    pub(crate) runtime: &'a Path,
}

impl Census<'_> {
    /// Everything that is there now.
    fn take(&self) -> Leftovers {
        let mut found = Leftovers::new();
        for process in self.processes() {
            found.insert(format!("process {process}: {}", command_line(process)));
            found.extend(anonymous_memory(process).map(|file| format!("memory of process {process}: {file}")));
        }
        found.extend(self.sockets());
        found.extend(self.unix_sockets());
        found.extend(files(self.directory).into_iter().map(|path| format!("file {}", path.display())));
        found
    }

    /// What is left when `patience` is over, or as soon as nothing is there twice in a row: a process that is just becoming another
    /// program shows no environment for a moment, and so is not seen.
    pub(crate) fn settle(&self, patience: Duration) -> Leftovers {
        let deadline = Instant::now() + patience;
        let mut was_empty = false;
        loop {
            let found = self.take();
            if (found.is_empty() && was_empty) || Instant::now() > deadline {
                return found;
            }
            was_empty = found.is_empty();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Processes of the test that are not yet gone.
    fn processes(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(|process| self.is_marked(*process)).collect()
    }

    fn is_marked(&self, process: u32) -> bool {
        // Gone, or somebody else's.
        let Ok(environment) = fs::read(format!("/proc/{process}/environ")) else { return false };
        environment.split(|&byte| byte == 0).any(|variable| variable == self.mark.as_bytes())
    }

    /// Sockets on the port that listen or have a peer. One that only waits for the end of its time (06) holds nothing.
    fn sockets(&self) -> Vec<String> {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
        let lines = tables.iter().flat_map(|table| table.lines().skip(1));
        let told = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let port = |at: usize| u16::from_str_radix(fields.get(at)?.rsplit_once(':')?.1, 16).ok();
            let is_ours = [port(1), port(2)].contains(&Some(self.port));
            (is_ours && fields.get(3) != Some(&"06")).then(|| format!("socket {}", fields[1..4].join(" ")))
        };
        lines.filter_map(told).collect()
    }

    /// Unix sockets in the test's directories, and abstract ones with its mark.
    fn unix_sockets(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let is_ours = |name: &str| {
            let path = Path::new(OsStr::from_bytes(name.as_bytes()));
            path.starts_with(self.directory) || path.starts_with(self.runtime)
        };
        let names = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(7));
        names.filter(|name| is_ours(name)).map(|name| format!("Unix socket {name}")).collect()
    }
}

fn command_line(process: u32) -> String {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Files without a name that a process has open.
fn anonymous_memory(process: u32) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.map(|target| target.display().to_string()).filter(|target| target.starts_with("/memfd:"))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}
