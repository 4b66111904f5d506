//! `phalanx trace` as a user meets it: dumps of groups that really ran, what is found in them, and files that are no dumps.

#[path = "built/scratch.rs"]
mod scratch;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

use phalanx_comm::Threads;
use phalanx_core::{GroupOptions, ReduceOp};
use phalanx_trace::{Dump, Identity, files};
use scratch::Scratch;
use serde_json::Value;

fn trace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_phalanx")).arg("trace").args(arguments).output().expect("the binary")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.code().is_some_and(|code| code == 0 || code == 3), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The dumps of three ranks, of which the last leaves the second operation out.
fn hang(into: &Path) {
    let options = GroupOptions::default().name("pipeline");
    // Who drops its group leaves, which would end the wait of the others early. Before, it lets those that go on do so together.
    let line = Barrier::new(3);
    let ranks = Threads::new(3).options(options).run(|group| {
        let mut data = [1.0_f32; 4];
        group.all_reduce(&mut data, ReduceOp::Sum).expect("all come");
        line.wait();
        let brief = group.within(Duration::from_millis(300));
        let verdict = (group.rank() < 2).then(|| brief.barrier().expect_err("rank 2 does not come").to_string());
        drop(brief);
        let identity = Identity { rank: group.rank(), world_size: 3, host_name: "host".to_owned(), pid: 7 };
        let mut dump = Dump::new(identity, SystemTime::now());
        dump.add(&group, group.members().to_vec(), "stages", verdict);
        files::write(into, &dump).expect("a writable directory");
        line.wait();
    });
    ranks.expect("three threads");
}

#[test]
fn a_rank_that_never_came_is_found_and_drawn() {
    let scratch = Scratch::new("trace-hang");
    let dumps = scratch.0.join("dumps");
    hang(&dumps);
    let dumps = dumps.to_str().expect("plain letters");

    let told = stdout(&trace(&["analyze", dumps]));
    let first = told.lines().nth(1).expect("a finding");
    assert!(first.starts_with("- pipeline (stages): rank 2 never called barrier 1; "), "{told}");
    assert!(first.contains("trace.rs:") && first.contains("its last was all_reduce 0"), "{told}");

    let json: Value = serde_json::from_str(&stdout(&trace(&["analyze", dumps, "--json"]))).expect("JSON");
    assert_eq!(json["findings"][0]["finding"], "absent");
    assert_eq!(json["findings"][0]["culprits"], serde_json::json!([2]));
    assert_eq!(trace(&["analyze", dumps]).status.code(), Some(0));
    assert_eq!(trace(&["analyze", dumps, "--check"]).status.code(), Some(3));

    let (page, events) = (scratch.0.join("page.html"), scratch.0.join("events.json"));
    stdout(&trace(&["html", dumps, "-o", page.to_str().expect("plain letters")]));
    let page = fs::read_to_string(page).expect("written");
    assert!(page.starts_with("<!doctype html>") && page.contains("rank 2 never called barrier 1"));
    stdout(&trace(&["perfetto", dumps, "-o", events.to_str().expect("plain letters")]));
    let events: Value = serde_json::from_slice(&fs::read(events).expect("written")).expect("JSON");
    let events = events["traceEvents"].as_array().expect("events").iter();
    let names: Vec<&str> =
        events.filter(|event| event["ph"] == "X").filter_map(|event| event["name"].as_str()).collect();
    assert_eq!(names, ["all_reduce 0", "barrier 1", "all_reduce 0", "barrier 1", "all_reduce 0"]);
}

#[test]
fn a_reader_that_has_enough_does_not_make_a_hang_well() {
    let scratch = Scratch::new("trace-unread");
    let dumps = scratch.0.join("dumps");
    hang(&dumps);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
    command.args(["trace", "analyze", "--check"]).arg(&dumps).stdout(writer);
    assert_eq!(command.status().expect("the binary").code(), Some(3));
}

#[test]
fn what_is_converted_says_the_same() {
    let scratch = Scratch::new("trace-convert");
    let [dumps, pickles] = ["dumps", "pickles"].map(|name| scratch.0.join(name));
    hang(&dumps);
    let [dumps, pickles] = [&dumps, &pickles].map(|path| path.to_str().expect("plain letters"));
    let written = stdout(&trace(&["convert", dumps, "--torch", pickles]));
    assert_eq!(written.lines().count(), 3);
    let told = |directory| stdout(&trace(&["analyze", directory]));
    assert_eq!(told(dumps), told(pickles));
}

#[test]
fn dumps_are_not_converted_into_a_directory_that_has_some() {
    let scratch = Scratch::new("trace-convert-beside");
    let dumps = scratch.0.join("dumps");
    hang(&dumps);
    let path = dumps.to_str().expect("plain letters");
    let told = stdout(&trace(&["analyze", path]));
    let refused = trace(&["convert", path, "--torch", path]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let why = String::from_utf8_lossy(&refused.stderr).replace(path, "DIR");
    let told_why = "phalanx: --torch DIR: there are dumps already, which must not be mixed: name another directory, as in \
                    --torch dumps-2\n";
    assert!(why.starts_with(told_why), "{why}");
    assert_eq!(stdout(&trace(&["analyze", path])), told);
}

#[test]
fn what_is_no_dump_is_named() {
    let scratch = Scratch::new("trace-broken");
    let refused = |contents: &[(&str, &[u8])]| {
        let directory =
            Scratch::new(&format!("trace-broken-{}", contents.iter().map(|(name, _)| *name).collect::<String>()));
        contents.iter().for_each(|(name, bytes)| fs::write(directory.0.join(name), bytes).expect("written"));
        let output = trace(&["analyze", directory.path()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        told.replace(directory.path(), "DIR")
    };
    assert_eq!(
        refused(&[]),
        "phalanx: DIR: no dumps; they are files whose names end in the rank, as in trace_0 or trace_0.json\n"
    );
    assert_eq!(refused(&[("notes.txt", b"x")]), refused(&[]));
    assert_eq!(refused(&[("trace_0", b"")]), "phalanx: DIR/trace_0: is empty\n");
    assert_eq!(
        refused(&[("trace_0", b"ELF")]),
        "phalanx: DIR/trace_0: begins with byte 0x45: neither a pickle (0x80) nor JSON ('{')\n"
    );
    assert_eq!(
        refused(&[("trace_1", b"\x80\x02cposix\nsystem\n")]),
        "phalanx: DIR/trace_1: byte 2: opcode GLOBAL asks for more than plain data, and is refused\n"
    );
    assert_eq!(
        refused(&[("trace_2", b"\x80\x02}X\x04\x00\x00\x00ent")]),
        "phalanx: DIR/trace_2: byte 11: the pickle ends here, before it is whole\n"
    );
    assert_eq!(
        refused(&[("trace_0.json", b"{\"format\": 1,\n}")]),
        "phalanx: DIR/trace_0.json: line 2, column 1: trailing comma\n"
    );
    let gone = trace(&["analyze", &format!("{}/gone", scratch.path())]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("/gone: No such file"), "{gone:?}");
}

/// Rank 2 has written a dump in the start before, which had three ranks, and none in this one.
#[test]
fn dumps_of_an_earlier_start_are_passed_over() {
    let scratch = Scratch::new("trace-earlier");
    let dump = |rank, world_size, met_ns| {
        let identity = Identity { rank, world_size, host_name: "host".to_owned(), pid: 7 };
        let mut dump = Dump::new(identity, SystemTime::UNIX_EPOCH);
        dump.met_ns = met_ns;
        files::write(&scratch.0, &dump).expect("written");
    };
    for (rank, world_size, met_ns) in [(0, 2, 60), (1, 2, 60), (2, 3, 40)] {
        dump(rank, world_size, Some(met_ns));
    }
    let output = trace(&["analyze", scratch.path()]);
    assert!(stdout(&output).starts_with("2 dumps of a world of 2\n"), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).replace(scratch.path(), "DIR");
    assert_eq!(told, "phalanx: DIR: passed over 1 dump of an earlier start of the job, or of an earlier world\n");
    // Where nothing says of which start a dump is, it is taken along.
    dump(2, 3, None);
    let output = trace(&["analyze", scratch.path()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn dumps_of_two_jobs_are_not_mixed() {
    let scratch = Scratch::new("trace-mixed");
    let dump = |rank, world_size| {
        let identity = Identity { rank, world_size, host_name: "host".to_owned(), pid: 7 };
        Dump::new(identity, SystemTime::UNIX_EPOCH)
    };
    let refused = || {
        let output = trace(&["analyze", scratch.path()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    files::write(&scratch.0, &dump(0, 2)).expect("written");
    let other = files::write(&scratch.0, &dump(1, 3)).expect("written");
    assert!(refused().contains("trace_1.json of one of 3: one directory holds the dumps of one job"), "{}", refused());
    fs::remove_file(other).expect("there");
    fs::copy(scratch.0.join("trace_0.json"), scratch.0.join("again_0.json")).expect("copied");
    assert!(refused().contains("are both of rank 0"), "{}", refused());
}
