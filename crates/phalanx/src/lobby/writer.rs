//! Which process wrote a notice, so that one of a dead process is not believed. Of a process that cannot be seen from here the hold on its
//! notice tells.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

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

    /// Whether it still runs; none where its number does not tell, which is of another namespace or without a beginning. One on another host does
    /// not run: what it offers would not be for this host.
    pub(super) fn lives(&self) -> Option<bool> {
        let here = Writer::of(self.pid);
        if self.host != here.host {
            return Some(false);
        }
        (self.namespace == here.namespace && self.began != 0).then_some(self.began == here.began)
    }
}

/// A name for whoever started this rank, the same for all that it started. A script between the two is not meant, of which each rank has
/// one of its own: it was told which rank it is, as this process was.
pub(crate) fn parent() -> String {
    let own: Vec<Vec<u8>> = TOLD.iter().filter_map(|name| variable(name)).collect();
    let pid = starter(std::os::unix::process::parent_id(), |pid| !own.is_empty() && was_told(pid, &own), above);
    format!("parent-{pid}-{}", began(pid).unwrap_or(0))
}

/// The first at or above process `pid` that is no part of this rank.
fn starter(mut pid: u32, is_of_rank: impl Fn(u32) -> bool, above: impl Fn(u32) -> Option<u32>) -> u32 {
    for _ in 0..DEEPEST {
        match above(pid).filter(|_| is_of_rank(pid)) {
            Some(parent) => pid = parent,
            None => break,
        }
    }
    pid
}

/// A variable of this process, as the kernel shows those of others.
fn variable(name: &str) -> Option<Vec<u8>> {
    let value = std::env::var_os(name)?;
    Some([name.as_bytes(), b"=", value.as_bytes()].concat())
}

/// Whether process `pid` began with all of these variables.
fn was_told(pid: u32, variables: &[Vec<u8>]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    variables.iter().all(|variable| environment.split(|&byte| byte == 0).any(|other| other == &variable[..]))
}

/// The parent of process `pid`, if it has one.
fn above(pid: u32) -> Option<u32> {
    field(pid, PARENT).filter(|parent| *parent > 0)
}

/// When process `pid` began, if there is one.
fn began(pid: u32) -> Option<u64> {
    field(pid, STARTTIME)
}

fn field<N: FromStr>(pid: u32, number: usize) -> Option<N> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, which may hold anything, a parenthesis at last.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

/// By which MPICH's launcher tells a rank from others, those of another launcher around it included.
const TOLD: [&str; 4] = ["PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT"];

/// How many scripts that start each other are looked through.
const DEEPEST: usize = 64;

/// The numbers of fields as proc(5) counts them; the third is the first after the name.
const PARENT: usize = 4;
const STARTTIME: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_lives_until_it_ends() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let writer = Writer::of(child.id());
        assert_eq!([&writer, &Writer::this_process()].map(Writer::lives), [Some(true); 2]);
        // Its number may be given again, but not with its beginning.
        assert_eq!(Writer { began: writer.began.wrapping_sub(1), ..writer.clone() }.lives(), Some(false));
        assert_eq!(Writer { host: "elsewhere".into(), ..writer.clone() }.lives(), Some(false));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(writer.lives(), Some(false));
    }

    #[test]
    fn a_number_of_another_namespace_does_not_tell_whether_a_process_lives() {
        let own = Writer::this_process();
        assert_eq!(Writer { namespace: "pid:[1]".into(), ..own.clone() }.lives(), None);
        assert_eq!(Writer { began: 0, ..own.clone() }.lives(), None);
        assert_eq!(Writer { namespace: "pid:[1]".into(), host: "elsewhere".into(), ..own }.lives(), Some(false));
    }

    #[test]
    fn the_parent_has_one_name() {
        assert_eq!(parent(), parent());
    }

    #[test]
    fn who_started_a_rank_is_above_its_own_scripts() {
        let above = |pid: u32| (pid > 1).then(|| pid - 1);
        assert_eq!(starter(7, |pid| pid >= 6, above), 5);
        assert_eq!(starter(7, |_| false, above), 7);
        assert_eq!((starter(7, |_| true, above), starter(1000, |_| true, Some)), (1, 1000));
    }

    #[test]
    fn a_process_is_known_by_what_it_was_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read -r _"]).env("PMI_RANK", "1").env("PMI_SIZE", "2");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Before it runs its environment cannot be read.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let told = |words: &[&str]| {
            was_told(child.id(), &words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
        };
        assert!(told(&["PMI_RANK=1", "PMI_SIZE=2"]) && !told(&["PMI_RANK=1", "PMI_SIZE=20"]) && !told(&["PMI_RANK="]));
        assert_eq!(above(child.id()), Some(std::process::id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
