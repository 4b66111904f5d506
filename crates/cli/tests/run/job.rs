//! A job of the binary, its processes recognised by a mark in their environment.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT};
use signal_hook::flag::register_conditional_default;

/// A job, and a directory of its own for temporary files.
pub(crate) struct Job {
    mark: String,
    pub(crate) directory: PathBuf,
}

/// A job that runs.
pub(crate) struct Running {
    pub(crate) job: Job,
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
}

/// How a job ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Job {
    pub(crate) fn new() -> Job {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        static HEEDED: Once = Once::new();
        HEEDED.call_once(heed_signals);
        let mark = format!("phalanx-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(&mark);
        fs::create_dir(&directory).unwrap();
        Job { mark, directory }
    }

    /// Runs to the end with these words after `phalanx run`.
    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        self.command(words).output().unwrap().into()
    }

    /// Runs a shell script on each of `ranks` ranks, with more flags.
    pub(crate) fn script(&self, ranks: usize, flags: &[&str], script: &str) -> Ended {
        self.run(&[flags, &["--nproc-per-node", &ranks.to_string(), "sh", "-c", script]].concat())
    }

    pub(crate) fn start(self, ranks: usize, flags: &[&str], script: &str) -> Running {
        let ranks = ranks.to_string();
        let words = [flags, &["--nproc-per-node", &ranks, "sh", "-c", script]].concat();
        let command = self.command(&words);
        self.spawn(command)
    }

    /// Starts a command made by [`command`](Job::command).
    pub(crate) fn spawn(self, mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Running { job: self, child, stdout }
    }

    /// `phalanx run` with these words.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.marked(env!("CARGO_BIN_EXE_phalanx"));
        command.arg("run").args(words);
        command
    }

    /// A program whose processes are recognised as this job's.
    pub(crate) fn marked(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PHALANX_TEST_MARK", &self.mark).env("TMPDIR", &self.directory);
        command.env("PHALANX", env!("CARGO_BIN_EXE_phalanx"));
        for name in ["PHALANX_KEY", "PHALANX_KEY_FD", "PHALANX_KEY_FILE"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    /// The processes of this job that live: their numbers and command lines.
    pub(crate) fn census(&self) -> Vec<(i32, String)> {
        let mark = format!("PHALANX_TEST_MARK={}", self.mark).into_bytes();
        let numbers = fs::read_dir("/proc").unwrap().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == mark)
        };
        let command = |pid| {
            String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
        };
        numbers.filter(is_ours).map(|pid| (pid, command(pid))).filter(|(_, command)| !command.is_empty()).collect()
    }

    /// Whether anything is left: a process, or a temporary file.
    pub(crate) fn assert_nothing_left(&self) {
        until("no process is left", || self.census().is_empty());
        until("no file is left", || fs::read_dir(&self.directory).unwrap().next().is_none());
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for (pid, _) in self.census() {
            kill(pid, Signal::KILL);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Running {
    /// Waits for `count` lines of standard output, and returns them sorted.
    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines: Vec<String> = (0..count).map(|_| self.line()).collect();
        lines.sort();
        lines
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn guard(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn launcher(&self) -> i32 {
        let census = self.job.census();
        census.iter().find(|(_, command)| command.contains("__launch")).unwrap_or_else(|| panic!("{census:?}")).0
    }

    pub(crate) fn end(self) -> (Job, Ended) {
        let Running { job, child, mut stdout } = self;
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
        let mut ended = Ended::from(child.wait_with_output().unwrap());
        ended.stdout = rest;
        (job, ended)
    }
}

impl Ended {
    pub(crate) fn verdict(&self) -> &str {
        self.stderr.lines().find(|line| line.starts_with("phalanx: ")).unwrap_or_else(|| panic!("{}", self.stderr))
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Shells start what runs in the background with SIGINT and SIGQUIT ignored, and jobs would ignore them too. What has a
/// handler here has its default there; the handler does what the default does.
fn heed_signals() {
    for signal in [SIGINT, SIGQUIT, SIGHUP] {
        register_conditional_default(signal, Arc::new(AtomicBool::new(true))).unwrap();
    }
}

/// Sends a signal to a process; to a group if the number is negative. It may have ended meanwhile.
pub(crate) fn kill(pid: i32, signal: Signal) {
    let target = Pid::from_raw(pid.abs()).unwrap();
    let sent = if pid < 0 { kill_process_group(target, signal) } else { kill_process(target, signal) };
    assert!(matches!(sent, Ok(()) | Err(Errno::SRCH)), "{sent:?}");
}

/// Looks with growing pauses until something holds; the kernel has no event for what these tests look for.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let (began, mut pause) = (Instant::now(), Duration::from_millis(1));
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

const PATIENCE: Duration = Duration::from_secs(120);
