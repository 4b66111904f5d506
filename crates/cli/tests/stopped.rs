//! A server that is stopped, as by a debugger or a dying disk: it holds its connections, accepts new ones, and says nothing.
//! Every call ends all the same, and none claims what was not done.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use phalanx_comm::secure::JobKey;
use phalanx_comm::store::{ClientOptions, Speech, StoreAddress, TcpStore};
use phalanx_core::store::{Doubt, Store, StoreError};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

#[test]
fn calls_end_in_pytorchs_words() {
    calls_end(None, Speech::PyTorch);
}

#[test]
fn calls_end_in_our_frames() {
    calls_end(None, Speech::Either);
}

#[test]
fn calls_end_with_a_key() {
    calls_end(Some(&JobKey::mint().expect("random numbers")), Speech::Either);
}

fn calls_end(key: Option<&JobKey>, speech: Speech) {
    let server = Server::start(key);
    let store = server.client(key, speech);
    store.set("there", "before").expect("a server that serves");

    server.stop();
    for (name, call) in CALLS {
        let (mut took, mut error) = timed(name, || call(&store.with_timeout(TIMEOUT)));
        // Only the first finds a connection that was good, so that its request was on its way.
        let is_first = *name == CALLS[0].0;
        assert_eq!(error.doubt() == Doubt::Unknown, is_first, "{name}: {error}");
        // A busy machine may let a call wait for its turn, but not every time.
        for _ in 1..TRIES {
            if took > TIMEOUT + SLACK {
                (took, error) = timed(name, || call(&store.with_timeout(TIMEOUT)));
            }
        }
        assert!(took >= TIMEOUT && took <= TIMEOUT + SLACK, "{name} took {took:?}: {error}");
    }
    let is_told_in_time = || {
        let began = Instant::now();
        let newcomer = TcpStore::connect(server.options(key, speech).timeout(TIMEOUT));
        assert!(newcomer.is_err(), "a newcomer is let in");
        began.elapsed() <= TIMEOUT + SLACK
    };
    assert!((0..TRIES).any(|_| is_told_in_time()), "a newcomer is not told in time");

    server.signal(Signal::CONT);
    assert_eq!(store.get("there").expect("a server that serves again"), b"before");
}

/// How a call that cannot end well ended, and how long that took.
fn timed<T: std::fmt::Debug>(name: &str, call: impl FnOnce() -> Result<T, StoreError>) -> (Duration, StoreError) {
    let began = Instant::now();
    let error = call().expect_err(name);
    (began.elapsed(), error)
}

/// A server in a process of its own.
struct Server {
    child: Child,
    address: StoreAddress,
    _key_file: Option<KeyFile>,
}

/// A file of this test alone, removed at its end.
struct KeyFile(std::path::PathBuf);

impl Server {
    fn start(key: Option<&JobKey>) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        command.args(["store", "serve", "--bind", "127.0.0.1:0"]).stdout(Stdio::piped());
        for name in ["PHALANX_KEY", "PHALANX_KEY_FD", "PHALANX_KEY_FILE"] {
            command.env_remove(name);
        }
        let file = key.map(|key| {
            let path = std::env::temp_dir().join(format!("phalanx-stopped-{}", std::process::id()));
            key.write_file(&path).expect("a new file");
            command.arg("--key-file").arg(&path);
            KeyFile(path)
        });
        let mut child = command.spawn().expect("phalanx runs");
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        said.read_line(&mut line).expect("a line");
        let address = line.trim_end().strip_prefix("listening on ").expect("an address").parse().expect("an address");
        Server { child, address, _key_file: file }
    }

    fn options(&self, key: Option<&JobKey>, speech: Speech) -> ClientOptions {
        let options = ClientOptions::new(self.address.clone()).speech(speech);
        key.map_or(options.clone(), |key| options.key(key.clone()))
    }

    fn client(&self, key: Option<&JobKey>, speech: Speech) -> Store {
        Store::new(TcpStore::connect(self.options(key, speech)).expect("a server"))
    }

    /// Stops it, and returns once all its threads have stopped.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let seen = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("our own child");
        assert!(seen.is_some_and(|(_, status)| status.stopped()));
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our own child");
    }

    fn pid(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

type Call = fn(&Store) -> Result<(), StoreError>;

const CALLS: &[(&str, Call)] = &[
    ("add", |store| store.add("n", 1).map(drop)),
    ("set", |store| store.set("k", "v")),
    ("multi_set", |store| store.multi_set(&[("k", b"v")])),
    ("get", |store| store.get("there").map(drop)),
    ("find", |store| store.find("there").map(drop)),
    ("wait", |store| store.wait(&["there"])),
    ("check", |store| store.check(&["there"]).map(drop)),
    ("compare_set", |store| store.compare_set("k", "", "v").map(drop)),
    ("delete", |store| store.delete("k").map(drop)),
    ("append", |store| store.append("k", "v")),
    ("num_keys", |store| store.num_keys().map(drop)),
    ("list_keys", |store| store.list_keys().map(drop)),
    ("push", |store| store.push("q", "v")),
    ("pop", |store| store.pop("q").map(drop)),
    ("try_pop", |store| store.try_pop("q").map(drop)),
    ("queue_len", |store| store.queue_len("q").map(drop)),
    ("barrier", |store| store.barrier("b", 1)),
    ("ping", |store| store.ping()),
];

const TIMEOUT: Duration = Duration::from_millis(100);
/// What the contract allows beyond a deadline.
const SLACK: Duration = Duration::from_millis(250);
const TRIES: usize = 8;
