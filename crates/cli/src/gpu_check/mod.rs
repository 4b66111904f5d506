//! `phalanx gpu-check`: which of NVIDIA's libraries are found, and whether groups over them do what they must on this machine's cards.
//!
//! The list of trials is the one that the simulator goes through in the tests. Every rank is a process of its own, so that whatever the
//! libraries do to it, the rest is told.

mod find;
mod interrupts;
mod rank;
mod report;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::failure::Failure;
use crate::seconds::seconds_above_zero;
use interrupts::Interrupts;
pub(crate) use rank::{Role, rank};
use report::Report;
use world::World;

/// Find NVIDIA's libraries and cards, and try what groups over NCCL need of them
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Options {
    #[command(flatten)]
    places: Places,

    /// The card that all is tried on, by its number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    device: usize,

    /// How long an operation may take, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds_above_zero, default_value = "20")]
    timeout: Duration,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Write that object into this file too, after each world
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Where libraries are looked for besides the usual places.
#[derive(Args, Clone, Debug)]
pub(crate) struct Places {
    /// NCCL: this file, or the one in this directory, and no other
    #[arg(long, value_name = "PATH")]
    nccl: Option<PathBuf>,

    /// Look in the packages of this Python too: its prefix, or its site-packages
    #[arg(long, value_name = "DIRECTORY")]
    python: Option<PathBuf>,
}

/// Looks for everything, tries what can be tried, and tells all of it.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let interrupts = Interrupts::listen()?;
    let found = find::look(&options.places);
    let mut report = Report::begin(&found, options.json, options.output.as_deref())?;
    let has_card = found.cards.len() > options.device;
    let worlds = if has_card { World::all(found.version(), found.cards.len(), options.device) } else { vec![] };
    for world in worlds {
        let trials = world.run(options, &interrupts)?;
        report.add(&world, trials)?;
    }
    report.end()?;
    if report.is_empty() {
        return Err(Failure::Code(NOTHING_TRIED));
    }
    if report.has_failed() { Err(Failure::Found) } else { Ok(()) }
}

/// What ends the program where there was nothing to try.
const NOTHING_TRIED: u8 = 2;

const AFTER: &str = "\
Examples:
  phalanx gpu-check                            all that one card, and several, can show
  phalanx gpu-check --python ~/venv            with the NCCL of a virtual environment
  phalanx gpu-check --nccl nccl/lib            with this NCCL
  phalanx gpu-check --json | jq .not_tested    for another program to read
  phalanx gpu-check --output check.json        for both

The trials run in worlds of one rank on the card, of two on the same card, and of one on each card
where there are several; and, without NCCL, of two on the same card that lend each other memory.
What stands in front of each:
  passed   every rank did what it must
  skipped  it could not be tried; why stands behind it
  failed   some rank did not; which, and why, stands behind it

The object of --json and --output has the keys libraries, cards, worlds and not_tested. The exit code is
0 when all that was tried went well, 1 when something failed, and 2 when nothing could be tried.";
