//! A process of this host as another one sees it: its number, and whether it crashes. Not whether it lives; its descriptor tells.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

/// The number of a process that has not ended; none where the system does not tell it: of one in another namespace, or without `/proc`.
pub(super) fn number_of(process: impl AsFd) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_fd().as_raw_fd())).ok()?;
    // Zero is one in another namespace, and less is none any more.
    field(&info, "Pid")?.parse().ok().filter(|number| *number > 0)
}

/// Whether the process with this number writes its core file. It does nothing else any more, but ends only after that, which may
/// take minutes.
pub(super) fn is_crashing(number: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{number}/status"));
    status.is_ok_and(|status| field(&status, "CoreDumping") == Some("1"))
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;

    #[test]
    fn a_process_that_works_has_a_number_and_does_not_crash() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("it lives");
        let number = number_of(&own).expect("a number");
        assert_eq!(number, getpid().as_raw_nonzero().get());
        assert!(!is_crashing(number));
        let file = fs::File::open("Cargo.toml").expect("the manifest of this crate");
        assert_eq!(number_of(&file), None);
    }

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let status = "Name:\tCoreDumping:\nVmSize:\t   10 kB\nCoreDumping:\t1\nTHP_enabled:\t1\n";
        assert_eq!(field(status, "CoreDumping"), Some("1"));
        assert_eq!((field(status, "VmSize"), field(status, "Vm")), (Some("10 kB"), None));
    }
}
