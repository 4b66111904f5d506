//! One program, unchanged, becomes a world however it is started: by our launcher, by PyTorch's, by `mpirun`, by hand.

#[path = "built/example.rs"]
mod built;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use built::example;

/// Four ranks, each of which says who it is: `rank 2 of 4 ...`.
const SIZE: usize = 4;

#[test]
fn phalanx_run_makes_a_world() {
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_phalanx"));
    launcher.args(["run", "--standalone", "--nproc-per-node", "4", "--"]).arg(example("hello_world"));
    assert_a_world(&launcher.output().expect("phalanx runs"), "phalanx run");
}

#[test]
fn two_launchers_make_a_world_of_two_nodes() {
    let directory = Directory::new("two-nodes");
    let key = directory.0.join("key");
    let mint = phalanx(&["store", "mint-key"]).arg(&key).output().expect("phalanx runs");
    assert!(mint.status.success(), "{}", text(&mint.stderr));

    let endpoint = format!("127.0.0.1:{}", free_port());
    let launchers: Vec<_> = (0..2)
        .map(|node| {
            phalanx(&["run", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", &endpoint])
                .args(["--node-rank", &node.to_string(), "--key-file"])
                .arg(&key)
                .arg("--")
                .arg(example("hello_world"))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("phalanx runs")
        })
        .collect();
    assert_a_world(&together(launchers), "phalanx run");
}

#[test]
fn plain_variables_make_a_world() {
    let port = free_port().to_string();
    let ranks = (0..SIZE)
        .map(|rank| {
            clean(Command::new(example("hello_world")))
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", SIZE.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", &port)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the program runs")
        })
        .collect();
    assert_a_world(&together(ranks), "RANK and WORLD_SIZE");
}

#[test]
#[ignore = "needs Open MPI: interop/run"]
fn mpirun_makes_a_world() {
    let mut mpirun = clean(Command::new("mpirun"));
    mpirun.args(["--oversubscribe", "--allow-run-as-root", "-np", "4"]).arg(example("hello_world"));
    assert_a_world(&mpirun.output().expect("mpirun runs"), "Open MPI");
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn torchrun_makes_a_world() {
    let python = std::env::var("PHALANX_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut torchrun = clean(Command::new(python));
    torchrun
        .args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "--no-python"])
        .arg(example("hello_world"));
    assert_a_world(&torchrun.output().expect("torchrun runs"), "torchrun");
}

/// Only the agent whose rank has failed counts that as a restart.
#[test]
#[ignore = "needs PyTorch: interop/run"]
fn ranks_of_two_torchruns_meet_again_after_one_has_failed() {
    let directory = Directory::new("restart");
    let python = std::env::var("PHALANX_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let endpoint = format!("127.0.0.1:{}", free_port());
    let agents = (0..2)
        .map(|_| {
            clean(Command::new(&python))
                .args(["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "2"])
                .args(["--rdzv-backend", "c10d", "--rdzv-id", "again", "--rdzv-endpoint", &endpoint, "--no-python"])
                .args(["sh", "-c", r#"[ $RANK != 3 ] || ! mkdir "$1" 2>/dev/null || exit 3; exec "$0""#])
                .arg(example("hello_world"))
                .arg(directory.0.join("failed"))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("torchrun runs")
        })
        .collect();
    let all = together(agents);
    assert_a_world(&all, "torchrun");
    assert!(directory.0.join("failed").is_dir(), "rank 3 did not fail");
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn a_pytorch_script_runs_unchanged_under_phalanx_run() {
    let directory = Directory::new("script");
    let script = directory.0.join("train.py");
    std::fs::write(&script, SCRIPT).expect("a file");
    let python = std::env::var("PHALANX_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let output = phalanx(&["run", "--standalone", "--nproc-per-node", "4", "--"])
        .arg(python)
        .arg(&script)
        .output()
        .expect("phalanx runs");
    assert_a_world(&output, "gloo");
}

/// What all of these said, which end well.
fn together(children: Vec<Child>) -> Output {
    let outputs: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    let mut all = Output { status: outputs[0].status, stdout: Vec::new(), stderr: Vec::new() };
    for output in outputs {
        assert!(output.status.success(), "{}", text(&output.stderr));
        all.stdout.extend(output.stdout);
        all.stderr.extend(output.stderr);
    }
    all
}

/// Every rank said once who it is, and by whom it was recognised.
fn assert_a_world(output: &Output, recognised: &str) {
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{said}\n{errors}", output.status);
    let greeting = |line: &str| line.find("rank ").map(|at| line[at..].to_owned());
    let greetings: Vec<String> = said.lines().filter_map(greeting).collect();
    let expected: BTreeSet<String> = (0..SIZE).map(|rank| format!("rank {rank} of {SIZE}")).collect();
    let heard = greetings.iter().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(expected, heard, "{said}\n{errors}");
    assert_eq!(greetings.len(), SIZE, "each rank speaks once: {said}");
    assert!(greetings.iter().all(|line| line.contains(recognised)), "{said}");
}

fn phalanx(arguments: &[&str]) -> Command {
    let mut command = clean(Command::new(env!("CARGO_BIN_EXE_phalanx")));
    command.args(arguments);
    command
}

/// Without any launcher's variables that these tests themselves may run under.
fn clean(mut command: Command) -> Command {
    let foreign = ["PHALANX_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_"];
    for (name, _) in std::env::vars() {
        if foreign.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A port that was free a moment ago. Ranks that are started by hand have to be told one.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory of this test alone, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("phalanx-launchers-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SCRIPT: &str = "\
import torch, torch.distributed as dist
dist.init_process_group('gloo')
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
assert total.item() == 10.0, total
print(f'rank {dist.get_rank()} of {dist.get_world_size()} by gloo', flush=True)
dist.destroy_process_group()
";
