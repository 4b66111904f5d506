//! One rank as a process: its variables, its pipes, its place in the process tree, and the key in its hand.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Pid, Resource, getpid, getrlimit};

use super::Options;
use super::output::{LogFile, Source, Stream, make_room};
use super::plan::{Plan, WITHHELD};
use super::process::cores;

/// What all ranks of a job are started with.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) words: Vec<OsString>,
    /// The job key as a sealed memory file, and the number at which a rank finds it.
    pub(super) key: Option<(OwnedFd, i32)>,
    pub(super) log_dir: Option<PathBuf>,
    pub(super) is_shown: bool,
    /// The cores that ranks share where each is to keep to its own; else none.
    pub(super) cores: Vec<usize>,
    /// How many files a rank may have open, where the launcher may have more.
    pub(super) open_files: Option<u64>,
}

/// A rank that was started, and what it prints.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: Pid,
    pub(super) sources: [Source; 2],
}

impl Recipe {
    pub(super) fn new(options: &Options, key: Option<(OwnedFd, i32)>, open_files: Option<u64>) -> Recipe {
        Recipe {
            words: super::program::words(options),
            key,
            is_shown: options.log_dir.is_none() || options.tee,
            // Ranks may change their directory, and the verdict names the files.
            log_dir: options.log_dir.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())),
            cores: if options.pin { cores::usable() } else { vec![] },
            open_files,
        }
    }

    /// Starts a rank of this node.
    pub(super) fn start(&self, plan: &Plan, local_rank: usize) -> io::Result<Started> {
        make_room(&plan.directory(&plan.reports, local_rank))?;
        let mut child = self.command(plan, local_rank)?.spawn()?;
        let pid = pid(&child)?;
        let stdout = child.stdout.take().map(OwnedFd::from).ok_or(io::ErrorKind::BrokenPipe)?;
        let stderr = child.stderr.take().map(OwnedFd::from).ok_or(io::ErrorKind::BrokenPipe)?;
        let source = |stream, pipe| self.source(plan, local_rank, stream, pipe);
        Ok(Started { pid, sources: [source(Stream::Stdout, stdout)?, source(Stream::Stderr, stderr)?] })
    }

    /// Where a rank's standard error can be read, if that is a file.
    pub(super) fn log(&self, plan: &Plan, local_rank: usize) -> Option<PathBuf> {
        self.log_file(plan, local_rank, Stream::Stderr)
    }

    /// The rank step of our own binary, which becomes the program.
    fn command(&self, plan: &Plan, local_rank: usize) -> io::Result<Command> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("phalanx").arg("__rank").arg("--launcher").arg(getpid().as_raw_pid().to_string());
        if !self.cores.is_empty() {
            let share = cores::share(&self.cores, local_rank, plan.local_ranks);
            let share: Vec<String> = share.iter().map(usize::to_string).collect();
            command.arg("--cores").arg(share.join(","));
        }
        if let Some(limit) = self.open_files {
            command.arg("--open-files").arg(limit.to_string());
        }
        command.arg("--").args(&self.words);
        for name in WITHHELD {
            command.env_remove(name);
        }
        command.envs(plan.variables(local_rank, &|name| std::env::var_os(name).is_some()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        if let Some((key, number)) = &self.key {
            check_number(*number)?;
            let mapping = FdMapping { parent_fd: key.try_clone()?, child_fd: *number };
            command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
        }
        Ok(command)
    }

    fn source(&self, plan: &Plan, local_rank: usize, stream: Stream, pipe: OwnedFd) -> io::Result<Source> {
        let prefix = self.is_shown.then(|| format!("[{}] ", plan.rank(local_rank)));
        let log = self.log_file(plan, local_rank, stream).map(|path| LogFile::create(path, plan.rank(local_rank)));
        Ok(Source { local_rank, stream, pipe, prefix, log: log.transpose()? })
    }

    fn log_file(&self, plan: &Plan, local_rank: usize, stream: Stream) -> Option<PathBuf> {
        let name = if stream == Stream::Stdout { "stdout.log" } else { "stderr.log" };
        self.log_dir.as_ref().map(|root| plan.directory(root, local_rank).join(name))
    }
}

/// Refuses a descriptor that the limit of this process does not let its children have.
fn check_number(number: i32) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if i64::from(number) < i64::try_from(limit).unwrap_or(i64::MAX) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it gets the job key as descriptor {number}, and open files are limited to {limit} (ulimit -n)"
    )))
}

/// The number of a child that is reaped elsewhere.
fn pid(child: &Child) -> io::Result<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
