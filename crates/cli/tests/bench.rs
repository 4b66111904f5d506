//! `phalanx bench` as real processes: what it prints, what it says when a rank dies, and that nothing is left running.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A run of the bench, whose processes can be told from all others.
struct Bench {
    command: Command,
    mark: String,
}

impl Bench {
    fn new(arguments: &[&str]) -> Bench {
        let mark = format!("PHALANX_TEST_MARK=bench-{}-{}", std::process::id(), fastrand::u64(..));
        let (name, value) = mark.split_once('=').expect("a variable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        command.arg("bench").args(arguments).env(name, value);
        Bench { command, mark }
    }

    /// Runs it to its end.
    fn run(mut self) -> Output {
        let output = self.command.output().expect("it runs");
        assert!(ranks(&self.mark).is_empty(), "still running");
        output
    }

    /// Runs it until it has printed a case, and goes on to measure others.
    fn begin(mut self) -> (Child, Vec<Pid>, String) {
        let mut child = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        assert!(line.starts_with('{'), "{line}");
        // Kept open: who writes to a closed pipe fails of that.
        child.stdout = Some(stdout.into_inner());
        (child, ranks(&self.mark), self.mark)
    }
}

/// The processes of ranks in a run.
fn ranks(mark: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let has = |bytes: Vec<u8>, word: &str| bytes.split(|&byte| byte == 0).any(|part| part == word.as_bytes());
    let is_rank = |path: PathBuf| {
        fs::read(path.join("environ")).is_ok_and(|environment| has(environment, mark))
            && fs::read(path.join("cmdline")).is_ok_and(|words| has(words, "__bench_rank"))
    };
    let found = entries.filter(|entry| is_rank(entry.path()));
    found.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn every_operation_is_measured_among_processes_and_threads() {
    for (transport, how) in [("shm", "3 ranks as processes"), ("threads", "3 ranks as threads")] {
        let arguments = ["--np", "3", "--sizes", "12,100K", "--time", "0.001", "--transport", transport];
        let output = Bench::new(&arguments).run();
        let table = text(&output.stdout);
        assert!(output.status.success(), "{table}{}", text(&output.stderr));
        assert!(table.starts_with(how) && table.ends_with("every result was right\n"), "{table}");
        let operations = "all_reduce reduce_scatter all_gather broadcast reduce all_to_all gather scatter send_recv";
        for operation in operations.split(' ') {
            assert_eq!(table.lines().filter(|line| line.split(' ').next() == Some(operation)).count(), 2, "{table}");
        }
        assert_eq!(table.lines().filter(|line| line.starts_with("barrier ")).count(), 1, "{table}");
    }
}

#[test]
fn links_and_an_algorithm_are_taken_to_the_ranks() {
    for algorithm in ["ring", "tree"] {
        let arguments = ["all_reduce", "--links", "--algorithm", algorithm, "--sizes", "64K", "--time", "0.001"];
        let output = Bench::new(&arguments).run();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).lines().next().is_some_and(|head| head.ends_with("over links")));
    }
}

#[test]
fn json_is_one_object_a_line_with_the_documented_keys() {
    let keys = "algbw_GBps buffers busbw_GBps bytes dtype iters min_us np op p50_us p99_us reduce transport wrong";
    for transport in ["shm", "threads"] {
        let cases = ["all_reduce,all_gather", "--sizes", "0,64", "--dtype", "bf16", "--op", "max"];
        let rest = ["--time", "0.001", "--json", "--transport", transport];
        let lines = lines(&Bench::new(&[&cases[..], &rest].concat()).run());
        assert_eq!(lines.len(), 4);
        for line in &lines {
            assert_eq!(
                line.as_object().expect("an object").keys().map(String::as_str).collect::<Vec<_>>().join(" "),
                keys
            );
            assert_eq!((&line["wrong"], &line["buffers"]), (&0.into(), &"ordinary".into()));
            assert_eq!((&line["transport"], &line["np"]), (&transport.into(), &2.into()));
            let times = ["min_us", "p50_us", "p99_us"].map(|key| line[key].as_f64().expect("a number"));
            assert!(0.0 < times[0] && times.is_sorted(), "{line}");
        }
        assert_eq!((&lines[1]["reduce"], &lines[3]["reduce"]), (&"max".into(), &Value::Null));
        assert_eq!((&lines[1]["bytes"], &lines[3]["bytes"]), (&64.into(), &64.into()));
    }
}

#[test]
fn a_rank_that_is_killed_is_named_and_the_others_are_ended() {
    let sizes = vec!["1M"; 100].join(",");
    let (child, ranks, mark) = Bench::new(&["all_reduce", "--np", "3", "--sizes", &sizes, "--json"]).begin();
    assert_eq!(ranks.len(), 3);
    kill_process(ranks[1], Signal::KILL).expect("it lives");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    let pid = ranks[1].as_raw_pid();
    assert!(told.contains("failed: killed by SIGKILL during all_reduce 1M"), "{told}");
    assert!(told.ends_with(&format!("(pid {pid}); 2 other ranks were stopped\n")), "{told}");
    assert!(self::ranks(&mark).is_empty());
}

#[test]
fn ranks_end_with_the_bench() {
    let sizes = vec!["1M"; 1000].join(",");
    let (mut child, ranks, mark) = Bench::new(&["broadcast", "--sizes", &sizes, "--json"]).begin();
    assert_eq!(ranks.len(), 2);
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !self::ranks(&mark).is_empty() {
        assert!(Instant::now() < deadline, "ranks live on");
        std::thread::yield_now();
    }
}

#[test]
fn a_picture_is_drawn_on_request() {
    let path = std::env::temp_dir().join(format!("phalanx-bench-{}-{}.svg", std::process::id(), fastrand::u64(..)));
    let picture = path.to_str().expect("a path of letters");
    let output = Bench::new(&["all_reduce,barrier", "--sizes", "8..1K", "--time", "0.001", "--plot", picture]).run();
    let svg = fs::read_to_string(&path).expect("a picture");
    fs::remove_file(&path).expect("a file");
    assert!(output.status.success() && svg.starts_with("<svg") && svg.contains(">all_reduce<"), "{svg}");
    assert_eq!(svg.matches("<circle").count(), 5, "{svg}");
    let refused = Bench::new(&["--plot", "/no/such/directory/x.svg"]).run();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--plot /no/such/directory/x.svg"), "{}", text(&refused.stderr));
}

#[test]
fn a_reader_that_has_enough_has_its_picture_all_the_same() {
    let path = std::env::temp_dir().join(format!("phalanx-bench-{}-{}.svg", std::process::id(), fastrand::u64(..)));
    let picture = path.to_str().expect("a path of letters");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut bench = Bench::new(&["all_reduce", "--sizes", "8,1K", "--time", "0.001", "--plot", picture]);
    bench.command.stdout(writer);
    let output = bench.run();
    let svg = fs::read_to_string(&path).expect("a picture");
    fs::remove_file(&path).expect("a file");
    assert!(output.status.success() && svg.starts_with("<svg"), "{svg}{}", text(&output.stderr));
}

/// More than any address space has, of which ranks are told as of any size.
#[test]
fn memory_that_is_not_there_is_told_with_the_size() {
    for transport in ["shm", "threads"] {
        let arguments = ["broadcast", "--sizes", "4000000000G", "--transport", transport];
        let output = Bench::new(&arguments).run();
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(told.contains(" failed during broadcast 4000000000G: ") && told.contains("out of memory"), "{told}");
        assert!(!told.contains("panicked"), "{told}");
    }
}

#[test]
fn the_usual_sizes_are_those_of_elements() {
    let arguments = ["broadcast", "--dtype", "complex128", "--time", "0.001", "--json"];
    let lines = lines(&Bench::new(&arguments).run());
    let sizes: Vec<u64> = lines.iter().filter_map(|line| line["bytes"].as_u64()).collect();
    assert_eq!(sizes, [16, 1 << 10, 64 << 10, 1 << 20, 16 << 20]);
}

#[test]
fn what_cannot_be_measured_is_named() {
    let refused = |arguments: &[&str], code: i32, named: &str| {
        let output = Bench::new(arguments).run();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(text(&output.stderr).contains(named), "{arguments:?}: {}", text(&output.stderr));
    };
    refused(&["--np", "65"], 2, "--np 65");
    refused(&["--transport", "pigeon"], 2, "'pigeon'");
    refused(&["--burst", "10000001"], 2, "--burst");
    refused(&["all_reduce", "--dtype", "f8e5m2"], 2, "sum is not defined for f8e5m2");
    refused(&["all_reduce", "--op", "premul_sum"], 2, "--op premul_sum with --dtype f32: ");
    refused(&["--tune", "--op", "bit_and"], 2, "--op bit_and with --dtype f32: ");
    refused(&["--tune", "--dtype", "f8e5m2"], 2, "sum is not defined for f8e5m2");
    let element = "--sizes has 3: must be 0, or at least the 4 bytes of an element of --dtype f32";
    refused(&["all_reduce", "--sizes", "8,3"], 2, element);
    // The inner step is for the bench alone.
    let alone = Command::new(env!("CARGO_BIN_EXE_phalanx")).arg("__bench_rank").stdin(Stdio::null()).output();
    assert_eq!(alone.expect("it runs").status.code(), Some(2));
}
