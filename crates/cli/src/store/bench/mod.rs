//! `phalanx store bench`: ten thousand clients at once, and strangers by the hundred thousand.

mod attack;
mod handover;
mod join;
mod line;
mod server;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::open_files;

/// Measure a store server before many clients at once, or before strangers who try to get in
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// How many clients join, meet in one barrier, and leave
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: u32,

    /// How often, each time with a fresh server; medians are told
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    /// Do the same with PyTorch's server, run by this Python interpreter, in turns with ours
    #[arg(long, value_name = "PYTHON")]
    beside_pytorch: Option<PathBuf>,

    /// Prove a job key and speak encrypted, instead of in PyTorch's words
    #[arg(long)]
    keyed: bool,

    /// Instead, let strangers try this often to get in, and measure what a member of the job notices of it
    ///
    /// They come without a key, with another one, with a recorded handshake, with a rank that is taken or an epoch that is
    /// over, with any bytes, with impossible lengths, and a byte at a time. Their process runs only where
    /// nobody else wants to, because strangers elsewhere would not take processors from those who are measured.
    #[arg(long, value_name = "N", conflicts_with_all = ["clients", "repeats", "beside_pytorch", "keyed"],
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    attack: Option<u32>,

    /// Be the strangers before this server
    #[arg(long, value_name = "ADDRESS", hide = true, requires = "attack", requires = "key_file")]
    attacker: Option<SocketAddr>,

    /// The job key, from which the strangers know what a real member says
    #[arg(long, value_name = "FILE", hide = true, requires = "attacker")]
    key_file: Option<PathBuf>,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Measures what the options ask for and prints it.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    open_files::raise();
    match (options.attack, options.attacker, &options.key_file) {
        (Some(tries), Some(address), Some(key)) => attack::strangers(tries, address, key),
        (Some(tries), ..) => attack::run(tries, options.json),
        _ => join::run(options),
    }
}

/// Turns an error of the system into one that says what was tried.
fn system<E: Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Stopped(format!("{what}: {error}"))
}

/// Shown on a terminal only, and gone at the end.
fn progress_bar(len: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}

const EXAMPLES: &str = "\
Examples:
  phalanx store bench                                    10,000 clients in PyTorch's words, three times
  phalanx store bench --beside-pytorch python3           the same, and the same before PyTorch's server
  phalanx store bench --keyed --clients 1000 --json      encrypted, for another program to read
  phalanx store bench --attack 100000                    100,000 tries to get in without belonging there";
