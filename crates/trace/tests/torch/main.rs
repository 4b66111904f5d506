//! PyTorch's analyser on our dumps, and ours on PyTorch's. Needs a Python with PyTorch, named by `PHALANX_TEST_PYTHON` (else
//! `python3`), so these tests are run on demand: `interop/run` installs what they need.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use phalanx_comm::Threads;
use phalanx_core::{Group, GroupOptions, ReduceOp, Result};
use phalanx_trace::torch::Messages;
use phalanx_trace::{Dump, Finding, Identity, analyse, files};

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn pytorch_finds_nothing_where_all_ranks_agree() {
    let told = told_by_pytorch("agree", |group| {
        every_operation(group)?;
        let mut data = [0.0_f32; 3];
        match group.rank() {
            0 => group.send(&data, 2, 1),
            2 => group.recv(&mut data, 0, 1).map(|_| ()),
            _ => Ok(()),
        }?;
        group.barrier()
    });
    for word in ["Not all ranks", "has errors", "mismatch", "cannot decide"] {
        assert!(!told.contains(word), "{told}");
    }
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn pytorch_finds_the_rank_that_never_came() {
    let told = told_by_pytorch("absent", |group| {
        every_operation(group)?;
        if group.rank() != 1 { group.all_reduce(&mut [1.0_f32; 5], ReduceOp::Sum) } else { Ok(()) }
    });
    assert!(told.contains("Not all ranks joining collective, sequence number: 8"), "{told}");
    assert!(told.contains("missing ranks: {1}"), "{told}");
    assert!(told.contains("main.rs:"), "no call site: {told}");
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn pytorch_finds_the_rank_that_called_something_else() {
    let told = told_by_pytorch("divergent", |group| {
        every_operation(group)?;
        let mut data = [1.0_f32; 5];
        if group.rank() == 2 { group.broadcast(&mut data, 0) } else { group.all_reduce(&mut data, ReduceOp::Sum) }
    });
    assert!(told.contains("Collective sequence number: 8 has errors"), "{told}");
    // It takes the rank whose file it happens to read first for the one that is right.
    for word in ["COLLECTIVE_TYPE_MISMATCH", "'broadcast'", "'all_reduce'"] {
        assert!(told.contains(word), "{told}");
    }
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn we_find_nothing_where_gloo_agrees() {
    let report = analyse(&gloo("agree"));
    assert_eq!(report.findings, []);
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn we_find_the_rank_that_never_came_in_gloo() {
    let report = analyse(&gloo("absent"));
    let Some(Finding::Absent { rank: 1, kind, waiting, .. }) = report.findings.first() else { panic!("{report}") };
    assert_eq!((kind.as_deref(), waiting.len()), (Some("all_reduce"), 1));
    assert!(report.findings[0].to_string().contains("agent.py:"), "{report}");
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn we_find_the_rank_that_called_something_else_in_gloo() {
    let report = analyse(&gloo("divergent"));
    let Some(Finding::Divergence { field: "elements", sides, .. }) = report.findings.first() else {
        panic!("{report}")
    };
    assert_eq!(sides.iter().map(|side| &*side.value).collect::<Vec<_>>(), ["3", "4"]);
}

/// One of each, so that all shapes are compared.
fn every_operation(group: &Group) -> Result<()> {
    let (one, mut all) = ([1.0_f32; 4], [1.0_f32; 12]);
    let mut part = [0.0_f32; 4];
    group.all_reduce(&mut part, ReduceOp::Sum)?;
    group.broadcast(&mut part, 2)?;
    group.reduce(&mut part, ReduceOp::Max, 1)?;
    group.all_gather(&one, &mut all)?;
    group.reduce_scatter(&all, &mut part, ReduceOp::Sum)?;
    group.all_to_all(&all.clone(), &mut all)?;
    group.barrier()
}

/// What PyTorch's analyser says of three ranks that do this, whatever comes of it.
fn told_by_pytorch(name: &str, play: impl Fn(&Group) -> Result<()> + Sync) -> String {
    let directory = scratch(name);
    let options = GroupOptions::default().timeout(Duration::from_millis(500));
    // Who drops its group leaves, which would end the wait of the others early.
    let end = Barrier::new(3);
    let dumps = Threads::new(3).options(options).run(|group| {
        let _ = play(&group);
        end.wait();
        let identity = Identity { rank: group.rank(), world_size: 3, host_name: "host".to_owned(), pid: 7 };
        let mut dump = Dump::new(identity, SystemTime::now());
        dump.add(&group, group.members().to_vec(), "all", None);
        dump
    });
    let dumps = dumps.expect("three threads");
    let messages = Messages::of(&dumps);
    assert_eq!(messages, Messages::Keep);
    for dump in &dumps {
        files::write_torch(&directory, dump, messages).expect("written");
    }
    let analyser = ["-m", "torch.distributed.flight_recorder.fr_trace", "-p", "trace_"];
    let output = Command::new(python()).args(analyser).arg(&directory).output().expect("Python");
    assert!(output.status.success(), "{output:?}");
    let told = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    fs::remove_dir_all(directory).expect("there");
    told
}

/// The dumps of two ranks of Gloo.
fn gloo(scenario: &str) -> Vec<Dump> {
    let directory = scratch(&format!("gloo-{scenario}"));
    let ranks: Vec<Rank> = (0..2).map(|rank| Rank::start(rank, &directory, scenario)).collect();
    ranks.iter().for_each(Rank::wait);
    drop(ranks);
    let dumps = files::read_directory(&directory).expect("Gloo's dumps").dumps;
    fs::remove_dir_all(directory).expect("there");
    dumps
}

/// A process that has dumped, and stays until it is dropped.
struct Rank {
    child: Child,
    said: mpsc::Receiver<String>,
    orders: Option<ChildStdin>,
}

impl Rank {
    fn start(rank: usize, directory: &Path, scenario: &str) -> Rank {
        let mut child = Command::new(python())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/torch/agent.py"))
            .args([&rank.to_string(), "2"])
            .arg(directory)
            .arg(scenario)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python");
        let (tell, said) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        thread::spawn(move || lines.map_while(std::result::Result::ok).try_for_each(|line| tell.send(line)));
        let orders = child.stdin.take();
        Rank { child, said, orders }
    }

    fn wait(&self) {
        assert_eq!(self.said.recv_timeout(PATIENCE).as_deref(), Ok("dumped"));
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("torch-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).expect("a directory");
    path
}

fn python() -> String {
    std::env::var("PHALANX_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// How long Python may take to start and dump.
const PATIENCE: Duration = Duration::from_secs(300);
