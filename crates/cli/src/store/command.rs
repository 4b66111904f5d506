//! The commands on stores and their flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{ask, bench, mint, serve, watch};
use crate::failure::Failure;
use crate::seconds::seconds_above_zero;

/// Serve a store, or look into one
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Options),
    MintKey(mint::Options),
    /// Print the value under a key, byte for byte, once there is one
    Get(Get),
    /// Store a value under a key
    Set(Set),
    /// List the keys of all values, one a line
    Keys(Keys),
    Watch(watch::Options),
    Bench(bench::Options),
}

#[derive(Args, Debug)]
#[command(after_help = ASKING)]
struct Get {
    #[command(flatten)]
    target: Target,
    /// The key
    key: String,
}

#[derive(Args, Debug)]
#[command(after_help = ASKING)]
struct Set {
    #[command(flatten)]
    target: Target,
    /// The key
    key: String,
    /// The value, or `-` for what standard input holds
    #[arg(allow_negative_numbers = true)]
    value: String,
}

#[derive(Args, Debug)]
#[command(after_help = ASKING)]
struct Keys {
    #[command(flatten)]
    target: Target,
    /// Only keys that begin so
    #[arg(default_value = "")]
    prefix: String,
}

/// Which store is asked, and as whom.
#[derive(Args, Debug)]
pub(crate) struct Target {
    /// host:port, [v6]:port or unix:/path
    pub(crate) address: String,

    /// File with the job key; without it the key is looked for in PHALANX_KEY_FD, PHALANX_KEY_FILE and PHALANX_KEY
    #[arg(long, value_name = "PATH")]
    pub(crate) key_file: Option<PathBuf>,

    /// Go to another machine without a key
    #[arg(long)]
    pub(crate) insecure: bool,

    /// How long to wait for the store, and for a value
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds_above_zero)]
    pub(crate) timeout: Duration,

    /// The job that the store serves
    #[arg(long, value_name = "ID", default_value = "default")]
    pub(crate) job_id: String,

    /// The epoch that the store serves
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) epoch: u32,
}

/// Does what was asked for.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.command {
        Command::Serve(options) => serve::run(options),
        Command::MintKey(options) => mint::run(options),
        Command::Get(get) => ask::get(&get.target, &get.key),
        Command::Set(set) => ask::set(&set.target, &set.key, &set.value),
        Command::Keys(keys) => ask::keys(&keys.target, &keys.prefix),
        Command::Watch(options) => watch::run(options),
        Command::Bench(options) => bench::run(options),
    }
}

const EXAMPLES: &str = "\
Exit codes:
  0  it was done
  1  the store cannot be served or reached, or did not answer in time
  2  the command line could not be understood

Examples:
  phalanx store serve --bind 127.0.0.1:29500                              for this machine, also for PyTorch's TCPStore
  phalanx store mint-key job.key                                          a job key, for those who may read the file
  phalanx store serve --bind 10.0.0.1:29400 --key-file job.key            for other machines that have the key
  phalanx store set 10.0.0.1:29400 --key-file job.key lr 0.001            a value
  phalanx store watch 10.0.0.1:29400 --key-file job.key lr                and what becomes of it";

const ASKING: &str = "\
Examples:
  phalanx store keys 127.0.0.1:29500                                      what is there
  phalanx store get 127.0.0.1:29500 lr --timeout 60                       a value, waited for
  phalanx store set 127.0.0.1:29500 notes - < notes.txt                   a value from a file";
