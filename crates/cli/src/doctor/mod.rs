//! `phalanx doctor`: what this machine offers, whether it is enough, and what to do where it is not.
//!
//! Each check reads what the system says, and judges it by a function of that alone.

mod bandwidth;
mod cgroup;
mod cores;
mod cross_memory;
mod files;
mod finding;
mod huge_pages;
mod interfaces;
mod kernel;
mod locked_memory;
mod memory;
mod neighbour;
mod report;
mod shared_memory;

use clap::Args;

use crate::failure::Failure;
use finding::{Finding, Level};
pub(crate) use neighbour::{Role, neighbour};
use report::Report;

/// Report what this machine offers to ranks, and what to mend
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Options {
    /// Do not measure messages between two ranks, which takes some seconds
    #[arg(long)]
    no_bandwidth: bool,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// Checks everything in turn, and tells each as soon as it is known.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut report = Report::begin(options.json)?;
    for check in CHECKS {
        report.add(&check())?;
    }
    if !options.no_bandwidth {
        for check in MEASUREMENTS {
            report.add(&check())?;
        }
    }
    if report.end()? == Level::Wrong { Err(Failure::Found) } else { Ok(()) }
}

/// What costs no time.
const CHECKS: [fn() -> Finding; 9] = [
    || kernel::judge(&kernel::read()),
    || shared_memory::judge(&shared_memory::read()),
    || cross_memory::judge(&cross_memory::read()),
    || huge_pages::judge(&huge_pages::read()),
    || memory::judge(&memory::read()),
    || cores::judge(&cores::read()),
    || files::judge(&files::read()),
    || locked_memory::judge(&locked_memory::read()),
    || interfaces::judge(&interfaces::read()),
];

/// What takes its time.
const MEASUREMENTS: [fn() -> Finding; 2] = [
    || bandwidth::judge(&bandwidth::SHARED_MEMORY, &bandwidth::measure(&bandwidth::SHARED_MEMORY)),
    || bandwidth::judge(&bandwidth::LOOPBACK, &bandwidth::measure(&bandwidth::LOOPBACK)),
];

const AFTER: &str = "\
Examples:
  phalanx doctor                        everything, in a few seconds
  phalanx doctor --no-bandwidth         what costs no time
  phalanx doctor --json | jq .level     for another program to read

What stands in front:
  ok     enough
  slow   it works, but not as fast as it could
  wrong  something will fail, or is less safe than it should be; why and how to mend it stand below

Each line of --json has the keys check, level, found, why, how; the last two are null where nothing
is to be done. The exit code is 1 when something is wrong, else 0.";
