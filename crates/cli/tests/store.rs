//! `phalanx store` as a user meets it: served, asked, watched, and closed to strangers.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::store::{ClientOptions, TcpStore};
use phalanx_core::store::Store;
use rustix::process::{Pid, Signal, kill_process};

/// A command that prints lines for as long as it runs.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    fn start(words: &[&str]) -> Running {
        Running::spawn(command(words))
    }

    fn spawn(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Running { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends it as a user would, and returns its exit code.
    fn end(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().code()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("phalanx-store-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
    command.arg("store").args(words);
    keyless(command)
}

/// A server that a shell becomes after this.
fn serve_after(script: &str) -> (Running, String) {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script}; exec \"$0\" store serve"), env!("CARGO_BIN_EXE_phalanx")]);
    serve_by(keyless(command))
}

fn keyless(mut command: Command) -> Command {
    command.stdin(Stdio::null());
    for name in ["PHALANX_KEY", "PHALANX_KEY_FD", "PHALANX_KEY_FILE"] {
        command.env_remove(name);
    }
    command
}

fn store(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

fn done(words: &[&str]) -> String {
    let output = store(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Why it could not be done; its exit code is 1.
fn refused(words: &[&str]) -> String {
    let output = store(words);
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// That it is refused because a key is asked for. A client tries until its time is over, and tells what it has seen last: on a busy machine
/// that may be no answer yet.
fn assert_asked_for_a_key(words: &[&str]) {
    let mut told = ["1", "4", "16"].into_iter().map(|timeout| refused(&[words, &["--timeout", timeout]].concat()));
    let is_told = |why: String| why.contains("it asks for a key") && why.contains("--key-file FILE");
    assert!(told.any(is_told), "{words:?}");
}

/// A server, and where it listens.
fn serve(words: &[&str]) -> (Running, String) {
    serve_by(command(&[&["serve"], words].concat()))
}

fn serve_by(command: Command) -> (Running, String) {
    let mut server = Running::spawn(command);
    let line = server.line();
    let address = line.strip_prefix("listening on ").unwrap_or_else(|| {
        let mut why = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        panic!("{line}: {why}")
    });
    let address = address.to_owned();
    (server, address)
}

#[test]
fn what_is_set_is_got_and_listed() {
    let (server, address) = serve(&[]);
    done(&["set", &address, "a/lr", "-0.5"]);
    assert_eq!(done(&["get", &address, "a/lr"]), "-0.5");
    done(&["set", &address, "a/lr", "0.001"]);
    done(&["set", &address, "b", ""]);
    assert_eq!(done(&["get", &address, "a/lr"]), "0.001");
    assert_eq!(done(&["get", &address, "b"]), "");
    assert_eq!(done(&["keys", &address]), "a/lr\nb\n");
    assert_eq!(done(&["keys", &address, "a/"]), "a/lr\n");
    // A busy machine may take longer than that to let anybody in.
    let is_told = |(timeout, text): (&str, &str)| {
        let late = refused(&["get", &address, "absent", "--timeout", timeout]);
        late.contains("absent") && late.contains(text)
    };
    assert!([("0.1", "100ms"), ("1", "1s"), ("10", "10s")].into_iter().any(is_told));
    assert_eq!(server.end(), Some(0));
    assert!(refused(&["keys", &address, "--timeout", "0.1"]).contains(&address));
}

#[test]
fn a_minted_key_opens_the_store_and_another_does_not() {
    let directory = Directory::new();
    let (key, other) = (directory.path("key"), directory.path("other"));
    done(&["mint-key", &key]);
    done(&["mint-key", &other]);
    let (server, address) = serve(&["--key-file", &key, "--job-id", "train"]);
    let (stranger, _) = serve(&["--key-file", &other]);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    done(&["set", &address, "k", "v", "--key-file", &key, "--job-id", "train"]);
    assert_eq!(done(&["get", &address, "k", "--key-file", &key, "--job-id", "train"]), "v");
    assert_asked_for_a_key(&["get", &address, "k"]);
    refused(&["get", &address, "k", "--key-file", &other, "--job-id", "train", "--timeout", "1"]);
    let job = refused(&["get", &address, "k", "--key-file", &key, "--job-id", "else", "--timeout", "60"]);
    assert!(job.contains("train"), "{job}");
    let there = format!("phalanx: key file {key}: is there already; a key is never overwritten\n");
    assert_eq!(refused(&["mint-key", &key]), there);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let mended = format!("has mode 0644, must be 0600 or less: chmod 600 {key}\n");
    assert!(refused(&["serve", "--key-file", &key]).ends_with(&mended));
    assert_eq!((server.end(), stranger.end()), (Some(0), Some(0)));
}

#[test]
fn a_key_of_another_length_is_refused_without_being_shown() {
    let served = command(&["serve"]).env("PHALANX_KEY", "5a".repeat(31)).output().unwrap();
    let why = String::from_utf8(served.stderr).unwrap();
    assert!(why.contains("phalanx: PHALANX_KEY: job key has 62 of 64 digits, must be 64 hexadecimal digits"), "{why}");
    assert!(served.status.code() == Some(1) && !why.contains("5a5a"), "{why}");
}

#[test]
fn a_key_file_whose_path_is_no_text_is_no_missing_key() {
    let directory = Directory::new();
    let key = directory.0.join(OsStr::from_bytes(b"key-\xff"));
    let minted = command(&["mint-key"]).arg(&key).output().unwrap();
    assert!(minted.status.success(), "{minted:?}");
    let mut serving = command(&["serve"]);
    serving.env("PHALANX_KEY_FILE", &key);
    let (server, address) = serve_by(serving);
    assert_asked_for_a_key(&["set", &address, "k", "v"]);
    let set = command(&["set", &address, "k", "v"]).env("PHALANX_KEY_FILE", &key).output().unwrap();
    assert!(set.status.success(), "{set:?}");
    assert_eq!(server.end(), Some(0));
    for name in ["PHALANX_KEY_FD", "PHALANX_KEY"] {
        let keyless = command(&["set", &address, "k", "v"]).env(name, OsStr::from_bytes(b"7\xff")).output().unwrap();
        let why = String::from_utf8_lossy(&keyless.stderr);
        assert!(keyless.status.code() == Some(1) && why.contains(&format!("phalanx: {name}")), "{why}");
    }
}

/// As under `nohup`, when its session ends.
#[test]
fn a_signal_that_was_ignored_before_ends_no_server() {
    let (server, address) = serve_after("trap '' HUP");
    server.signal(Signal::HUP);
    done(&["set", &address, "k", "v"]);
    assert_eq!(done(&["get", &address, "k"]), "v");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn clients_may_be_more_than_the_usual_limit_of_open_files() {
    let (server, address) = serve_after("ulimit -S -n 64");
    let client = |_| {
        let options = ClientOptions::new(address.parse().unwrap()).timeout(PATIENCE);
        Store::new(TcpStore::connect(options).unwrap()).with_timeout(PATIENCE)
    };
    let clients: Vec<Store> = (0..100).map(client).collect();
    // Each is heard over a connection of its own, for they all wait at once.
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(move || client.barrier("all", 100).unwrap());
        }
    });
    assert_eq!(server.end(), Some(0));
}

#[test]
fn other_machines_are_served_only_if_that_was_said() {
    let why = refused(&["serve", "--bind", "0.0.0.0:0"]);
    assert!(why.contains("0.0.0.0:0"), "{why}");
    assert!(why.ends_with("; give one by --key-file FILE, or do without by --insecure\n"), "{why}");
    let (server, _) = serve(&["--bind", "0.0.0.0:0", "--insecure"]);
    assert_eq!(server.end(), Some(0));
}

/// A server that can tell nobody where it listens.
struct Unheard(Child);

impl Unheard {
    fn start(words: &[&str]) -> Unheard {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut command = command(&[&["serve"], words].concat());
        Unheard(command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Its exit code and what it said, once it ends.
    fn end(mut self) -> (Option<i32>, String) {
        let (began, mut told) = (Instant::now(), String::new());
        while self.0.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it serves on");
            thread::sleep(Duration::from_millis(5));
        }
        self.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        (self.0.wait().unwrap().code(), told)
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_free_port_that_nobody_hears_of_is_not_served() {
    let (code, told) = Unheard::start(&[]).end();
    assert_eq!((code, told.as_str()), (Some(1), "phalanx: output: Broken pipe (os error 32)\n"));
    // Where the place was given, it is known all the same.
    let directory = Directory::new();
    let place = format!("unix:{}", directory.path("socket"));
    let server = Unheard::start(&["--bind", &place]);
    done(&["set", &place, "k", "v", "--timeout", "60"]);
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_port_in_use_is_named() {
    let (server, address) = serve(&[]);
    assert!(refused(&["serve", "--bind", &address]).contains(&address));
    assert_eq!(server.end(), Some(0));
}

#[test]
fn limits_are_kept() {
    let (server, address) = serve(&["--max-value", "1K"]);
    done(&["set", &address, "k", &"x".repeat(1024)]);
    let why = refused(&["set", &address, "k", &"x".repeat(1025)]);
    assert!(why.contains("1025"), "{why}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn changes_are_watched() {
    let (server, address) = serve(&[]);
    done(&["set", &address, "in/a", "1"]);
    let mut watch = Running::start(&["watch", &address, "in/", "--interval", "0.02"]);
    assert_eq!(watch.line(), "in/a = \"1\"");
    done(&["set", &address, "out", "x"]);
    done(&["set", &address, "in/a", "2"]);
    assert_eq!(watch.line(), "in/a = \"2\"");
    done(&["set", &address, "in/b", "3"]);
    assert_eq!(watch.line(), "in/b = \"3\"");
    assert_eq!(watch.end(), Some(0));
    assert_eq!(server.end(), Some(0));
}

const PATIENCE: Duration = Duration::from_secs(30);
