//! Hosts that are network namespaces at one switch, whose cables the test cuts, mutes and narrows. The namespaces live as long
//! as the processes that hold them, which end with this one however it ends: nothing has a name, so nothing stays behind.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

/// Some hosts, each with an address that all others reach.
pub(crate) struct Hosts {
    switch: Namespace,
    hosts: Vec<Namespace>,
}

/// A namespace, and the shell that holds it until it reads no more.
struct Namespace {
    shell: Child,
    talk: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Hosts {
    /// As many hosts; none where this system does not let us have them, which is said.
    pub(crate) fn connected(count: usize) -> Option<Hosts> {
        let built = build(count);
        if let Err(why) = &built {
            let line = format!("skipped, because there can be no network namespaces here: {why}\n");
            std::io::stderr().write_all(line.as_bytes()).expect("stderr");
        }
        built.ok()
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: usize) -> IpAddr {
        address(host)
    }

    /// A command that begins a program of this host.
    pub(crate) fn enter(&self, host: usize) -> Command {
        self.hosts[host].enter()
    }

    /// Nothing reaches these hosts any more; what they say still reaches the others.
    pub(crate) fn deafen(&self, hosts: &[usize]) {
        self.at_ports(hosts, |host| format!("tc qdisc replace dev port{host} root pfifo limit 0"));
    }

    /// Everything reaches them again.
    pub(crate) fn restore(&self, hosts: &[usize]) {
        self.at_ports(hosts, |host| format!("tc qdisc del dev port{host} root"));
    }

    /// What reaches this host comes as slowly as over 10 Mbit/s.
    pub(crate) fn narrow(&self, host: usize) {
        self.at_ports(&[host], |host| format!("tc qdisc replace dev port{host} root {NARROW}"));
    }

    /// Pulls the cable of this host.
    pub(crate) fn unplug(&self, host: usize) {
        self.at_ports(&[host], |host| format!("ip link set port{host} down"));
    }

    fn at_ports(&self, hosts: &[usize], command: impl Fn(&usize) -> String) {
        let commands: Vec<String> = hosts.iter().map(command).collect();
        self.switch.run(&commands.join(" && ")).expect("the switch obeys");
    }
}

impl Namespace {
    /// A new network; of a user who may have none otherwise, within the rights that `within` has, or in rights of its own.
    fn new(within: Option<&Namespace>) -> Result<Namespace, String> {
        let mut command = match within {
            Some(other) if !is_root() => other.enter_as("--user"),
            _ => Command::new("env"),
        };
        command.args(["unshare", "--net"]);
        if within.is_none() && !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let said = |error: std::io::Error| format!("unshare: {error}");
        command.arg("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().map_err(said)?;
        let (stdin, stdout) = (shell.stdin.take().expect("a pipe"), shell.stdout.take().expect("a pipe"));
        let namespace = Namespace { shell, talk: Mutex::new((stdin, BufReader::new(stdout))) };
        namespace.run("true").map(|()| namespace)
    }

    fn enter(&self) -> Command {
        self.enter_as("--net")
    }

    fn enter_as(&self, kind: &str) -> Command {
        let mut command = Command::new("nsenter");
        let holder = self.shell.id();
        command.arg(format!("{kind}=/proc/{holder}/ns/{}", kind.trim_start_matches('-')));
        if !is_root() {
            command.arg("--preserve-credentials");
            if kind != "--user" {
                command.arg(format!("--user=/proc/{holder}/ns/user"));
            }
        }
        command
    }

    /// Runs this here, to its end.
    fn run(&self, command: &str) -> Result<(), String> {
        let mut talk = self.talk.lock().expect("no panic");
        let (stdin, stdout) = &mut *talk;
        let mut answer = String::new();
        let asked = stdin.write_all(format!("{{ {command}; }} >&2 && echo done || echo failed\n").as_bytes());
        let answered = asked.and_then(|()| stdout.read_line(&mut answer));
        match answered {
            Ok(_) if answer.trim() == "done" => Ok(()),
            Ok(_) => Err(format!("{command}: failed")),
            Err(error) => Err(format!("{command}: {error}")),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn build(count: usize) -> Result<Hosts, String> {
    let switch = Namespace::new(None)?;
    let hosts: Vec<Namespace> = (0..count).map(|_| Namespace::new(Some(&switch))).collect::<Result<_, _>>()?;
    switch.run("ip link add name switch type bridge && ip link set switch up")?;
    for (at, host) in hosts.iter().enumerate() {
        let holder = host.shell.id();
        switch.run(&format!(
            "ip link add name port{at} type veth peer name plug netns {holder} && ip link set port{at} master switch up"
        ))?;
        let address = address(at);
        host.run(&format!("ip link set lo up && ip address add {address}/24 dev plug && ip link set plug up"))?;
    }
    // What the tests need of the switch, before they rely on it.
    switch.run("tc qdisc replace dev port0 root pfifo limit 0 && tc qdisc del dev port0 root")?;
    switch.run(&format!("tc qdisc replace dev port0 root {NARROW} && tc qdisc del dev port0 root"))?;
    Ok(Hosts { switch, hosts })
}

fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 77, 0, host as u8 + 1).into()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A queue that lets through 10 Mbit/s.
const NARROW: &str = "tbf rate 10mbit burst 32kbit latency 50ms";
