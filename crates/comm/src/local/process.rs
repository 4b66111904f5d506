//! A process of this host as another one sees it: its number, whether it runs, and whether it has ended, which its descriptor tells.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The number of a process that has not ended; none where the system does not tell it: of one in another namespace, or without `/proc`.
pub(super) fn number_of(process: impl AsFd) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_fd().as_raw_fd())).ok()?;
    // Zero is one in another namespace, and less is none any more.
    field(&info, "Pid")?.parse().ok().filter(|number| *number > 0)
}

/// Whether a process has ended.
pub(super) fn has_ended(process: impl AsFd) -> bool {
    let ended = &mut [PollFd::new(&process, PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(ended, Some(&Timespec::default()))) != Ok(0)
}

/// Whether a process has ended, or has nothing but its end left: its memory is gone before its connections are.
pub(super) fn is_at_its_end(process: impl AsFd) -> bool {
    let status = |number: i32| fs::read_to_string(format!("/proc/{number}/status"));
    let has_memory = |number: i32| status(number).is_ok_and(|status| field(&status, "VmSize").is_some());
    has_ended(&process) || number_of(&process).is_some_and(|number| !has_memory(number))
}

/// What a process does that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It runs, or waits for something; or nobody can tell.
    Runs,
    /// It writes its core file. It does nothing else any more, but ends only after that, which may take minutes.
    Crashes,
    /// A signal has stopped it. One that a debugger holds is not.
    Stopped,
}

/// The condition of the process with this number.
pub(super) fn condition(number: i32) -> Condition {
    let Ok(status) = fs::read_to_string(format!("/proc/{number}/status")) else { return Condition::Runs };
    if field(&status, "CoreDumping") == Some("1") {
        Condition::Crashes
    } else if field(&status, "State").is_some_and(|state| state.starts_with('T')) {
        Condition::Stopped
    } else {
        Condition::Runs
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, waitpid};

    use super::*;

    #[test]
    fn a_process_that_works_has_a_number_and_runs() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("it lives");
        let number = number_of(&own).expect("a number");
        assert_eq!(number, getpid().as_raw_nonzero().get());
        assert_eq!(condition(number), Condition::Runs);
        let file = fs::File::open("Cargo.toml").expect("the manifest of this crate");
        assert_eq!(number_of(&file), None);
    }

    #[test]
    fn a_process_that_a_signal_stopped_is_seen() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let id = Pid::from_child(&child);
        let number = id.as_raw_nonzero().get();
        kill_process(id, Signal::STOP).expect("it lives");
        waitpid(Some(id), WaitOptions::UNTRACED).expect("a child");
        assert_eq!(condition(number), Condition::Stopped);
        kill_process(id, Signal::CONT).expect("it lives");
        waitpid(Some(id), WaitOptions::CONTINUED).expect("a child");
        assert_eq!(condition(number), Condition::Runs);
        let process = pidfd_open(id, PidfdFlags::empty()).expect("it lives");
        assert!(!has_ended(&process) && !is_at_its_end(&process));
        child.kill().expect("it lives");
        child.wait().expect("a child");
        assert_eq!(condition(number), Condition::Runs, "who has ended is not asked");
        assert!(has_ended(&process) && is_at_its_end(&process));
    }

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let status = "Name:\tCoreDumping:\nVmSize:\t   10 kB\nCoreDumping:\t1\nTHP_enabled:\t1\n";
        assert_eq!(field(status, "CoreDumping"), Some("1"));
        assert_eq!((field(status, "VmSize"), field(status, "Vm")), (Some("10 kB"), None));
    }
}
