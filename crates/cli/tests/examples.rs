//! The examples of the front do what they say.

#[path = "built/example.rs"]
mod built;

use std::path::PathBuf;
use std::process::{Command, Output};

use built::example;

/// What an example says as four ranks under the launcher, in order.
fn said(name: &str) -> Vec<String> {
    let phalanx = env!("CARGO_BIN_EXE_phalanx");
    let run =
        Command::new(phalanx).args(["run", "--standalone", "--nproc-per-node", "4", "--"]).arg(example(name)).output();
    lines(name, &run.expect("phalanx runs"))
}

/// The sorted lines of a program that ended well, from where they tell of ranks.
fn lines(name: &str, output: &Output) -> Vec<String> {
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{errors}", output.status);
    // The launcher puts the rank before each line.
    let mut lines: Vec<String> =
        out.lines().map(|line| line.split_once("] ").map_or(line, |(_, said)| said).to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn all_reduce_averages() {
    assert_eq!(said("all_reduce"), (0..4).map(|rank| format!("rank {rank} of 4: 1.5")).collect::<Vec<_>>());
}

#[test]
fn subgroups_are_of_the_right_ranks() {
    let said = said("subgroups");
    for line in [
        "rank 1: along replica are ranks [1, 3], together 4",
        "rank 2: along shard are ranks [2, 3], together 5",
        "rank 3 is rank 3 of 4 on its host",
        "rank 3 is rank 0 of the odd ones",
    ] {
        assert!(said.iter().any(|known| known == line), "{line}: {said:?}");
    }
}

#[test]
fn overlap_gives_all_ranks_the_same() {
    let said = said("overlap");
    let sums: Vec<_> = said.iter().filter_map(|line| line.split([':', ';']).nth(1)).collect();
    assert!(sums.len() == 4 && sums.iter().all(|sum| *sum == sums[0]), "{said:?}");
}

#[test]
fn objects_come_whole() {
    assert_eq!(
        said("objects"),
        ["Settings { learning_rate: 0.0003, layers: [128, 64] }: {0: 0.0, 1: 0.0003, 2: 0.0006, 3: 0.00090000004}"]
    );
}

#[test]
fn a_pipeline_passes_every_batch_through_all_stages() {
    assert_eq!(
        said("pipeline"),
        ["batch 0 ends as 15", "batch 1 ends as 31", "batch 2 ends as 47", "batch 3 ends as 63"]
    );
}

/// The ranks leave a trace, in which the analysis finds who died.
#[test]
fn survivors_go_on_and_leave_a_trace() {
    let directory = Removed(std::env::temp_dir().join(format!("phalanx-survivors-{}", std::process::id())));
    let run = Command::new(example("survivors")).env("PHALANX_TRACE_DIR", &directory.0).output();
    let said = lines("survivors", &run.expect("it runs"));
    for rank in 0..3 {
        let done = format!("rank {rank} of 3 is done");
        assert!(said.contains(&done), "{said:?}");
    }
    let told = said.iter().filter(|line| line.contains("rank 2 is dead: its process ended"));
    assert_eq!(told.count(), 3, "{said:?}");
    let analysed = Command::new(env!("CARGO_BIN_EXE_phalanx")).args(["trace", "analyze"]).arg(&directory.0).output();
    let found = lines("trace analyze", &analysed.expect("phalanx runs"));
    assert!(found.iter().any(|line| line.contains("rank 2 is dead")), "{found:?}");
}

/// A directory that is removed at the end.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
