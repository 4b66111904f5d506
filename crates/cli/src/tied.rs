//! Other programs that end with this one: how they are started, heard and ended. Not what any of them is for.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::SIGTERM;

use crate::failure::Failure;
use crate::run::process::exit::Exit;
use crate::run::process::signals;

/// A process that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts a command. What it says on its standard output is told line by line, and then, once, that it says no more.
    pub(crate) fn start(
        mut command: Command,
        mut tell: impl FnMut(Option<String>) + Send + 'static,
    ) -> Result<Process, Failure> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = command.stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| Failure::Stopped(format!("{name}: {error}")))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let process = Process { child, stdin };
        if let Some(stdout) = stdout {
            // Ends with the process.
            let hear = move || {
                BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| tell(Some(line)));
                tell(None);
            };
            let thread = thread::Builder::new().name("phalanx-hearing".to_owned()).spawn(hear);
            thread.map_err(|error| Failure::Stopped(format!("no thread for the output of {name}: {error}")))?;
        }
        Ok(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input, if that is a pipe. One that is gone is told of where its end is awaited.
    pub(crate) fn write(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// Closes its standard input.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Whether it has not ended.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, and says how it did if that was within this time.
    pub(crate) fn ask_to_end(&mut self, within: Duration) -> Option<Exit> {
        // The number of one that was waited for may be another's.
        if self.is_alive()
            && let Some(pid) = i32::try_from(self.id()).ok().and_then(Pid::from_raw)
        {
            signals::send(pid, SIGTERM);
        }
        self.end(within)
    }

    /// How it ended, if it does so within this time.
    pub(crate) fn end(&mut self, within: Duration) -> Option<Exit> {
        let pid = Pid::from_raw(i32::try_from(self.id()).ok()?)?;
        // One that was waited for before has no descriptor any more, and its status at hand.
        if let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) {
            let until = Instant::now() + within;
            let wait = || {
                let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
                poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], left.as_ref())
            };
            // A signal to this process says nothing of that one.
            while wait() == Err(Errno::INTR) {}
        }
        self.child.try_wait().ok().flatten().and_then(exit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Another program, which ends with this one. Its process number is that of the command.
pub(crate) fn tied(program: &Path, cores: &[usize]) -> Result<Command, Failure> {
    let mut command = Command::new(ourselves()?);
    command.args(["__rank", "--launcher", &std::process::id().to_string()]);
    if !cores.is_empty() {
        let list: Vec<String> = cores.iter().map(usize::to_string).collect();
        command.args(["--cores", &list.join(",")]);
    }
    command.arg("--").arg(program);
    // They say what they must; that strangers are sent away is no news here, unless the user wants to read it.
    if std::env::var_os("PHALANX_LOG").is_none() {
        command.env("PHALANX_LOG", "error");
    }
    command.stdin(Stdio::null());
    // No key but the one handed over counts.
    for name in ["PHALANX_KEY_FD", "PHALANX_KEY_FILE", "PHALANX_KEY"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// This program, likewise.
pub(crate) fn tied_ourselves(arguments: &[&str], cores: &[usize]) -> Result<Command, Failure> {
    let mut command = tied(&ourselves()?, cores)?;
    command.args(arguments);
    Ok(command)
}

fn ourselves() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::Stopped(format!("this program's path: {error}")))
}

fn exit(status: ExitStatus) -> Option<Exit> {
    status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_process_is_heard_and_its_end_is_told() {
        let (teller, said) = mpsc::channel();
        let mut command = Command::new("sh");
        command.args(["-c", "read line; echo \"$line\"; kill -9 $$"]).stdin(Stdio::piped());
        let mut process = Process::start(command, move |line| drop(teller.send(line))).expect("a shell");
        assert!(process.is_alive());
        assert_eq!(process.end(Duration::from_millis(1)), None);
        process.write("hello");
        assert_eq!(said.recv(), Ok(Some("hello".to_owned())));
        assert_eq!(said.recv(), Ok(None));
        assert_eq!(process.end(Duration::from_secs(60)), Some(Exit::Signal(9)));
        assert_eq!(process.end(Duration::ZERO), Some(Exit::Signal(9)));
    }

    #[test]
    fn a_process_that_is_asked_to_end_has_its_time_for_it() {
        let (teller, said) = mpsc::channel();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & trap \"kill $!; exit 7\" TERM; echo ready; wait"]).stdin(Stdio::null());
        let mut process = Process::start(command, move |line| drop(teller.send(line))).expect("a shell");
        assert_eq!(said.recv(), Ok(Some("ready".to_owned())));
        assert_eq!(process.ask_to_end(Duration::from_secs(60)), Some(Exit::Code(7)));
        assert_eq!(process.ask_to_end(Duration::ZERO), Some(Exit::Code(7)));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let refused = Process::start(Command::new("no-such-program"), |_| ());
        assert!(matches!(&refused, Err(Failure::Stopped(why)) if why.contains("no-such-program")), "{refused:?}");
    }
}
