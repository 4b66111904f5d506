//! The side of the test: a process for each rank, what it says, and what is done to it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use phalanx_comm::store::{ServerOptions, StoreServer};
use phalanx_core::store::Store;

use crate::containers;
use crate::hosts::Hosts;
use crate::play::{ADDRESS, DOOR, GROUND, MARK, PLAY, RANK, RANKS};

/// A world of processes. Whatever lives when it is dropped is killed.
pub(crate) struct World {
    ranks: Vec<Rank>,
    door: String,
    ground: Ground,
    _server: Option<StoreServer>,
    _store: Option<StoreFile>,
}

/// The file of a store, removed at the end.
struct StoreFile(PathBuf);

/// How the ranks of a world reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    Segment,
    Tcp,
    /// Two ranks on each host share memory, and reach the others over TCP.
    Mixed,
}

impl Ground {
    /// What it is called in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Ground::Segment => "shared memory",
            Ground::Tcp => "TCP",
            Ground::Mixed => "both",
        }
    }
}

struct Rank {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<(Instant, String)>,
}

impl World {
    /// Starts a play in as many processes, which share a segment.
    pub(crate) fn start(play: &str, size: usize) -> World {
        World::start_on(Ground::Segment, play, size)
    }

    /// Starts a play in as many processes.
    pub(crate) fn start_on(ground: Ground, play: &str, size: usize) -> World {
        match ground {
            Ground::Segment => World::start_at(ground, play, size, unique_name()),
            Ground::Tcp | Ground::Mixed => World::start_with_a_server(ground, play, size),
        }
    }

    /// Starts a play in as many processes, which meet at a server of this one.
    pub(crate) fn start_with_a_server(ground: Ground, play: &str, size: usize) -> World {
        let options = ServerOptions::new("127.0.0.1:0".parse().expect("an address"));
        let server = StoreServer::start(options).expect("a free port");
        let door = server.address().to_string();
        World { _server: Some(server), ..World::start_at(ground, play, size, door) }
    }

    /// Starts a play in as many processes, which meet at this door.
    pub(crate) fn start_at(ground: Ground, play: &str, size: usize, door: String) -> World {
        let ranks = (0..size).map(|rank| Rank::start(program(), play, (rank, size), &door, ground)).collect();
        World { ranks, door, ground, _server: None, _store: None }
    }

    /// Starts a play in a process for each of `homes`, on that host. They meet in a file, which no network has to carry.
    pub(crate) fn start_between(hosts: &Hosts, play: &str, homes: &[usize]) -> World {
        let file = StoreFile(std::env::temp_dir().join(unique_name()));
        let door = file.0.display().to_string();
        let start = |(rank, &home)| {
            let mut command = hosts.enter(home);
            command.arg(program().get_program()).env(ADDRESS, hosts.address(home).to_string());
            Rank::start(command, play, (rank, homes.len()), &door, Ground::Tcp)
        };
        let ranks = homes.iter().enumerate().map(start).collect();
        World { ranks, door, ground: Ground::Tcp, _server: None, _store: Some(file) }
    }

    /// Starts a play in as many processes, each in a container that has nothing of this host but its network.
    pub(crate) fn start_apart(ground: Ground, play: &str, size: usize) -> World {
        let options = ServerOptions::new("127.0.0.1:0".parse().expect("an address"));
        let server = (ground != Ground::Segment).then(|| StoreServer::start(options).expect("a free port"));
        let door = server.as_ref().map_or_else(unique_name, |server| server.address().to_string());
        let start = |rank| {
            let mut command = containers::enter();
            command.arg(program().get_program());
            Rank::start(command, play, (rank, size), &door, ground)
        };
        World { ranks: (0..size).map(start).collect(), door, ground, _server: server, _store: None }
    }

    /// Starts a play in as many processes, which meet in a file.
    pub(crate) fn start_with_a_file(play: &str, size: usize) -> World {
        let file = StoreFile(std::env::temp_dir().join(unique_name()));
        let door = file.0.display().to_string();
        World { _store: Some(file), ..World::start_at(Ground::Tcp, play, size, door) }
    }

    /// Starts one more process, which plays this where the others meet.
    pub(crate) fn add(&mut self, play: &str) -> usize {
        let rank = self.ranks.len();
        self.ranks.push(Rank::start(program(), play, (rank, rank + 1), &self.door, self.ground));
        rank
    }

    /// The store at which the ranks meet.
    pub(crate) fn store(&self) -> Store {
        crate::play::store(&self.door)
    }

    /// The ranks but these.
    pub(crate) fn others(&self, but: &[usize]) -> impl Iterator<Item = usize> + use<> {
        let but = but.to_vec();
        (0..self.ranks.len()).filter(move |rank| !but.contains(rank))
    }

    /// Writes a line to every rank that still reads.
    pub(crate) fn tell_all(&mut self, line: &str) {
        for rank in &mut self.ranks {
            let _ = rank.stdin.as_mut().map(|stdin| stdin.write_all(format!("{line}\n").as_bytes()));
        }
    }

    /// Waits until a rank says this word.
    pub(crate) fn expect(&self, rank: usize, word: &str) {
        self.hear(rank, word);
    }

    /// When a rank said this word, and what came after it.
    pub(crate) fn hear(&self, rank: usize, word: &str) -> (Instant, String) {
        let mut before = vec![];
        loop {
            let (when, line) = self.ranks[rank].said.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                panic!("rank {rank} does not say {word:?} but {before:?}: {error}");
            });
            if let Some(rest) = line.strip_prefix(word) {
                return (when, rest.trim().to_owned());
            }
            before.push(line);
        }
    }

    /// What all but these ranks say of the group's failure, which must be the same.
    pub(crate) fn verdict(&self, but: &[usize]) -> String {
        let verdicts: Vec<String> = self.others(but).map(|rank| self.hear(rank, "failed").1).collect();
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
        verdicts[0].clone()
    }

    /// Waits for as long as this, in which this rank may not say the word.
    pub(crate) fn hear_none_of(&self, rank: usize, word: &str, span: Duration) {
        let until = Instant::now() + span;
        while let Ok((_, line)) = self.ranks[rank].said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            assert!(!line.starts_with(word), "rank {rank} says {line:?}");
        }
    }

    /// Waits for as long as this, in which no rank may say the word.
    pub(crate) fn expect_none(&self, word: &str, span: Duration) {
        let until = Instant::now() + span;
        for (rank, process) in self.ranks.iter().enumerate() {
            loop {
                match process.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok((_, line)) => assert!(!line.starts_with(word), "rank {rank} says {line:?}"),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => panic!("rank {rank} has ended"),
                }
            }
        }
    }

    /// Kills these ranks; returns the moment before.
    pub(crate) fn kill(&mut self, ranks: &[usize]) -> Instant {
        let now = Instant::now();
        ranks.iter().for_each(|&rank| self.ranks[rank].child.kill().expect("it lives"));
        now
    }

    /// Kills these ranks while the others are stopped, so that they are dead all at once for these however busy the machine is;
    /// returns the moment before the others go on.
    pub(crate) fn kill_at_once(&mut self, ranks: &[usize]) -> Instant {
        self.others(ranks).for_each(|rank| self.stop(rank));
        self.kill(ranks);
        ranks.iter().for_each(|&rank| self.reap(rank));
        let now = Instant::now();
        self.others(ranks).for_each(|rank| self.resume(rank));
        now
    }

    /// Waits for the end of a rank that was killed.
    pub(crate) fn reap(&mut self, rank: usize) {
        self.ranks[rank].child.wait().expect("a child");
    }

    /// Stops a rank, and waits until all its threads have.
    pub(crate) fn stop(&self, rank: usize) {
        self.signal(rank, Signal::STOP);
        let stopped = waitpid(Some(self.pid(rank)), WaitOptions::UNTRACED).expect("a child").expect("news of it");
        assert!(stopped.1.stopped(), "rank {rank} has ended");
    }

    /// What has a handler run in every rank.
    pub(crate) fn interruption(&self) -> impl Fn() + Send + use<> {
        let ranks: Vec<Pid> = (0..self.ranks.len()).map(|rank| self.pid(rank)).collect();
        move || ranks.iter().for_each(|rank| kill_process(*rank, Signal::USR1).expect("it is not reaped yet"))
    }

    /// Stops the thread of a rank that keeps its group over TCP, as if the system never ran it again, until what this returns is
    /// dropped.
    pub(crate) fn stop_keeper(&self, rank: usize) -> Halted {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.ranks[rank].child.id())).expect("its threads");
        let keeper = tasks
            .map(|task| task.expect("a thread").path())
            .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "phalanx-keeper"));
        Halted::of(keeper.expect("a keeper").file_name().and_then(|id| id.to_str()?.parse().ok()).expect("a number"))
    }

    pub(crate) fn resume(&self, rank: usize) {
        self.signal(rank, Signal::CONT);
    }

    /// Lets all ranks end, and returns the name at which they had met.
    pub(crate) fn end(mut self) -> String {
        for rank in &mut self.ranks {
            rank.stdin = None;
            rank.child.wait().expect("a child");
        }
        std::mem::take(&mut self.door)
    }

    fn signal(&self, rank: usize, signal: Signal) {
        kill_process(self.pid(rank), signal).expect("it lives");
    }

    pub(crate) fn pid(&self, rank: usize) -> Pid {
        Pid::from_raw(self.ranks[rank].child.id() as i32).expect("a pid")
    }
}

/// A thread of another process that is stopped by tracing it, until this is dropped.
pub(crate) struct Halted(nix::unistd::Pid);

impl Halted {
    fn of(thread: i32) -> Halted {
        let thread = nix::unistd::Pid::from_raw(thread);
        ptrace::seize(thread, ptrace::Options::empty()).expect("a child's thread");
        ptrace::interrupt(thread).expect("it is traced");
        let stopped = nix::sys::wait::waitpid(thread, Some(WaitPidFlag::__WALL)).expect("news of it");
        assert!(matches!(stopped, WaitStatus::PtraceEvent(..) | WaitStatus::Stopped(..)), "{stopped:?}");
        Halted(thread)
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        ptrace::detach(self.0, None).expect("it is stopped");
    }
}

impl Rank {
    fn start(mut program: Command, play: &str, (rank, size): (usize, usize), door: &str, ground: Ground) -> Rank {
        let mut child = program
            .args(["--exact", "rank", "--ignored", "--nocapture", "--test-threads", "1"])
            .envs([(PLAY, play), (DOOR, door), (RANK, &rank.to_string()), (RANKS, &size.to_string())])
            .env(GROUND, format!("{ground:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if play == "panic" { Stdio::null() } else { Stdio::inherit() })
            .spawn()
            .expect("a process");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let (tell, said) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some((_, line)) = line.split_once(MARK) {
                    let _ = tell.send((Instant::now(), line.to_owned()));
                }
            }
        });
        Rank { child, stdin, said }
    }
}

/// This program, which plays the ranks too.
fn program() -> Command {
    Command::new(std::env::current_exe().expect("this program"))
}

pub(crate) fn unique_name() -> String {
    static WORLDS: AtomicU32 = AtomicU32::new(0);
    let world = WORLDS.fetch_add(1, Ordering::Relaxed);
    format!("phalanx-processes-{}-{world}", std::process::id())
}

impl Drop for StoreFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
