//! What processes that share a file see of each other, and what a killed or stopped one leaves behind.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use phalanx_comm::store::{FileStore, FileStoreOptions};
use phalanx_core::store::Store;
use rustix::process::{Pid, Signal, kill_process};

use crate::setting::{TIMEOUT, TempFile};

/// A process that plays one of the parts below; killed at the end.
struct Part(Child);

impl Part {
    fn play(part: &str, path: &Path) -> Part {
        let name = format!("processes::{part}");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--ignored", "--nocapture", "--test-threads=1"])
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Part(child)
    }

    /// Waits until the process says that it is ready.
    fn ready(mut self) -> Part {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with(READY)), "it ended before it was ready");
        self
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ended = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn a_killed_writer_leaves_nothing_half_done() {
    let path = TempFile::new();
    let store = open(path.path());
    let (mut random, mut reached) = (fastrand::Rng::with_seed(7), 0);
    for _ in 0..20 {
        let part = Part::play("a_writer", path.path());
        // Killed while it is at it: some changes later, a random part of a change after that.
        store.pop("begun").unwrap();
        let until = Instant::now() + Duration::from_micros(random.u64(..3000));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        part.kill();
        reached = consistent(&store, reached);
        assert_eq!(consistent(&open(path.path()), reached), reached, "whoever comes new sees the same");
        assert_eq!(store.add("mine", 1).unwrap(), open(path.path()).add("mine", 0).unwrap());
    }
}

/// Checks what the writers wrote together, and returns how far they came.
fn consistent(store: &Store, before: u64) -> u64 {
    let values = store.multi_get(&["a", "b"]).unwrap();
    assert!(values[0] == values[1], "all of a change or nothing");
    let number = u64::from_le_bytes(values[0][..8].try_into().unwrap());
    assert!(values[0][8..].iter().all(|byte| *byte == number as u8));
    assert!(number >= before, "what was done stays done");
    number
}

#[test]
#[ignore = "played by the test above in a process of its own"]
fn a_writer() {
    let store = open(&path());
    for number in store.find("a").unwrap().map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap())).. {
        let mut value = (number + 1).to_le_bytes().to_vec();
        value.resize(8 + (number as usize * 7919) % 60_000, (number + 1) as u8);
        store.multi_set(&[("a", &value), ("b", &value)]).unwrap();
        if number % 4 == 0 {
            store.push("begun", "").unwrap();
        }
    }
}

#[test]
fn a_stopped_holder_of_the_lock_costs_no_more_than_the_deadline() {
    let path = TempFile::new();
    let store = open(path.path());
    store.set("a", "1").unwrap();
    let holder = Part::play("a_holder", path.path()).ready();
    holder.signal(Signal::STOP);
    let timeout = Duration::from_millis(100);
    let hasty = store.with_timeout(timeout);
    let began = Instant::now();
    let error = hasty.set("a", "2").unwrap_err();
    assert!(error.is_timeout() && began.elapsed() >= timeout, "{error}");
    assert!(hasty.add("n", 1).unwrap_err().is_timeout());
    assert_eq!(hasty.get("a").unwrap(), b"1", "who only reads needs no lock");
    assert_eq!(store.find("n").unwrap(), None);
    holder.kill();
    assert_eq!(store.add("n", 1).unwrap(), 1);
}

#[test]
#[ignore = "played by the test above in a process of its own"]
fn a_holder() {
    let file = File::options().read(true).write(true).open(path()).unwrap();
    file.lock().unwrap();
    say_ready();
    // Until the other side is gone.
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn processes_wait_for_each_other() {
    let path = TempFile::new();
    let store = open(path.path());
    let parts: Vec<Part> = (0..3).map(|_| Part::play("a_member", path.path())).collect();
    store.barrier("all here", 4).unwrap();
    let sum: i64 =
        (0..300).map(|_| String::from_utf8(store.pop("sums").unwrap()).unwrap().parse::<i64>().unwrap()).sum();
    assert_eq!(sum, 300 * 301 / 2, "each sum once");
    store.set("end", "").unwrap();
    for mut part in parts {
        assert!(part.0.wait().unwrap().success());
    }
}

#[test]
#[ignore = "played by the test above in a process of its own"]
fn a_member() {
    let store = open(&path());
    store.barrier("all here", 4).unwrap();
    for _ in 0..100 {
        store.push("sums", store.add("n", 1).unwrap().to_string()).unwrap();
    }
    store.wait(&["end"]).unwrap();
}

fn open(path: &Path) -> Store {
    Store::new(FileStore::open(path, FileStoreOptions::new()).unwrap()).with_timeout(TIMEOUT)
}

fn path() -> std::path::PathBuf {
    std::env::var_os(PATH).expect("this part is played for another test").into()
}

fn say_ready() {
    let mut out = io::stdout().lock();
    writeln!(out, "{READY}").and_then(|()| out.flush()).unwrap();
}

const PATH: &str = "PHALANX_TEST_STORE";
const READY: &str = "ready";
