//! The flags of `phalanx run`, torchrun's spellings among them, and what they may be together.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use phalanx_comm::secure::JobName;
use phalanx_comm::store::StoreAddress;

use super::process::cores;
use super::stores::unspecified;
use crate::failure::Failure;
use crate::seconds::{seconds, seconds_above_zero};

/// Start the ranks of a world, watch over them, and tell in one verdict what went wrong
///
/// Every rank is a process of its own with the variables that torchrun sets and ours (PHALANX_STORE, PHALANX_KEY_FD,
/// PHALANX_JOB, PHALANX_EPOCH, PHALANX_ERROR_FILE), reads from an empty standard input, and has each line of its output
/// prefixed with its rank. When one fails, the others are stopped, and whatever any of them started is ended with them.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Options {
    /// Ranks on this node, or `auto` for one on each usable core
    #[arg(long, value_name = "N", default_value = "1", alias = "nproc_per_node")]
    nproc_per_node: Ranks,

    /// One node that needs no address; so it is without any of the three that follow, too; those beside it are passed over
    #[arg(long)]
    standalone: bool,

    /// Number of nodes, on each of which this command is given
    #[arg(long, value_name = "N", default_value = "1")]
    nnodes: Nodes,

    /// Which of the nodes this is, from 0; each of several has to say
    #[arg(long, value_name = "R", alias = "node_rank")]
    node_rank: Option<usize>,

    /// Where node 0 serves the job's store, as host:port
    #[arg(long, value_name = "HOST:PORT", alias = "rdzv_endpoint")]
    rdzv_endpoint: Option<String>,

    #[arg(long, hide = true, alias = "master_addr", conflicts_with = "rdzv_endpoint")]
    master_addr: Option<String>,

    #[arg(long, hide = true, alias = "master_port", conflicts_with = "rdzv_endpoint")]
    master_port: Option<u16>,

    /// Accepted for torchrun's sake: there is one way to meet
    #[arg(long, hide = true, alias = "rdzv_backend", value_parser = ["c10d", "static"])]
    rdzv_backend: Option<String>,

    /// Start the whole world again after a failure, at most this often; the same on all nodes. Without a node that is gone it does
    /// not start again
    #[arg(long, value_name = "K", default_value_t = 0, alias = "max_restarts")]
    pub(super) max_restarts: u32,

    /// How long ranks may take to end when they are asked to, before they are killed
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds, aliases = ["shutdown-timeout", "shutdown_timeout"])]
    pub(super) grace: Duration,

    /// How long ranks and nodes may take to come together
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds_above_zero, alias = "join_timeout")]
    pub(super) join_timeout: Duration,

    /// Write each rank's output to DIR/EPOCH/RANK/stdout.log and stderr.log instead of the terminal; files of these names are
    /// overwritten, and what an earlier run that started again more often has left stays
    #[arg(long, value_name = "DIR", alias = "log_dir")]
    pub(super) log_dir: Option<PathBuf>,

    /// With --log-dir, write to the terminal as well
    #[arg(long, requires = "log_dir")]
    pub(super) tee: bool,

    /// Keep each rank on its own share of the usable cores
    #[arg(long)]
    pub(super) pin: bool,

    /// Name of the job: letters, digits, dots, dashes and underscores, the same on all nodes
    #[arg(long, value_name = "ID", aliases = ["rdzv-id", "rdzv_id"], value_parser = job_id)]
    job_id: Option<String>,

    /// File with the job key, readable by its owner only, as `phalanx store mint-key` writes it
    #[arg(long, value_name = "PATH", alias = "key_file")]
    pub(super) key_file: Option<PathBuf>,

    /// Let several nodes meet without a job key: whoever reaches the port can read and change everything
    #[arg(long)]
    pub(super) insecure: bool,

    /// Run the program as a Python module, as `python3 -m` does
    #[arg(short, long)]
    pub(super) module: bool,

    /// Start the program as it is, even if its name ends in .py
    #[arg(long, alias = "no_python", conflicts_with = "module")]
    pub(super) no_python: bool,

    /// The program and its arguments; one whose name ends in .py is started with `python3 -u`
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(super) program: Vec<OsString>,
}

impl Options {
    /// Refuses what makes no sense together, before anything is started.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let Nodes(nodes) = self.nnodes;
        let refuse = |why: String| Err(Failure::Usage(why));
        if let Some(number) = self.program.first().filter(|program| self.tee && is_number(program)) {
            let number = number.display();
            let tee = "--tee is for both outputs of all ranks: unlike torchrun's it takes no number";
            return refuse(format!("{tee}, so {number} would be the program; one of that name is ./{number}"));
        }
        if self.standalone && nodes > 1 {
            return refuse(format!("--standalone is one node, --nnodes says {nodes}"));
        }
        if let Some((flag, value)) = self.place().filter(|_| self.standalone) {
            // As torchrun has it.
            log::warn!("--standalone chooses its own address: {flag} {value} is passed over");
        }
        if self.node() >= nodes {
            return refuse(format!("--node-rank is {}, must be below --nnodes, which is {nodes}", self.node()));
        }
        if nodes == 1 {
            return Ok(());
        }
        let Some(endpoint) = self.endpoint() else {
            return refuse(format!("--nnodes is {nodes}: the nodes need --rdzv-endpoint HOST:PORT to meet at"));
        };
        if self.node_rank.is_none() {
            let last = nodes - 1;
            return refuse(format!("--nnodes is {nodes}: each node needs a --node-rank of its own, from 0 to {last}"));
        }
        if self.node() > 0 && is_everywhere(&endpoint) {
            let why = "stands for every address of node 0, must be one of them on the other nodes";
            return refuse(format!("--rdzv-endpoint is {endpoint}, which {why}: --node-rank is {}", self.node()));
        }
        Ok(())
    }

    /// How many ranks this node starts.
    pub(super) fn local_ranks(&self) -> usize {
        match self.nproc_per_node {
            Ranks::Number(number) => number,
            Ranks::Auto => cores::usable().len().max(1),
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.nnodes.0
    }

    pub(super) fn node(&self) -> usize {
        self.node_rank.unwrap_or_default()
    }

    /// Where nodes meet; several have to say, and one may.
    pub(super) fn endpoint(&self) -> Option<String> {
        if self.standalone {
            return None;
        }
        let port = self.master_port.unwrap_or(MASTER_PORT);
        let from_master = || self.master_addr.as_ref().map(|host| format!("{}:{port}", bracketed(host)));
        self.rdzv_endpoint.clone().or_else(from_master)
    }

    /// The first flag that says where nodes meet, and what it says.
    fn place(&self) -> Option<(&'static str, String)> {
        let port = self.master_port.map(|port| port.to_string());
        let flags = [
            ("--rdzv-endpoint", self.rdzv_endpoint.clone()),
            ("--master-addr", self.master_addr.clone()),
            ("--master-port", port),
        ];
        flags.into_iter().find_map(|(flag, value)| Some((flag, value?)))
    }

    /// The job's name; one node that was given none takes the process that the user started, which no other job of the host shares.
    pub(super) fn job(&self, guard: i32) -> String {
        let unnamed = || match self.nodes() {
            1 => format!("run-{guard}"),
            _ => JobName::default().to_string(),
        };
        self.job_id.clone().unwrap_or_else(unnamed)
    }
}

/// A number of ranks, or as many as there are cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    Number(usize),
    Auto,
}

impl FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Ranks, String> {
        match text {
            "auto" | "cpu" => Ok(Ranks::Auto),
            _ => count(text).map(Ranks::Number),
        }
    }
}

/// A number of nodes. torchrun's ranges are accepted where both ends agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nodes(usize);

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Nodes, String> {
        match text.split_once(':') {
            Some((least, most)) if least != most => Err("worlds that grow and shrink are not supported".to_owned()),
            Some((least, _)) => count(least).map(Nodes),
            None => count(text).map(Nodes),
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {MOST}"))
}

/// What a job may be called, as the handshake has it.
fn job_id(text: &str) -> Result<String, String> {
    let refused = |_| "must be 1 to 64 letters, digits, dots, dashes, underscores".to_owned();
    JobName::new(text).map(|_| text.to_owned()).map_err(refused)
}

/// Whether it is what torchrun's `--tee` takes, as in `3` or `0:1,1:3`.
fn is_number(program: &OsStr) -> bool {
    let bytes = program.as_encoded_bytes();
    !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_digit() || b":,".contains(byte))
}

/// Whether it is the address that stands for all of a machine's.
fn is_everywhere(endpoint: &str) -> bool {
    matches!(endpoint.parse::<StoreAddress>(), Ok(StoreAddress::Tcp { host, .. }) if unspecified(&host).is_some())
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

const MOST: usize = 4096;
/// As torchrun has it.
const MASTER_PORT: u16 = 29500;

const AFTER: &str = "\
Signals: SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the ranks and begin the time of --grace; another one, if it
comes a second later or more, kills at once. SIGUSR1 and SIGUSR2 are passed on to ranks that take them, not to what those have started; they would end the others.

Exit codes:
  0    every rank ended with exit code 0
  1    a rank failed, or the job could not be started; the verdict on standard error says which and why
  2    the command line could not be understood
  129, 130, 131, 143   ended by SIGHUP, SIGINT, SIGQUIT, SIGTERM

Examples:
  phalanx run --nproc-per-node 4 ./train --epochs 3               four ranks on this machine
  phalanx run --nproc-per-node auto train.py                      a Python script on every core
  phalanx run --nproc-per-node 2 --log-dir logs --tee ./train     output to files and to the terminal
  phalanx run --nnodes 2 --node-rank 0 --rdzv-endpoint node0:29400 --key-file job.key --nproc-per-node 8 ./train";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(line: &str) -> Options {
        Line::try_parse_from(["run"].into_iter().chain(line.split(' '))).unwrap().options
    }

    fn refused(line: &str) -> String {
        let Ok(line) = Line::try_parse_from(["run"].into_iter().chain(line.split(' '))) else {
            return "parser".to_owned();
        };
        match line.options.check() {
            Err(Failure::Usage(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn spellings_of_torchrun_are_understood() {
        let options = parsed(
            "--nproc_per_node=3 --nnodes=2:2 --node_rank=1 --rdzv_endpoint=a:1 --rdzv_id=j --max_restarts=2 --log_dir=l \
             --rdzv-backend=c10d -m train --nnodes",
        );
        assert!(options.check().is_ok());
        assert_eq!((options.local_ranks(), options.nodes(), options.node()), (3, 2, 1));
        assert_eq!((options.endpoint().as_deref(), options.job(7).as_str()), (Some("a:1"), "j"));
        assert_eq!(options.program, ["train", "--nnodes"]);
        assert_eq!(parsed("--nnodes 2 --master_addr ::1 a").endpoint().as_deref(), Some("[::1]:29500"));
    }

    #[test]
    fn a_job_without_a_name_has_that_of_the_process_the_user_knows() {
        assert_eq!((parsed("p").job(7), parsed("--job-id j p").job(7)), ("run-7".to_owned(), "j".to_owned()));
        assert_eq!(parsed("--nnodes 2 p").job(7), JobName::default().to_string());
    }

    #[test]
    fn what_follows_the_program_is_its_own() {
        assert_eq!(parsed("--tee --log-dir l prog --tee -x -- y").program, ["prog", "--tee", "-x", "--", "y"]);
        assert_eq!(parsed("-- prog --help").program, ["prog", "--help"]);
        assert_eq!(parsed("--nproc-per-node auto prog").local_ranks(), cores::usable().len());
    }

    #[test]
    fn a_number_of_torchruns_is_no_program() {
        for number in ["3", "0:1,1:3"] {
            let why = refused(&format!("--log-dir l --tee {number} train.py"));
            assert!(why.starts_with("--tee is for both ") && why.ends_with(&format!(" is ./{number}")), "{why}");
        }
        for program in ["--log-dir l --tee ./3", "--log-dir l --tee train.py 3", "3"] {
            assert!(parsed(program).check().is_ok(), "{program}");
        }
    }

    #[test]
    fn each_of_several_nodes_has_to_say_which_it_is() {
        let both = "--nnodes 2 --rdzv-endpoint node0:29400";
        let expected = "--nnodes is 2: each node needs a --node-rank of its own, from 0 to 1";
        assert_eq!(refused(&format!("{both} p")), expected);
        assert_eq!(refused("--nnodes 2 --master-addr node0 p"), expected);
        assert!(parsed(&format!("{both} --node-rank 0 p")).check().is_ok());
        assert!(parsed("--nnodes 1 --rdzv-endpoint node0:29400 p").check().is_ok());
    }

    #[test]
    fn only_the_first_node_may_meet_the_others_at_all_of_its_addresses() {
        for endpoint in ["0.0.0.0:29400", "[::]:29400"] {
            let line = |node: usize| format!("--nnodes 2 --node-rank {node} --rdzv-endpoint {endpoint} p");
            assert!(parsed(&line(0)).check().is_ok());
            let why = refused(&line(1));
            assert!(why.starts_with(&format!("--rdzv-endpoint is {endpoint}, which ")), "{why}");
            assert!(why.ends_with("--node-rank is 1"), "{why}");
        }
        assert!(refused("--nnodes 2 --node-rank 1 --master-addr :: p").contains("[::]:29500"));
    }

    #[test]
    fn an_address_beside_standalone_is_passed_over() {
        for address in ["--rdzv-endpoint localhost:0", "--master-addr a", "--master-port 1"] {
            let options = parsed(&format!("--standalone {address} p"));
            assert!(options.check().is_ok());
            assert_eq!((options.endpoint(), options.place().is_some()), (None, true), "{address}");
        }
        assert!(parsed("--standalone --rdzv-backend c10d --nnodes 1 p").check().is_ok());
        // One node that says no more than a port takes any, as ever.
        assert_eq!(parsed("--master-port 1 p").endpoint(), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        assert!(refused("--nnodes 2 prog").contains("--rdzv-endpoint"));
        assert!(refused("--node-rank 1 prog").contains("--node-rank is 1"));
        assert!(refused("--standalone --nnodes 2 prog").contains("--standalone"));
        for line in [
            "--join-timeout 0 p",
            "--nproc-per-node 0 p",
            "--nnodes 1:2 p",
            "--grace -1 p",
            "--job-id a/b p",
            "--tee p",
            "--rdzv-endpoint a:1 --master-port 2 p",
            "--pin",
            "--foo p",
            "-n 4 p",
        ] {
            assert_eq!(refused(line), "parser", "{line}");
        }
    }
}
