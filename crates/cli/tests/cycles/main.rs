//! Start, kill at a random moment, start again on the same port: a start serves within a second, and nothing is left.
//!
//! `PHALANX_TEST_CYCLES` says how often; 20 times unless set. A failure names its seed, which `PHALANX_TEST_SEED` repeats.

mod census;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use census::Census;
use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{ClientOptions, StoreAddress, TcpStore};
use phalanx_core::store::{Store, StoreError};

/// How soon a started program serves: most of the time, for a machine that is busy with other things makes some late.
const SERVES_WITHIN: Duration = Duration::from_secs(1);
/// How long a program that is late is waited for, and for what is left of one that was killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The latest random moment after a start.
const LATEST: Duration = Duration::from_millis(60);

#[test]
fn a_killed_store_leaves_nothing_and_starts_again() {
    let scene = Scene::new("serve");
    let address = scene.address();
    let bind = address.to_string();
    let start = || scene.phalanx(&["store", "serve", "--bind", &bind]);
    let connect = || TcpStore::connect(options(address)).map(Store::new);
    scene.cycles(start, connect);
}

#[test]
fn a_killed_launcher_leaves_nothing_and_starts_again() {
    let scene = Scene::new("run");
    let address = scene.address();
    let endpoint = address.to_string();
    let key = JobKey::mint().expect("a key");
    // Outside of the directory in which nothing may be left.
    let key_file = scene.runtime.join("key");
    key.write_file(&key_file).expect("a key file");
    let start = || {
        let mut command =
            scene.phalanx(&["run", "--nnodes", "1", "--nproc-per-node", "2", "--rdzv-endpoint", &endpoint]);
        command.args(["--job-id", JOB, "--key-file"]).arg(&key_file).args(["--", "sh", "-c", "sleep 1000 & wait"]);
        command
    };
    let connect = || {
        let job = JobName::new(JOB).expect("a name");
        let claim = Claim::new(job, 0, Session::mint().expect("random bytes"));
        TcpStore::connect(options(address).key(key.clone()).claim(claim)).map(Store::new)
    };
    scene.cycles(start, connect);
}

/// One test's processes, port and directories.
struct Scene {
    mark: String,
    directory: PathBuf,
    runtime: PathBuf,
    port: u16,
    seed: u64,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let seed = number("PHALANX_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
        let own = format!("phalanx-cycles-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(&own);
        let runtime = std::env::temp_dir().join(format!("{own}-runtime"));
        for path in [&directory, &runtime] {
            fs::create_dir(path).expect("a new directory");
        }
        Scene { mark: format!("PHALANX_TEST_MARK={own}"), directory, runtime, port: free_port(), seed }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    fn phalanx(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        let (name, value) = self.mark.split_once('=').expect("a variable");
        command.args(arguments).env(name, value).env("TMPDIR", &self.directory).env("XDG_RUNTIME_DIR", &self.runtime);
        // In its own group, so that nobody else's signals meet it; its output ends when the last of its processes does.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn census(&self) -> Census<'_> {
        Census { mark: &self.mark, directory: &self.directory, port: self.port, runtime: &self.runtime }
    }

    /// Half of the starts are killed while they start, the others while they serve.
    fn cycles(&self, start: impl Fn() -> Command, connect: impl Fn() -> Result<Store, StoreError>) {
        let (mut random, mut served) = (fastrand::Rng::with_seed(self.seed), vec![]);
        for cycle in 0..number("PHALANX_TEST_CYCLES").unwrap_or(20) {
            let context = format!("cycle {cycle} of seed {}", self.seed);
            self.nothing_left(&context);
            let mut killed = Killed(start().spawn().expect("phalanx runs"));
            if cycle % 2 == 0 {
                served.push(serve(&connect, &mut random, &context));
            } else {
                std::thread::sleep(LATEST.mul_f64(random.f64()));
            }
            killed.end();
            self.nothing_left(&context);
        }
        served.sort();
        let usual = served.get(served.len() / 2);
        assert!(usual.is_none_or(|usual| *usual < SERVES_WITHIN), "seed {}: served after {served:?}", self.seed);
    }

    fn nothing_left(&self, context: &str) {
        let left = self.census().settle(PATIENCE);
        assert!(left.is_empty(), "{context}: left behind: {left:#?}");
    }
}

/// Asks the store until a random moment; how long the first answer took.
fn serve(connect: &impl Fn() -> Result<Store, StoreError>, random: &mut fastrand::Rng, context: &str) -> Duration {
    let began = Instant::now();
    let store = connect().unwrap_or_else(|error| panic!("{context}: {error}"));
    store.ping().unwrap_or_else(|error| panic!("{context}: {error}"));
    let took = began.elapsed();
    let killed_at = Instant::now() + LATEST.mul_f64(random.f64());
    let mut count = 0;
    while Instant::now() < killed_at {
        count += 1;
        // A new store holds nothing of the one before.
        let sum = store.add("cycles", 1).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(sum, count, "{context}");
    }
    took
}

fn options(address: SocketAddr) -> ClientOptions {
    ClientOptions::new(StoreAddress::tcp(address.ip().to_string(), address.port())).timeout(PATIENCE)
}

/// A process that ends by SIGKILL, whatever the test comes to.
struct Killed(Child);

impl Killed {
    fn end(&mut self) {
        self.0.kill().expect("a process");
        self.0.wait().expect("its end");
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
        let _ = fs::remove_dir_all(&self.runtime);
    }
}

/// A port below those that the system gives out by itself, so that nobody takes it between two starts.
fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let ports = std::iter::repeat_with(|| fastrand::u16(10_000..30_000)).take(1000);
    ports.into_iter().find(is_free).expect("a free port")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is \"{text}\"")))
}

const JOB: &str = "cycles";
