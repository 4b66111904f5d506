//! `phalanx train` as real processes: the same losses in every mode, and after any rank was killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A model so small that a step takes a millisecond.
const SMALL: [&str; 15] = [
    "--layers",
    "1",
    "--heads",
    "2",
    "--width",
    "16",
    "--context",
    "8",
    "--batch",
    "4",
    "--sample",
    "5",
    "--steps",
    "30",
    "--json",
];

/// Steps enough for a rank to be found and killed before the last.
const LONG: u64 = 600;

/// A directory that is removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let name = format!("phalanx-train-{}-{:016x}", std::process::id(), fastrand::u64(..));
        Place(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path of letters")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
    command.arg("train").args(SMALL).args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The loss of each step, of which no two may differ where a step was made twice.
fn losses(lines: &[Value]) -> BTreeMap<u64, f64> {
    let mut losses = BTreeMap::new();
    for line in lines.iter().filter(|line| line["step"].is_number()) {
        let (step, loss) = (line["step"].as_u64().expect("a step"), line["loss"].as_f64().expect("a loss"));
        let before: f64 = *losses.entry(step).or_insert(loss);
        assert_eq!(before.to_bits(), loss.to_bits(), "step {step}");
    }
    losses
}

fn train(arguments: &[&str]) -> Vec<Value> {
    lines(&command(arguments).output().expect("it runs"))
}

#[test]
fn every_mode_has_the_same_losses() {
    let alone = train(&["--mode", "single", "--batch", "16", "--steps", "12"]);
    let expected = losses(&alone);
    assert_eq!(expected.len(), 12);
    let ways: [&[&str]; 5] = [
        &["--np", "2", "--batch", "8"],
        &["--np", "4", "--recompute"],
        &["--np", "4", "--mode", "hsdp"],
        &["--np", "2", "--mode", "ddp", "--batch", "8"],
        &["--np", "2", "--accumulate", "2"],
    ];
    for way in ways {
        let lines = train(&[way, &["--steps", "12"]].concat());
        for (step, loss) in losses(&lines) {
            assert!(
                (loss - expected[&step]).abs() <= 1e-6 * loss,
                "{way:?}, step {step}: {loss}, not {}",
                expected[&step]
            );
        }
        let summary = &lines[lines.len() - 1];
        assert_eq!(summary["params"], alone[12]["params"]);
        assert_eq!(summary["sample"].as_str().map(|sample| sample.chars().count()), Some(5));
        let peaks = summary["peak_rss_bytes_by_rank"].as_array().expect("peaks");
        assert_eq!(Some(peaks.len() as u64), summary["ranks"].as_u64());
    }
}

#[test]
fn json_has_the_documented_keys() {
    let keys = |line: &Value| line.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ");
    let lines = train(&["--steps", "2", "--dtype", "bf16"]);
    assert_eq!(lines.len(), 3);
    assert_eq!(keys(&lines[0]), "comm_wait_ms loss memory_bytes step step_ms tokens_per_s");
    let summary =
        "params passing_bytes_per_rank peak_rss_bytes peak_rss_bytes_by_rank ranks sample state_bytes_per_rank";
    assert_eq!(keys(&lines[2]), summary);
    // Parameters, gradients and two moments of 4 bytes, by half of the ranks each, but for what cannot be halved.
    let (params, state) = (lines[2]["params"].as_u64().expect("a number"), lines[2]["state_bytes_per_rank"].as_u64());
    assert!(state.is_some_and(|state| (params * 8..params * 9).contains(&state)), "{state:?} for {params}");
}

#[test]
fn what_ranks_log_is_the_users_to_say() {
    let logged = |level: &str| {
        let mut command = command(&["--mode", "single", "--steps", "1"]);
        let output = command.env("PHALANX_LOG", level).output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let told = logged("info");
    assert!(told.contains("joined "), "{told}");
    assert_eq!(logged("error"), "");
}

/// The ranks of one training, told by a directory that their command line names. The launcher's line names it too, further on.
fn ranks(mark: &str) -> Vec<Pid> {
    let is_rank = |words: Vec<u8>| {
        let words: Vec<&[u8]> = words.split(|&byte| byte == 0).collect();
        words.get(1) == Some(&&b"__train_rank"[..]) && words.contains(&mark.as_bytes())
    };
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let found = entries.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(is_rank));
    found.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Lets a training come to a step, and kills a rank.
fn kill_at(child: &mut Child, mark: &str, step: u64, which: usize) -> Vec<Value> {
    let mut said = vec![];
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut is_killed = false;
    for line in stdout.lines() {
        let line: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        if !is_killed && line["step"].as_u64() >= Some(step) {
            let ranks = ranks(mark);
            // One that is gone already when the training ends cannot be killed.
            is_killed = ranks.get(which).is_some_and(|rank| kill_process(*rank, Signal::KILL).is_ok());
        }
        said.push(line);
    }
    said
}

/// Kills a rank at some moment and compares what it came to with a training that nobody disturbed.
fn disturb(expected: &BTreeMap<u64, f64>, expected_sample: &Value) {
    let place = Place::new();
    let (step, which) = (fastrand::u64(1..LONG / 2), fastrand::usize(..2));
    let saves = ["--steps", &LONG.to_string(), "--save", place.path(), "--save-every", "20"];
    let mut child = command(&saves).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let said = kill_at(&mut child, place.path(), step, which);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "killed at {step}: {}", text(&output.stderr));
    assert!(text(&output.stderr).contains("starting again"), "killed at {step}: {}", text(&output.stderr));
    assert_eq!(&losses(&said), expected, "killed at {step}");
    assert_eq!(&said[said.len() - 1]["sample"], expected_sample);
    assert!(ranks(place.path()).is_empty());
}

#[test]
fn a_rank_that_is_killed_changes_nothing() {
    let calm = train(&["--steps", &LONG.to_string()]);
    let (expected, sample) = (losses(&calm), &calm[calm.len() - 1]["sample"]);
    let campaign = std::env::var("PHALANX_TEST_CAMPAIGN").ok().and_then(|times| times.parse().ok());
    (0..campaign.unwrap_or(2)).for_each(|_| disturb(&expected, sample));
}

#[test]
fn signals_are_passed_on_and_the_training_ends_as_a_run_does() {
    let mut child =
        command(&["--steps", "1000000"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let (mut stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let (mut first, mut told) = ([0], BufReader::new(stderr).lines().map_while(Result::ok));
    stdout.read_exact(&mut first).expect("a step");
    for (signal, name) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        kill_process(Pid::from_child(&child), signal).expect("our own child");
        let expected = format!("phalanx: {name} was not passed on to ranks 0, 1: without a handler it would end there");
        assert_eq!(told.next(), Some(expected));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("our own child");
    io::copy(&mut stdout, &mut io::sink()).expect("an end");
    assert_eq!(child.wait().expect("our own child").code(), Some(143));
    assert!(told.any(|line| line.starts_with("phalanx: ended by SIGTERM: 2 ranks ")));
}

/// As of `| head -1`, or of a `tee` that is killed. More is printed than a pipe holds, so that not all is before the reader goes.
#[test]
fn a_training_goes_on_when_its_reader_goes_away() {
    let place = Place::new();
    let steps = ["--steps", "1500", "--save", place.path(), "--save-every", "500"];
    let mut child = command(&steps).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a step");
    assert!(line.contains("loss"), "{line}");
    let output = child.wait_with_output().expect("it ends");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    let is_told = |line: &str| line.starts_with("phalanx: standard output was closed at step ");
    assert!(told.lines().all(|line| is_told(line) && line.contains(" of 1500: ")), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(place.0.join("step-000000001500/index.json").is_file());
}

#[test]
fn a_training_goes_on_with_other_ranks() {
    let place = Place::new();
    let expected = losses(&train(&["--batch", "6", "--np", "2"]));
    let saves = ["--save", place.path(), "--save-every", "7"];
    let mut seen = losses(&train(&[&["--batch", "6", "--np", "2", "--steps", "10"], &saves[..]].concat()));
    let resumed: &[&str] = &["--batch", "3", "--np", "4", "--resume", place.path()];
    let rest = losses(&train(&[resumed, &saves[..]].concat()));
    assert_eq!(rest.keys().next(), Some(&11));
    seen.extend(rest);
    assert_eq!(seen.len(), expected.len());
    for (step, loss) in seen {
        assert!((loss - expected[&step]).abs() <= 1e-6 * loss, "step {step}: {loss}, not {}", expected[&step]);
    }
    let refused = command(&[resumed, &["--np", "3"]].concat()).output().expect("it runs");
    assert!(text(&refused.stderr).contains("was 12, is 9"), "{}", text(&refused.stderr));
    let other = command(&["--seed", "2", "--batch", "6", "--resume", place.path()]).output().expect("it runs");
    assert!(text(&other.stderr).contains("--seed was 1, is 2"), "{}", text(&other.stderr));
    // A model of which the checkpoint has every tensor, and which is another one all the same.
    let other = command(&["--heads", "4", "--batch", "6", "--resume", place.path()]).output().expect("it runs");
    assert!(text(&other.stderr).contains("--heads was 2, is 4"), "{}", text(&other.stderr));
}

#[test]
fn a_training_goes_on_from_the_step_that_is_named() {
    let place = Place::new();
    let expected = losses(&train(&["--save", place.path(), "--save-every", "10", "--steps", "20"]));
    let step = place.0.join("step-000000000010");
    let rest = losses(&train(&["--resume", step.to_str().expect("a path of letters"), "--steps", "20"]));
    let after: BTreeMap<u64, f64> = expected.range(11..).map(|(step, loss)| (*step, *loss)).collect();
    assert_eq!(rest, after);
}

#[test]
fn another_text_than_that_of_the_checkpoint_is_told_by_its_checksum() {
    let (place, other) = (Place::new(), Place::new());
    let save = ["--mode", "single", "--steps", "1", "--save", place.path()];
    train(&save);
    fs::write(&other.0, "another text, and a short one").expect("a file");
    let words = ["--mode", "single", "--resume", place.path(), "--text", other.path()];
    let refused = command(&words).output().expect("it runs");
    fs::remove_file(&other.0).expect("a file");
    let told = text(&refused.stderr);
    assert!(told.contains(": the checksum of --text was ") && !refused.status.success(), "{told}");
}

#[test]
fn a_checkpoint_that_is_damaged_is_passed_over_and_named() {
    let place = Place::new();
    train(&["--save", place.path(), "--save-every", "10", "--steps", "20"]);
    let index = place.0.join("step-000000000020/index.json");
    fs::write(&index, "{").expect("a file");
    let goes_on = command(&["--save", place.path(), "--resume", place.path()]).output().expect("it runs");
    let told = text(&goes_on.stderr);
    assert!(goes_on.status.success(), "{told}");
    let named = format!("phalanx: a checkpoint after step 10 is damaged: {}: ", index.display());
    assert_eq!(told.matches(&named).count(), 1, "{told}");
    assert_eq!(losses(&lines(&goes_on)).keys().next(), Some(&11));
}

#[test]
fn a_training_that_is_done_already_says_so() {
    let place = Place::new();
    train(&["--mode", "single", "--save", place.path()]);
    let again = command(&["--mode", "single", "--resume", place.path()]).output().expect("it runs");
    assert_eq!(lines(&again).len(), 1);
    assert_eq!(text(&again.stderr), format!("phalanx: --resume {}: step 30 of 30 was reached already\n", place.path()));
}

/// The most memory of a process that trains 50 million parameters with one row of text.
fn peak(mode: &[&str]) -> u64 {
    let sizes = ["--layers", "16", "--heads", "8", "--width", "512", "--context", "64", "--batch", "1", "--steps", "3"];
    let lines = train(&[&sizes[..], &["--sample", "0"], mode].concat());
    let summary = &lines[lines.len() - 1];
    let params = summary["params"].as_u64();
    assert!(params.is_some_and(|params| (50_000_000..51_000_000).contains(&params)), "{params:?}");
    summary["peak_rss_bytes"].as_u64().expect("a number")
}

#[test]
#[ignore = "a minute and 2 GB of memory: cargo test --workspace --test train -- --ignored two_thirds"]
fn each_of_two_ranks_takes_less_than_two_thirds_of_the_memory_of_one() {
    let (sharded, alone) = (peak(&["--mode", "fsdp", "--np", "2"]), peak(&["--mode", "single"]));
    assert!(sharded * 100 <= alone * 65, "{sharded} of {alone} bytes");
}

#[test]
fn what_cannot_be_trained_is_named() {
    let refused = |arguments: &[&str], code: i32, named: &str| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_phalanx")).arg("train").args(arguments).output().expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(named), "{arguments:?}: {}", text(&output.stderr));
    };
    refused(&["--mode", "single", "--np", "2"], 2, "--np 2");
    refused(&["--mode", "hsdp", "--np", "3"], 2, "--np 3");
    refused(&["--width", "10"], 2, "width is 10: must be a multiple of heads, which is 4");
    refused(&["--rate", "2"], 2, "'2'");
    refused(&["--steps", "0"], 2, "'0'");
    refused(&["--dtype", "f64"], 2, "'f64'");
    refused(&["--save-every", "3"], 2, "--save");
    refused(&["--text", "/no/such/text"], 1, "--text /no/such/text");
    refused(&["--resume", "/no/such/place"], 1, "--resume /no/such/place");
    refused(&["--save", "/proc/x"], 1, "phalanx: --save /proc/x: cannot be written: ");
    refused(&["--plot", "/no/such/place/x.svg"], 1, "--plot /no/such/place/x.svg");
    // The inner step is for the command alone.
    let alone = Command::new(env!("CARGO_BIN_EXE_phalanx")).arg("__train_rank").output().expect("it runs");
    assert!(!alone.status.success());
}

#[test]
fn a_picture_is_drawn_and_a_table_shown() {
    let picture = Place::new();
    let arguments = [&SMALL[..SMALL.len() - 1], &["--plot", picture.path()]].concat();
    let output = Command::new(env!("CARGO_BIN_EXE_phalanx")).arg("train").args(arguments).output().expect("it runs");
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert_eq!(table.lines().filter(|line| line.starts_with("step ")).count(), 11, "{table}");
    assert!(table.contains("most memory of each process: rank 0 ") && table.contains(", rank 1 "), "{table}");
    let svg = fs::read_to_string(&picture.0).expect("a picture");
    fs::remove_file(&picture.0).expect("a file");
    assert!(svg.contains("<polyline"), "{svg}");
}
