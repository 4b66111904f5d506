//! The guard: the process that the user started. It starts the launcher, passes signals on to it and its exit code back,
//! and once the launcher has ended, however it did, ends everything that is left of it. It does nothing else, so that nothing
//! else can bring it down.
//!
//! What a script had started before it became the guard is not the launcher's, nor is what that leaves behind. A launcher that ends
//! by itself has ended all that it started, so that whatever is there then is spared. After one that was cut short, only those are known that
//! were there when the guard looked last: what came to it since is ended with what the launcher left.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, getpid};
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;

use super::Options;
use super::process::descendants;
use super::process::exit::Exit;
use super::process::signals;
use super::scratch::{self, Scratch};
use crate::failure::{Failure, tell};

/// Runs the launcher and returns as it did.
pub(crate) fn guard(options: &Options) -> Result<(), Failure> {
    options.check()?;
    // A script that ends in `exec phalanx run` leaves us its children.
    let mut others = descendants::children();
    let is_shared = !others.is_empty();
    descendants::adopt().map_err(|error| Failure::Stopped(format!("child subreaper: {error}")))?;
    // Made by the launcher, which notices when this process ends; there must be no moment in which nobody removes it.
    let scratch = Scratch::share(scratch::name());
    let mut signals =
        signals::listen(&signals::watched()).map_err(|error| Failure::Stopped(format!("signal handlers: {error}")))?;
    let launcher = start(&scratch)?;
    if is_shared {
        look_again_and_again();
    }
    let exit = watch(launcher, &mut signals, &mut others);
    let swept = if is_shared && exit.is_orderly() { Ok(0) } else { descendants::sweep(others) };
    tell_of(exit, &swept);
    match exit.code() {
        0 => Ok(()),
        code => Err(Failure::Code(code)),
    }
}

/// Starts the launcher from the binary that this process runs, even if its file was replaced since. It has a process
/// group of its own, so that what is sent to the guard's group reaches it through the guard only, and `kill -9` of that
/// group leaves one of the two to clean up.
fn start(scratch: &Scratch) -> Result<Pid, Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("phalanx").arg("__launch").arg("--guard").arg(getpid().as_raw_pid().to_string());
    command.arg("--scratch").arg(scratch.path()).args(std::env::args_os().skip(2));
    command.stdin(Stdio::null()).process_group(0);
    let child =
        command.spawn().map_err(|error| Failure::Stopped(format!("the launcher cannot be started: {error}")))?;
    // Reaped by `watch`, together with orphans, rather than through this handle.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| Failure::Stopped(format!("the launcher has an odd process number: {}", child.id())))
}

/// Has this process look every so often for what others left to it. The kernel tells of children that end, but not of those that come.
fn look_again_and_again() {
    let look = || loop {
        thread::sleep(PAUSE);
        signals::send(getpid(), SIGCHLD);
    };
    if let Err(error) = thread::Builder::new().name("phalanx-others".to_owned()).spawn(look) {
        log::warn!("what others leave is not looked for: {error}");
    }
}

/// Passes signals on until the launcher has ended. Of the `others` those are left that have not.
fn watch(launcher: Pid, signals: &mut Signals, others: &mut HashSet<Pid>) -> Exit {
    loop {
        for signal in signals.wait() {
            if signal != SIGCHLD {
                signals::send(launcher, signal);
                continue;
            }
            take_in_what_others_left(launcher, others);
            while let Some((pid, exit)) = descendants::reap() {
                if pid == launcher {
                    return exit;
                }
                others.remove(&pid);
            }
        }
    }
}

/// Counts among the `others` what they left to this process. The launcher adopts what it started itself, so that as long as it lives
/// any other child is theirs.
fn take_in_what_others_left(launcher: Pid, others: &mut HashSet<Pid>) {
    if others.is_empty() {
        return;
    }
    let mut children = descendants::children();
    // Asked last: once it ends, its own come here too.
    if descendants::keeps_its_children(launcher) {
        children.remove(&launcher);
        others.extend(children);
    }
}

fn tell_of(exit: Exit, swept: &Result<usize, Vec<Pid>>) {
    if let Err(left) = swept {
        tell(&format!("{} processes could not be ended: {left:?}", left.len()));
    }
    if let (Exit::Signal(_), Ok(ended)) = (exit, swept) {
        tell(&format!("the launcher was {exit}; {ended} processes that it left were ended"));
    }
}

/// How long what others leave may go unseen. To look is to read of every process on the machine, and its cores are busy.
const PAUSE: Duration = Duration::from_secs(5);
