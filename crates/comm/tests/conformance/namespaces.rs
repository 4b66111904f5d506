//! Ranks that are processes on several hosts, as far as the network is concerned: namespaces that a bridge connects, two ranks
//! in each, which share memory. It takes the right to make namespaces, and `unshare`, `nsenter` and `ip`; the test says so
//! where one is missing.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use phalanx_comm::Network;
use phalanx_comm::store::{FileStore, FileStoreOptions};
use phalanx_core::GroupOptions;
use phalanx_core::store::Store;

use crate::setting::key;
use crate::soak::{part, seeds};

#[test]
fn soak_encrypted() {
    between_hosts(true);
}

#[test]
fn soak_in_clear() {
    between_hosts(false);
}

/// One member, in a process of its own.
#[test]
#[ignore = "started by the tests above"]
fn member() {
    let Ok(told) = std::env::var(TOLD) else {
        return;
    };
    let words: Vec<&str> = told.splitn(4, ' ').collect();
    let [seed, me, protection, path] = words[..] else {
        panic!("{TOLD} is \"{told}\"");
    };
    let (seed, me) = (seed.parse().expect("a seed"), me.parse().expect("a member"));
    let store = Store::new(FileStore::open(path, FileStoreOptions::new()).expect("the store of the test"));
    let join = |team: usize, members: &[usize]| {
        let rank = members.iter().position(|&member| member == me).expect("a member of the team");
        let hosts = members.iter().map(|&member| host(member) as u32).collect();
        let network = Network::new(rank, members.len(), store.scope(&format!("team-{team}"))).hosts(hosts);
        let network = if protection == ENCRYPTED { network.key(key()) } else { network.insecure(true) };
        let group = network.options(GroupOptions::default().timeout(PATIENCE)).join(PATIENCE).expect("a group");
        let neighbours = members.iter().filter(|&&member| host(member) == host(me)).count();
        assert!(neighbours == 1 || shares_memory(), "{neighbours} members of one host share no memory");
        group
    };
    let found = part((seed, MEMBERS, me), join);
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}

fn shares_memory() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
    maps.contains("memfd:")
}

fn between_hosts(encrypted: bool) {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => return skipped(&why),
    };
    for seed in seeds(1) {
        let store = TemporaryFile::new();
        let protection = if encrypted { ENCRYPTED } else { "clear" };
        let start = |me| {
            let told = format!("{seed} {me} {protection} {}", store.0.display());
            let mut command = hosts.command(host(me), &std::env::current_exe().expect("this program"));
            command.args(["--exact", "namespaces::member", "--ignored", "--nocapture"]).env(TOLD, told);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
        };
        let members: Vec<Child> = (0..MEMBERS).map(start).collect();
        // Every wait of a member ends within its timeout, and so does the member.
        let ended: Vec<_> = members.into_iter().map(|member| member.wait_with_output().expect("an end")).collect();
        let failed: Vec<String> = ended
            .iter()
            .filter(|output| !output.status.success())
            .map(|output| String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned())
            .collect();
        assert!(failed.is_empty(), "PHALANX_TEST_SEED={seed}\n{}", failed.join("\n"));
        let played = ended.iter().filter(|output| String::from_utf8_lossy(&output.stdout).contains(" 1 passed;"));
        assert_eq!(played.count(), MEMBERS, "a member has played nothing: {ended:?}");
    }
}

/// The host of a member: neighbours are on different ones.
fn host(member: usize) -> usize {
    1 + member % HOSTS
}

fn skipped(why: &str) {
    let _ = writeln!(io::stderr().lock(), "no soak between namespaces: {why}");
}

/// Network namespaces, the first of which connects the others. Each lasts as long as the process in it, which ends with this
/// program however that ends.
struct Hosts(Vec<Child>);

impl Hosts {
    fn new() -> Result<Hosts, String> {
        let hosts = Hosts((0..=HOSTS).map(|_| namespace()).collect::<Result<_, _>>()?);
        hosts.ip(0, "link add bridge type bridge")?;
        hosts.ip(0, "link set bridge up")?;
        for host in 1..=HOSTS {
            let pid = hosts.0[host].id();
            hosts.ip(0, &format!("link add wire{host} type veth peer name eth0 netns {pid}"))?;
            hosts.ip(0, &format!("link set wire{host} master bridge up"))?;
            hosts.ip(host, "link set lo up")?;
            hosts.ip(host, &format!("addr add 10.9.8.{host}/24 dev eth0"))?;
            hosts.ip(host, "link set eth0 up")?;
        }
        Ok(hosts)
    }

    /// A program on one of them.
    fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0[host].id())).arg("--").arg(program);
        command
    }

    fn ip(&self, host: usize, words: &str) -> Result<(), String> {
        let output = self.command(host, Path::new("ip")).args(words.split(' ')).output();
        let output = output.map_err(|error| format!("nsenter: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for holder in &mut self.0 {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// A process in a new namespace, once it is there.
fn namespace() -> Result<Child, String> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "echo there; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.stderr(Stdio::null()).spawn().map_err(|error| format!("unshare: {error}"))?;
    let mut line = String::new();
    let said = holder.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    if said.is_some_and(|said| said.is_ok()) && line == "there\n" {
        return Ok(holder);
    }
    let _ = holder.wait();
    Err("this user may not make network namespaces".to_owned())
}

/// A path where nothing is, and nothing stays.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new() -> TemporaryFile {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let (pid, file) = (std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        TemporaryFile(std::env::temp_dir().join(format!("phalanx-namespaces-{pid}-{file}")))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const HOSTS: usize = 3;
const MEMBERS: usize = 6;
/// What a member is told by its environment: seed, number, protection, and the path of the store.
const TOLD: &str = "PHALANX_TEST_MEMBER";
const ENCRYPTED: &str = "encrypted";
const PATIENCE: Duration = Duration::from_secs(30);
