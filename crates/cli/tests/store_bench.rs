//! `phalanx store bench` in small: everybody gets in who belongs there, nobody else does, and nothing is left running.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the bench and takes what it prints as one JSON object a line.
fn bench(arguments: &[&str]) -> Vec<Value> {
    let mark = format!("PHALANX_TEST_MARK=bench-{}-{}", std::process::id(), fastrand::u64(..));
    let (name, value) = mark.split_once('=').expect("a variable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
    let output = command.args(["store", "bench", "--json"]).args(arguments).env(name, value).output().expect("it runs");
    assert!(output.status.success(), "{}", told(&output));
    assert!(marked(&mark).is_empty(), "still running: {:?}", marked(&mark));
    told(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// Processes with a variable in their environment.
fn marked(mark: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let is_marked = |environment: Vec<u8>| environment.split(|&byte| byte == 0).any(|entry| entry == mark.as_bytes());
    let marked = entries.filter(|entry| fs::read(entry.path().join("environ")).is_ok_and(is_marked));
    marked.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn all_clients_meet_in_clear_and_encrypted() {
    for (more, keyed) in [(&[][..], false), (&["--keyed"], true)] {
        let lines = bench(&[&["--clients", "300", "--repeats", "2"], more].concat());
        assert_eq!(lines.len(), 1);
        assert_eq!((&lines[0]["clients"], &lines[0]["repeats"]), (&300.into(), &2.into()));
        assert_eq!((&lines[0]["keyed"], &lines[0]["failures"]), (&keyed.into(), &Value::Object(Default::default())));
        assert!(lines[0]["joins_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{lines:?}");
        assert!(lines[0]["server_peak_bytes"].as_f64().is_some_and(|bytes| bytes > 1e6), "{lines:?}");
    }
}

#[test]
fn no_stranger_gets_in() {
    let lines = bench(&["--attack", "200"]);
    let [siege] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(siege["faults"], Value::Array(vec![]));
    assert!(siege["alone"]["calls"].as_u64().is_some_and(|calls| calls > 1000), "{siege}");
    let kinds = siege["kinds"].as_array().expect("kinds");
    let names: BTreeSet<&str> = kinds.iter().filter_map(|kind| kind["kind"].as_str()).collect();
    assert_eq!(names.len(), 8, "{names:?}");
    for kind in kinds {
        assert_eq!((&kind["tries"], &kind["refused"]), (&25.into(), &25.into()), "{kind}");
        assert_eq!((&kind["admitted"], &kind["disclosed_bytes"]), (&0.into(), &0.into()), "{kind}");
    }
    // Who has the key is told why it is not let in, unless it was pushed out by the others.
    let told = |name: &str| kinds.iter().find(|kind| kind["kind"] == name).map(|kind| kind["told"].as_u64());
    assert!(told("claimed rank").flatten().is_some_and(|told| told > 0), "{siege}");
    assert!(told("old epoch").flatten().is_some_and(|told| told > 0), "{siege}");
    assert_eq!(told("wrong key").flatten(), Some(0));
}

#[test]
fn what_cannot_be_measured_is_named() {
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        let output = command.args(["store", "bench"]).args(arguments).output().expect("it runs");
        assert!(!output.status.success());
        told(&output)
    };
    assert!(refused(&["--clients", "0"]).contains("--clients"));
    assert!(refused(&["--attack", "10", "--keyed"]).contains("--keyed"));
    let python = ["--clients", "1", "--repeats", "1", "--beside-pytorch", "no-such-interpreter"];
    assert!(refused(&python).contains("no-such-interpreter"));

    let limited = "ulimit -n 200 && exec \"$0\" store bench --clients 1000";
    let output = Command::new("sh").args(["-c", limited, env!("CARGO_BIN_EXE_phalanx")]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(told(&output).contains("--clients 1000 needs 1064 open files"), "{}", told(&output));
}
