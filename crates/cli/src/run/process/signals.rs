//! The signals that are passed on, their names, and which of them somebody has asked us to ignore.

use std::{fs, io};

use nix::sys::signal::{self, SIGTTOU, SigSet};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// Those of our signals that a handler is to be set for. One that was ignored when this process began, as under `nohup`,
/// stays ignored, here and in the ranks.
pub(crate) fn watched() -> Vec<i32> {
    let ignored = mask(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "SigIgn:");
    let all = ENDING.into_iter().chain([SIGUSR1, SIGUSR2]);
    all.filter(|signal| ignored & (1 << (signal - 1)) == 0).chain([SIGCHLD]).collect()
}

/// Those of them that ask for the end.
pub(crate) fn ending() -> Vec<i32> {
    watched().into_iter().filter(|signal| is_ending(*signal)).collect()
}

/// Sets handlers for these signals, to be heard from what is returned. One that whoever started this process has blocked would never
/// come, to this thread and those that it starts, ranks among them.
pub(crate) fn listen(numbers: &[i32]) -> io::Result<Signals> {
    let signals = Signals::new(numbers)?;
    let blocked: SigSet = numbers.iter().filter_map(|number| signal::Signal::try_from(*number).ok()).collect();
    // Now that there are handlers: without one, a signal that waits would end this process.
    blocked.thread_unblock()?;
    Ok(signals)
}

/// From now on this thread, and those that it starts, may write to a terminal whose foreground they are not in. One that is set
/// to stop such writers (`stty tostop`) would stop the launcher, which hears of nothing then.
pub(crate) fn write_from_behind() -> nix::Result<()> {
    SigSet::from(SIGTTOU).thread_block()
}

/// Takes that back, for a program that is to find things as usual.
pub(crate) fn write_as_usual() -> nix::Result<()> {
    SigSet::from(SIGTTOU).thread_unblock()
}

/// Whether a signal asks for the end.
pub(crate) fn is_ending(signal: i32) -> bool {
    ENDING.contains(&signal)
}

/// Whether a signal is the program's own, which may mean anything.
pub(crate) fn is_free(signal: i32) -> bool {
    [SIGUSR1, SIGUSR2].contains(&signal)
}

/// Whether a process handles, ignores or awaits a signal, which ends it otherwise.
pub(crate) fn is_taken(pid: Pid, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap_or_default();
    ["SigCgt:", "SigIgn:", "SigBlk:"].iter().any(|name| mask(&status, name) & (1 << (signal - 1)) != 0)
}

/// The name of a signal, such as `SIGKILL`.
pub(crate) fn name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// The exit code of a process that was ended by a signal, as shells count.
pub(crate) fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Sends a signal to one process. One that is gone needs none.
pub(crate) fn send(pid: Pid, signal: i32) {
    let sent = Signal::from_named_raw(signal).map_or(Err(Errno::INVAL), |signal| kill_process(pid, signal));
    note(pid, signal, sent);
}

/// Sends a signal to a process and what it started in its group.
pub(crate) fn send_group(leader: Pid, signal: i32) {
    let sent = Signal::from_named_raw(signal).map_or(Err(Errno::INVAL), |signal| kill_process_group(leader, signal));
    note(leader, signal, sent);
}

fn note(pid: Pid, signal: i32, sent: rustix::io::Result<()>) {
    match sent {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => log::warn!("{} could not be sent to process {pid}: {error}", name(signal)),
    }
}

/// A mask of signals in the text of `/proc/PID/status`.
fn mask(status: &str, name: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(name));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_from_the_status() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t2\n";
        assert_eq!((mask(status, "SigIgn:"), mask(status, "SigCgt:"), mask(status, "SigBlk:")), (1 | 1 << 12, 2, 0));
        assert_eq!(mask("SigIgn:\tnonsense", "SigIgn:"), 0);
    }

    #[test]
    fn signals_have_names_and_codes() {
        assert_eq!((name(9).as_str(), name(63).as_str()), ("SIGKILL", "signal 63"));
        assert_eq!((exit_code(SIGINT), exit_code(SIGTERM)), (130, 143));
    }
}
