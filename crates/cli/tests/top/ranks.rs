//! Ranks to look at: processes of this program that reduce until they are told to end.

use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use phalanx::ReduceOp;

/// The ranks of one job, which end with this.
pub(crate) struct Ranks {
    pub(crate) name: String,
    /// The file of its store, if that is one.
    store: Option<PathBuf>,
    ranks: Vec<Rank>,
}

struct Rank {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Ranks {
    pub(crate) fn start(what: &str, size: usize) -> Ranks {
        Ranks::start_with(what, size, &[])
    }

    /// Starts them with more variables.
    pub(crate) fn start_with(what: &str, size: usize, variables: &[(&str, &str)]) -> Ranks {
        let store = std::env::temp_dir().join(format!("phalanx-{}", Ranks::name(what)));
        let place = format!("file://{}?timeout=300", store.display());
        let mut ranks = Ranks::start_at(what, size, &place, variables);
        ranks.store = Some(store);
        ranks
    }

    /// What the job is called whose ranks are started for this.
    pub(crate) fn name(what: &str) -> String {
        format!("top-{what}-{}", std::process::id())
    }

    /// Starts them with a store at a place that is there.
    pub(crate) fn start_at(what: &str, size: usize, place: &str, variables: &[(&str, &str)]) -> Ranks {
        let name = Ranks::name(what);
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.env("PHALANX_METRICS", "0").envs(variables.iter().copied());
            Rank::start(command, &format!("{place}&rank={rank}&world_size={size}&job={name}"))
        };
        Ranks { ranks: (0..size).map(start).collect(), name, store: None }
    }

    /// Starts a job of one rank, which is the first process of a PID namespace of its own.
    pub(crate) fn start_apart(what: &str, place: &str) -> Ranks {
        let name = Ranks::name(what);
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(std::env::current_exe().expect("this program"));
        let rank = Rank::start(command, &format!("{place}&rank=0&world_size=1&job={name}"));
        Ranks { ranks: vec![rank], name, store: None }
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.ranks.iter().map(|rank| rank.child.id()).collect()
    }

    /// Holds a rank as a debugger does, until what is returned is dropped: the others would give up one that a signal has stopped.
    pub(crate) fn hold(&self, rank: usize) -> Held {
        let tasks = format!("/proc/{}/task", self.ranks[rank].child.id());
        let mut held = Held(vec![]);
        loop {
            let threads = fs::read_dir(&tasks).expect("our own child").map(|task| task.expect("a thread").file_name());
            let threads = threads.map(|number| Pid::from_raw(number.to_str().expect("a number").parse().expect("one")));
            let fresh: Vec<Pid> = threads.filter(|thread| !held.0.contains(thread)).collect();
            if fresh.is_empty() {
                return held;
            }
            fresh.into_iter().for_each(|thread| held.take(thread));
        }
    }

    /// Kills a rank, and returns once it is gone.
    pub(crate) fn kill(&mut self, rank: usize) {
        self.ranks[rank].child.kill().expect("our own child");
        self.ranks[rank].child.wait().expect("our own child");
    }

    /// Waits until all have a group.
    pub(crate) fn wait_until_joined(&mut self) {
        for rank in &mut self.ranks {
            let mut lines = rank.said.by_ref().lines().map_while(Result::ok);
            assert!(lines.any(|line| line == JOINED), "it ended without having joined");
        }
    }

    /// Waits until all have ended; why those did that say so.
    pub(crate) fn failures(&mut self) -> Vec<String> {
        let failure = |rank: &mut Rank| {
            let lines = rank.said.by_ref().lines().map_while(Result::ok);
            let failure = lines.filter_map(|line| Some(line.strip_prefix(FAILED)?.to_owned())).last();
            rank.child.wait().expect("our own child");
            failure
        };
        self.ranks.iter_mut().filter_map(failure).collect()
    }
}

impl Rank {
    /// Starts it by a command that ends in this program.
    fn start(mut command: Command, url: &str) -> Rank {
        command.args(["--exact", "ranks::rank", "--nocapture"]).env(URL, url);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        Rank { said: BufReader::new(child.stdout.take().expect("a pipe")), child }
    }
}

/// The threads of a rank that is held.
pub(crate) struct Held(Vec<Pid>);

impl Held {
    fn take(&mut self, thread: Pid) {
        ptrace::seize(thread, ptrace::Options::empty()).expect("a child's thread");
        self.0.push(thread);
        ptrace::interrupt(thread).expect("it is traced");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("news of it");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.iter().for_each(|thread| ptrace::detach(*thread, None).expect("it is held"));
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for Rank { child, .. } in &mut self.ranks {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.store.as_ref().map(std::fs::remove_file);
    }
}

/// What the processes above do; as a test of its own it has nothing to join.
#[test]
fn rank() {
    if let Ok(url) = std::env::var(URL)
        && let Err(error) = work(&url)
    {
        say(&format!("{FAILED}{error}"));
    }
}

/// Reduces until one of the ranks hears the end of its input.
fn work(url: &str) -> Result<(), Box<dyn Error>> {
    let is_over = Arc::new(AtomicBool::new(false));
    let listener = Arc::clone(&is_over);
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        listener.store(true, Ordering::Relaxed);
    });
    let world = phalanx::join(url)?;
    let group = world.group()?;
    say(JOINED);
    let mut is_end = [0_u8];
    while is_end == [0] {
        is_end = [u8::from(is_over.load(Ordering::Relaxed))];
        group.all_reduce(&mut is_end, ReduceOp::Max)?;
    }
    Ok(())
}

/// A line of its own, whatever the test harness has said before.
fn say(line: &str) {
    let _ = io::stdout().write_all(format!("\n{line}\n").as_bytes());
}

const URL: &str = "PHALANX_TEST_TOP_URL";
const JOINED: &str = "joined";
const FAILED: &str = "failed: ";
