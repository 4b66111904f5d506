//! The command line as a user meets it: its flags are a promise, its errors say what to do, its exit codes are documented.

use std::process::{Command, Output};

fn phalanx(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_phalanx")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The long flags in a help text, sorted.
fn flags(help: &str) -> Vec<String> {
    let options = help.split("Examples:").next().unwrap_or_default();
    let words = options.split(|letter: char| letter.is_whitespace() || ",;".contains(letter));
    let mut flags: Vec<String> = words.filter(|word| word.starts_with("--")).map(str::to_owned).collect();
    flags.sort();
    flags.dedup();
    flags
}

/// A flag that is renamed or lost breaks somebody's script: change this list on purpose only, and say so in CHANGELOG.md.
#[test]
fn flags_are_the_frozen_list() {
    let bench = [
        "--algorithm",
        "--burst",
        "--cost",
        "--dtype",
        "--gate",
        "--help",
        "--hosts",
        "--json",
        "--links",
        "--np",
        "--op",
        "--plot",
        "--shared-buffers",
        "--sizes",
        "--time",
        "--transport",
        "--tune",
    ];
    let simulate = ["--first-seed", "--help", "--json", "--mutate", "--seed", "--seeds"];
    let run = [
        "--grace",
        "--help",
        "--insecure",
        "--job-id",
        "--join-timeout",
        "--key-file",
        "--log-dir",
        "--max-restarts",
        "--module",
        "--nnodes",
        "--no-python",
        "--node-rank",
        "--nproc-per-node",
        "--pin",
        "--rdzv-endpoint",
        "--standalone",
        "--tee",
    ];
    let train = [
        "--accumulate",
        "--batch",
        "--context",
        "--dtype",
        "--heads",
        "--help",
        "--json",
        "--layers",
        "--max-restarts",
        "--mode",
        "--np",
        "--plot",
        "--preset",
        "--rate",
        "--recompute",
        "--resume",
        "--sample",
        "--save",
        "--save-every",
        "--seed",
        "--steps",
        "--text",
        "--width",
    ];
    let ask = ["--epoch", "--help", "--insecure", "--job-id", "--key-file", "--timeout"];
    let watch = [&ask[..3], &["--interval"], &ask[3..]].concat();
    let serve = [
        "--bind",
        "--epoch",
        "--help",
        "--insecure",
        "--job-id",
        "--key-file",
        "--max-client",
        "--max-total",
        "--max-value",
    ];
    let store_bench = ["--attack", "--beside-pytorch", "--clients", "--help", "--json", "--keyed", "--repeats"];
    let collect = ["--epoch", "--help", "--insecure", "--job-id", "--key-file", "--output", "--pid", "--timeout"];
    let frozen = [
        ("bench", &bench[..]),
        ("train", &train),
        ("simulate", &simulate),
        ("run", &run),
        ("doctor", &["--help", "--json", "--no-bandwidth"]),
        ("gpu-check", &["--device", "--help", "--json", "--nccl", "--output", "--python", "--timeout"]),
        ("completions", &["--help"]),
        ("store", &["--help"]),
        ("store serve", &serve),
        ("store mint-key", &["--help"]),
        ("store get", &ask),
        ("store set", &ask),
        ("store keys", &ask),
        ("store watch", &watch),
        ("store bench", &store_bench),
        ("top", &["--help", "--interval", "--job-id", "--json", "--once"]),
        ("trace", &["--help"]),
        ("trace collect", &collect),
        ("trace analyze", &["--check", "--help", "--json"]),
        ("trace html", &["--help", "--output"]),
        ("trace perfetto", &["--help", "--output"]),
        ("trace convert", &["--help", "--torch"]),
    ];
    for (command, expected) in frozen {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = phalanx(&words);
        assert!(help.status.success());
        assert_eq!(flags(&stdout(&help)), expected, "{command}");
        assert!(stdout(&help).contains("Examples:"), "{command} --help has no examples");
    }
}

#[test]
fn bad_arguments_are_named_and_exit_with_2() {
    let cases: [(&[&str], &str); 23] = [
        (&["bench", "all_reduse"], "'all_reduse'"),
        (&["bench", "--sizes", "9..1"], "9..1"),
        (&["bench", "--dtype", "f31"], "'f31'"),
        (&["bench", "--np", "0"], "1..=1024"),
        (&["bench", "--algorithm", "rung"], "'rung'"),
        (&["run", "--nproc-per-node", "0", "prog"], "'0'"),
        (&["run", "--nnodes", "2", "prog"], "--rdzv-endpoint"),
        (&["run", "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:29400", "prog"], "a --node-rank of its own"),
        (&["run", "--join-timeout", "0", "prog"], "'0' for '--join-timeout <SECONDS>': must be"),
        (&["store", "get", "127.0.0.1:1", "k", "--timeout", "0"], "'0' for '--timeout <SECONDS>'"),
        (&["trace", "collect", "--timeout", "0"], "'0' for '--timeout <SECONDS>'"),
        (&["run"], "<PROGRAM>"),
        (&["bench", "--time", "-1"], "a number of seconds from 0.001 to 3600"),
        (&["bench", "--dtype", "bf16", "--op", "bit_and"], "--op bit_and with --dtype bf16: "),
        (&["train", "--sample", "-1"], "-1 is not in 0..=10000"),
        (&["simulate", "--seeds", "0"], "'0' for '--seeds <N>': must be a whole number, at least 1"),
        (&["simulate", "--seed", "abc"], "'abc' for '--seed <SEED>': must be a whole number"),
        (&["simulate", "--first-seed", "-1"], "'-1' for '--first-seed <SEED>': must be a whole number"),
        (&["simulate", "--seed", "5", "--mutate", "all"], "name it instead of 'all'"),
        (
            &["run", "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "a:99999", "--insecure", "p"],
            "--rdzv-endpoint: ",
        ),
        (&["top", "--once", "--interval", "0"], "a number of seconds from 0.1 to 3600"),
        (&["top", "--once", "--interval", "x"], "'x'"),
        (&["top"], "use --once or --json"),
    ];
    for (arguments, named) in cases {
        let refused = phalanx(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&refused).contains(named), "{arguments:?}: {}", stderr(&refused));
    }
}

#[test]
fn a_short_simulation_finds_no_violation_and_every_planted_bug_is_found() {
    let played = phalanx(&["simulate", "--seeds", "100"]);
    assert!(played.status.success(), "{}", stdout(&played));
    assert!(stdout(&played).contains("violations                0"), "{}", stdout(&played));

    let hunted = phalanx(&["simulate", "--mutate", "all", "--json"]);
    assert!(hunted.status.success(), "{}", stdout(&hunted));
    let found: Vec<serde_json::Value> =
        stdout(&hunted).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(found.len() >= 8);
    assert!(found.iter().all(|line| line["found"]["seed"].is_number()));
}

#[test]
fn one_of_something_is_counted_as_one() {
    let played = stdout(&phalanx(&["simulate", "--seeds", "1"]));
    assert!(played.starts_with("1 seed in ") && !played.contains(" 1 seeds"), "{played}");
}

#[test]
fn one_seed_tells_the_same_story_twice() {
    let [once, twice] = [(); 2].map(|()| stdout(&phalanx(&["simulate", "--seed", "7"])));
    assert_eq!(once, twice);
    assert!(once.contains("seed 7"), "{once}");
    let told: serde_json::Value =
        serde_json::from_str(&stdout(&phalanx(&["simulate", "--seed", "7", "--json"]))).unwrap();
    assert_eq!((&told["seed"], &told["violation"]), (&serde_json::json!(7), &serde_json::Value::Null));
    assert!(told["endings"].as_array().is_some_and(|endings| !endings.is_empty()), "{told}");
}

#[test]
fn completions_know_the_commands_and_hide_the_inner_ones() {
    for shell in ["bash", "zsh", "fish"] {
        let completions = phalanx(&["completions", shell]);
        assert!(completions.status.success());
        let script = stdout(&completions);
        assert!(script.contains("nproc-per-node") && script.contains("simulate"), "{shell}");
    }
    let help = stdout(&phalanx(&["--help"]));
    assert!(help.contains("run") && !help.contains("__"), "{help}");
}

/// Who reads no more is told by the exit code what was found: also that something was, which comes after the first line that nobody reads.
#[test]
fn a_reader_that_has_enough_changes_no_exit_code() {
    let bench = ["bench", "all_reduce", "--np", "2", "--sizes", "8", "--time", "0.01"];
    // One seed has no place for most of the planted bugs, so that they are missed.
    let missed = ["simulate", "--seeds", "1", "--mutate", "all"];
    let commands: [(&[&str], Option<i32>); 4] = [
        (&bench, Some(0)),
        (&["simulate", "--seeds", "10"], Some(0)),
        (&missed, Some(1)),
        // What it finds is the machine's.
        (&["doctor", "--no-bandwidth"], None),
    ];
    for (arguments, code) in commands {
        let read = phalanx(arguments);
        assert!(!read.stdout.is_empty(), "{arguments:?}: {}", stderr(&read));
        assert_eq!(read.status.code(), code.or(read.status.code()), "{arguments:?}: {}", stderr(&read));
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        let unread = command.args(arguments).stdout(writer).output().expect("this program");
        assert_eq!((unread.status.code(), stderr(&unread).as_str()), (read.status.code(), ""), "{arguments:?}");
    }
}
