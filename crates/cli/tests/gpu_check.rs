//! `phalanx gpu-check` where there is no card, or none of the libraries that it needs: it says so, and what it tried.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;

fn gpu_check(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_phalanx")).arg("gpu-check").args(arguments).output().expect("the program")
}

/// Whether this machine has a card, by the driver's own device.
fn has_card() -> bool {
    std::path::Path::new("/dev/nvidiactl").exists()
}

#[test]
fn without_a_card_it_says_what_was_tried_and_that_nothing_was_tested() {
    if has_card() {
        return;
    }
    let output = gpu_check(&["--json"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("one object");
    let libraries = told["libraries"].as_array().expect("a list");
    let names: Vec<&str> = libraries.iter().filter_map(|library| library["name"].as_str()).collect();
    assert_eq!(names, ["CUDA driver", "NCCL", "NVRTC"]);
    let why = libraries[0]["why"].as_str().expect("no driver");
    assert!(why.contains("cannot be used; tried libcuda.so.1: "), "{why}");
    assert_eq!((told["cards"].as_array().map(Vec::len), told["worlds"].as_array().map(Vec::len)), (Some(0), Some(0)));
    let not_tested = told["not_tested"][0].as_str().expect("a reason");
    assert!(not_tested.starts_with("every trial: there is no CUDA driver"), "{not_tested}");
}

#[test]
fn a_path_that_was_given_is_the_only_one_that_is_tried() {
    let output = gpu_check(&["--nccl", "/nowhere/of/this/name"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let row = text.lines().find(|line| line.starts_with("NCCL ")).expect("a row");
    assert!(row.starts_with("NCCL          none: NCCL: cannot be used; tried /nowhere/of/this/name: "), "{row}");
    assert_eq!(row.matches(';').count(), 1, "{row}");
    assert!(text.contains("\nnot tested\n  every trial: there is no "), "{text}");
}

#[test]
fn the_object_goes_into_a_file_beside_the_table() {
    let place = std::env::temp_dir().join(format!("phalanx-gpu-check-{}.json", std::process::id()));
    // A card of this number is nowhere.
    let output = gpu_check(&["--device", "99", "--output", place.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let written = std::fs::read(&place).expect("a file");
    std::fs::remove_file(&place).expect("removed");
    let told: Value = serde_json::from_slice(&written).expect("one object");
    let printed = gpu_check(&["--device", "99", "--json"]).stdout;
    assert_eq!(told, serde_json::from_slice::<Value>(&printed).expect("one object"));
    let text = String::from_utf8_lossy(&output.stdout);
    let reason = told["not_tested"][0].as_str().expect("a reason");
    assert!(text.starts_with("CUDA driver ") && text.ends_with(&format!("\nnot tested\n  {reason}\n")), "{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_told_first() {
    let output = gpu_check(&["--device", "99", "--output", "/nowhere/of/this/name/check.json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("--output /nowhere/of/this/name/check.json: No such file"), "{words}");
}

#[test]
fn a_rank_without_a_driver_ends_with_words() {
    if has_card() {
        return;
    }
    let words = ["--rank", "0", "--size", "1", "--store", "store", "--device", "0", "--timeout", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_phalanx")).arg("__gpu_rank").args(words).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the CUDA driver: cannot be used"));
}

#[test]
fn a_signal_while_ranks_run_leaves_nothing_of_them() {
    // A harness in the background has SIGINT ignored, and so would what it starts: what has a handler here has its default there.
    register_conditional_default(SIGINT, Arc::new(AtomicBool::new(true))).expect("a handler");
    for (signal, code) in [(Signal::INT, 128 + SIGINT), (Signal::TERM, 128 + SIGTERM)] {
        let place = Place::with_a_driver_that_halts_ranks();
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        command
            .args(["gpu-check", "--nccl", "/nowhere/of/this/name", "--timeout", "1000"])
            .env("LD_LIBRARY_PATH", &place.0);
        let temporary = place.0.join("temporary");
        fs::create_dir(&temporary).expect("a directory");
        command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let mut told = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        for _rank in 0..2 {
            told.read_line(&mut line).expect("a line");
        }
        assert_eq!(line, "halted\nhalted\n");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).expect("our own child");
        // It ends once no rank has it open any more.
        let mut rest = String::new();
        told.read_to_string(&mut rest).expect("text");
        assert_eq!(child.wait().expect("our own child").code(), Some(code), "{rest}");
        let left: Vec<_> = fs::read_dir(&temporary).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A directory of a test's own below the target directory, which goes with it.
struct Place(PathBuf);

impl Place {
    /// With a driver whose cards are memory of the host: the one that the loader is tested with, but that whoever loads a kernel,
    /// which ranks alone do, says so and goes no further.
    fn with_a_driver_that_halts_ranks() -> Place {
        let place = Place(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gpu-check-{}", process::id())));
        fs::create_dir_all(&place.0).expect("a directory");
        let source = place.0.join("driver.c");
        let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nccl/tests/stub/cuda.c");
        let halting = "#include <unistd.h>\nint cuModuleLoadData(void **module, const void *image) {
            (void)module, (void)image, (void)!write(2, \"halted\\n\", 7);
            for (;;) pause();\n}\n";
        let text = format!("#define cuModuleLoadData loaded\n#include {stub:?}\n#undef cuModuleLoadData\n{halting}");
        fs::write(&source, text).expect("a file");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-shared", "-fPIC", "-pthread", "-o"]).arg(place.0.join("libcuda.so.1")).arg(&source);
        let built = cc.output().expect("a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
