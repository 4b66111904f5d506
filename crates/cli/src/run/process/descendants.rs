//! Everything that descends from this process, and its end.
//!
//! This process is a subreaper: what its descendants leave behind becomes its child. So a sweep needs no list of what was
//! started, only to kill what it sees and to reap until no child is left. Children may have been there before, of a script
//! that this process took the place of: they, what they started and what they left are spared.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::str::SplitAsciiWhitespace;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper, wait,
};

use super::exit::Exit;

/// From now on, orphaned descendants become children of this process.
pub(crate) fn adopt() -> rustix::io::Result<()> {
    set_child_subreaper(Some(getpid()))
}

/// The next child that has ended, if one has. Reaping has this one place, so that nobody waits for a child reaped elsewhere.
pub(crate) fn reap() -> Option<(Pid, Exit)> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => match Exit::of(status) {
                Some(exit) => return Some((pid, exit)),
                None => continue,
            },
            Err(Errno::INTR) => continue,
            Ok(None) | Err(_) => return None,
        }
    }
}

/// The children that there are.
pub(crate) fn children() -> HashSet<Pid> {
    Tree::read().children(getpid()).into_iter().collect()
}

/// Whether the first thread of a process goes on: until it ends, none of the process's children becomes another's.
pub(crate) fn keeps_its_children(pid: Pid) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    fields(&stat).and_then(|mut fields| fields.next()).is_some_and(|state| !is_end(state))
}

/// Kills and reaps every descendant but the children that are `spared`, and returns how many there were, or those that would
/// not end.
pub(crate) fn sweep(mut spared: HashSet<Pid>) -> Result<usize, Vec<Pid>> {
    let deadline = Instant::now() + PATIENCE;
    let (mut killed, mut dead) = (HashSet::new(), vec![]);
    loop {
        while let Some((pid, _)) = reap() {
            // Its number may be another's from now on.
            spared.remove(&pid);
        }
        let tree = Tree::read().without(&spared);
        let (alive, children) = (tree.descendants(getpid()), tree.children(getpid()));
        if alive.is_empty() && is_swept(&children, &dead) {
            return Ok(killed.len());
        }
        for &pid in &alive {
            // One that changed its user cannot be killed by us, and is told of below.
            let _ = kill_process(pid, Signal::KILL);
            killed.insert(pid);
        }
        if Instant::now() >= deadline {
            return Err(alive);
        }
        await_one(&children, deadline);
        dead = if alive.is_empty() { children } else { vec![] };
    }
}

/// Whether no child is left to reap. Those that were dead at the last look are reaped by now, unless somebody traces them,
/// who is not waited for.
fn is_swept(dead: &[Pid], dead_before: &[Pid]) -> bool {
    dead.iter().all(|pid| dead_before.contains(pid))
}

/// Waits until one of the children has ended, or the deadline.
fn await_one(children: &[Pid], deadline: Instant) {
    let open = |pid: &Pid| pidfd_open(*pid, PidfdFlags::empty()).ok();
    let handles: Vec<OwnedFd> = children.iter().filter_map(open).collect();
    let mut polled: Vec<PollFd<'_>> = handles.iter().map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).ok();
    // Interrupted or not, the caller looks again.
    let _ = poll(&mut polled, timeout.as_ref());
}

/// Who is whose child, at one moment.
struct Tree {
    children: HashMap<Pid, Vec<(Pid, bool)>>,
}

impl Tree {
    fn read() -> Tree {
        let mut children: HashMap<Pid, Vec<(Pid, bool)>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let stat = pid.and_then(|_| fs::read(entry.path().join("stat")).ok());
            if let (Some(pid), Some((parent, is_dead))) = (pid, stat.as_deref().and_then(parse)) {
                children.entry(parent).or_default().push((pid, is_dead));
            }
        }
        Tree { children }
    }

    /// The same without these and what descends from them.
    fn without(mut self, spared: &HashSet<Pid>) -> Tree {
        self.children.values_mut().for_each(|children| children.retain(|(pid, _)| !spared.contains(pid)));
        self
    }

    /// The direct children, dead ones that await their reaping among them.
    fn children(&self, parent: Pid) -> Vec<Pid> {
        self.children.get(&parent).into_iter().flatten().map(|(pid, _)| *pid).collect()
    }

    /// All that descend from `ancestor` and live.
    fn descendants(&self, ancestor: Pid) -> Vec<Pid> {
        let mut found = Vec::new();
        let mut parents = vec![ancestor];
        while let Some(parent) = parents.pop() {
            for (pid, is_dead) in self.children.get(&parent).into_iter().flatten() {
                parents.push(*pid);
                if !is_dead {
                    found.push(*pid);
                }
            }
        }
        found
    }
}

/// The parent of a process and whether it is dead, from the text of `/proc/PID/stat`. One whose first thread has ended looks
/// dead, but counts the others.
fn parse(stat: &[u8]) -> Option<(Pid, bool)> {
    let mut fields = fields(stat)?;
    let state = fields.next()?;
    let parent = Pid::from_raw(fields.next()?.parse().ok()?)?;
    let threads = fields.nth(THREADS).and_then(|threads| threads.parse().ok()).unwrap_or(1);
    Some((parent, is_end(state) && threads <= 1))
}

/// What stands in `/proc/PID/stat` behind the name, which may hold anything: the state of the first thread, the parent, and more.
fn fields(stat: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    Some(rest.split_ascii_whitespace())
}

fn is_end(state: &str) -> bool {
    matches!(state, "Z" | "X")
}

/// Fields between the parent and the number of threads.
const THREADS: usize = 15;

/// How long killed processes may take. They end at once, unless the kernel is busy for them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_disguise_the_parent() {
        let parent = |pid| Pid::from_raw(pid).unwrap();
        assert_eq!(parse(b"7 (sh) S 42 7 7 0"), Some((parent(42), false)));
        assert_eq!(parse(b"7 (a) Z 1 (b) Z 43 7"), Some((parent(43), true)));
        assert_eq!(parse(b"7 (\xff\n) R 44 7"), Some((parent(44), false)));
        let ended = |threads| format!("7 (a) Z 1 7 7 0 -1 4227084 84 0 0 0 0 0 0 0 20 0 {threads} 0 5177");
        assert_eq!([1, 2].map(|threads| parse(ended(threads).as_bytes()).unwrap().1), [true, false]);
        for odd in [&b""[..], b"7 (sh", b"7 (sh) S", b"7 (sh) S x", b"7 (sh) S 0"] {
            assert_eq!(parse(odd), None);
        }
    }

    #[test]
    fn the_dead_are_given_one_more_look() {
        let [one, two] = [1, 2].map(|pid| Pid::from_raw(pid).unwrap());
        assert!(is_swept(&[], &[]) && is_swept(&[], &[one]) && is_swept(&[two], &[one, two]));
        assert!(!is_swept(&[one], &[]) && !is_swept(&[one, two], &[one]));
    }

    #[test]
    fn descendants_are_found_through_the_dead() {
        let pid = |pid| Pid::from_raw(pid).unwrap();
        let children =
            HashMap::from([(pid(1), vec![(pid(2), true), (pid(3), false)]), (pid(2), vec![(pid(4), false)])]);
        let tree = Tree { children };
        let mut found = tree.descendants(pid(1));
        found.sort_by_key(|pid| pid.as_raw_pid());
        assert_eq!(found, [pid(3), pid(4)]);
        let tree = tree.without(&HashSet::from([pid(2)]));
        assert_eq!((tree.descendants(pid(1)), tree.children(pid(1))), (vec![pid(3)], vec![pid(3)]));
    }
}
