//! Which process wrote a notice, so that one of a dead process is not believed.

use std::fs;

use phalanx_comm::rendezvous::host_identity;

/// A process: its host, its number there, and when it began, because numbers are given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(super) host: String,
    /// The namespace in which the number means something; empty where it is not known.
    pub(super) namespace: String,
    pub(super) pid: u32,
    /// In clock ticks since the host was started, as the kernel tells it; 0 where it does not.
    pub(super) began: u64,
}

impl Writer {
    pub(crate) fn this_process() -> Writer {
        Writer::of(std::process::id())
    }

    fn of(pid: u32) -> Writer {
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default().to_string_lossy().into_owned();
        Writer { host: host_identity(), namespace, pid, began: began(pid).unwrap_or(0) }
    }

    /// Whether it may still run. One on another host does not: what it offers would not be for this host.
    pub(crate) fn may_live(&self) -> bool {
        let here = Writer::of(self.pid);
        if self.host != here.host {
            return false;
        }
        // In another namespace its number says nothing; without a beginning neither does anything else.
        self.namespace != here.namespace || self.began == here.began
    }
}

/// A name for whoever started this process, the same for all that it started.
pub(crate) fn parent() -> String {
    let pid = std::os::unix::process::parent_id();
    format!("parent-{pid}-{}", began(pid).unwrap_or(0))
}

/// When process `pid` began, if there is one.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, which may hold anything, a parenthesis at last.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(STARTTIME - 3)?.parse().ok()
}

/// The number of the field as proc(5) counts it; the third is the first after the name.
const STARTTIME: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_lives_until_it_ends() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let writer = Writer::of(child.id());
        assert!(writer.may_live() && Writer::this_process().may_live());
        // Its number may be given again, but not with its beginning.
        assert!(!Writer { began: writer.began.wrapping_sub(1), ..writer.clone() }.may_live());
        assert!(!Writer { host: "elsewhere".into(), ..writer.clone() }.may_live());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!writer.may_live());
    }

    #[test]
    fn the_parent_has_one_name() {
        assert_eq!(parent(), parent());
    }
}
