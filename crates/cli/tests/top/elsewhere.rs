//! Ranks that are looked at from another PID namespace, as from a container that shares this host's network and not its processes. Making one
//! takes the rights of root; the test says so where they are missing.

use std::io::{self, Write};
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::{Value, json};

use super::collected::{dumped, errors};
use super::ranks::Ranks;
use super::scratch::Scratch;
use super::{LONG, all_work, ranks, until};

/// Runs this there, to its end.
fn there(arguments: &[&str]) -> io::Result<Output> {
    Command::new("unshare").args(["--pid", "--fork", "--mount-proc"]).args(arguments).output()
}

/// Whether there can be such a namespace.
fn is_allowed() -> bool {
    let why = match there(&["true"]) {
        Ok(output) if output.status.success() => return true,
        Ok(output) => errors(&output),
        Err(error) => error.to_string(),
    };
    let line = format!("skipped, because there can be no PID namespace here: {why}\n");
    io::stderr().write_all(line.as_bytes()).expect("stderr");
    false
}

#[test]
fn ranks_of_another_pid_namespace_are_told_apart() {
    if !is_allowed() {
        return;
    }
    let job = Ranks::start("elsewhere", 4);
    until("all work", &job.name, all_work);
    let phalanx = env!("CARGO_BIN_EXE_phalanx");
    let began = Instant::now();
    let seen: Value = loop {
        let output = there(&[phalanx, "top", "--json", "--interval", "0.1", "--job-id", &job.name]).expect("unshare");
        assert!(output.status.success(), "{}", errors(&output));
        let seen = serde_json::from_slice(&output.stdout).expect("JSON");
        if all_work(&seen) {
            break seen;
        }
        assert!(began.elapsed() < LONG, "{seen:#}");
    };
    for (rank, pid) in ranks(&seen).iter().zip(job.pids()) {
        let process = json!("in another PID namespace, its state unknown");
        assert_eq!((&rank["pid"], &rank["process"]), (&json!(pid), &process));
    }

    let scratch = Scratch::new("collect-elsewhere");
    let (into, pid) = (scratch.0.join("dumps"), job.pids()[2].to_string());
    let directory = into.to_str().expect("plain letters");
    let output = there(&[phalanx, "trace", "collect", "--output", directory, "--pid", &pid, "--timeout", "60"]);
    let output = output.expect("unshare");
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(dumped(&into), [0, 1, 2, 3].map(|rank| (rank, Some(4))));
}

/// The names of their sockets are of the network, which they share.
#[test]
fn jobs_called_alike_in_two_pid_namespaces_are_both_seen() {
    if !is_allowed() {
        return;
    }
    let scratch = Scratch::new("top-apart");
    let start =
        |which: &str| Ranks::start_apart("apart", &format!("file://{}?timeout=300", scratch.0.join(which).display()));
    let jobs = [start("one"), start("other")];
    until("both are seen", &jobs[0].name, |seen| ranks(seen).len() == 2);
}
