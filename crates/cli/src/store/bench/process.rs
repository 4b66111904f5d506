//! Other processes of this program: how they are started, given the job key, and ended.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use command_fds::{CommandFdExt, FdMapping};
use phalanx_comm::secure::JobKey;

use super::system;
use crate::failure::Failure;

/// A process that ends when this is dropped, and the lines that it says.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub(super) fn start(mut command: Command) -> Result<Process, Failure> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = command.stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| Failure::Stopped(format!("{name}: {error}")))?;
        let (teller, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // Ends with the process, or with whoever listens.
            thread::spawn(move || {
                let lines = BufReader::new(stdout).lines();
                lines.map_while(Result::ok).try_for_each(|line| teller.send(line))
            });
        }
        Ok(Process { child, lines })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it says, line by line, until it ends.
    pub(super) fn lines(&self) -> &Receiver<String> {
        &self.lines
    }

    /// Whether it has not ended.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
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
pub(super) fn tied(program: &Path) -> Result<Command, Failure> {
    let mut command = Command::new(ourselves()?);
    command.args(["__rank", "--launcher", &std::process::id().to_string(), "--"]).arg(program);
    // Servers say what they must; that strangers are sent away is no news here. No key but the one handed over counts.
    command.env("PHALANX_LOG", "error").stdin(Stdio::null());
    for name in ["PHALANX_KEY_FD", "PHALANX_KEY_FILE", "PHALANX_KEY"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// This program, likewise.
pub(super) fn tied_ourselves(arguments: &[&str]) -> Result<Command, Failure> {
    let mut command = tied(&ourselves()?)?;
    command.args(arguments);
    Ok(command)
}

fn ourselves() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(system("this program's path"))
}

/// Lets a command have the job key, in a file without a name, so that nothing is left of it whatever happens.
pub(super) fn hand_over(command: &mut Command, key: &JobKey) -> Result<(), Failure> {
    let parent_fd = key.to_memfd().map_err(system("job key"))?;
    let mapping = FdMapping { parent_fd, child_fd: KEY_DESCRIPTOR };
    command.fd_mappings(vec![mapping]).map_err(system("job key"))?;
    command.args(["--key-file", KEY_FILE]);
    Ok(())
}

const KEY_FILE: &str = "/proc/self/fd/3";
const KEY_DESCRIPTOR: i32 = 3;
