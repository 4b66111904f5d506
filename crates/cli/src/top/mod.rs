//! `phalanx top`: how the ranks of this host stand, once or again and again. The ranks say it themselves; what follows from what they say
//! together is found here.

mod finding;
mod look;
mod screen;
mod show;
mod table;

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, printed};
use crate::seconds::seconds_between;
use look::{Look, View};

/// Watch the ranks of this host: who works, who waits, who does not answer
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Options {
    /// Print one table and end
    #[arg(long)]
    once: bool,

    /// Print one JSON object and end
    #[arg(long)]
    json: bool,

    /// How long to watch for one table
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// Show this job only
    #[arg(long, value_name = "NAME")]
    job_id: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let job = options.job_id.as_deref();
    if !options.once && !options.json {
        return screen::watch(options.interval, job);
    }
    let first = Look::take(job)?;
    // The rates are those of this time.
    std::thread::sleep(options.interval);
    let view = View::between(Some(&first), &Look::take(job)?);
    let mut out = io::stdout().lock();
    printed(if options.json {
        writeln!(out, "{}", view.to_json())
    } else {
        table::lines(&view).iter().try_for_each(|line| writeln!(out, "{}", line.text))
    })
}

fn interval(text: &str) -> Result<Duration, String> {
    seconds_between(text, SHORTEST, LONGEST)
}

const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 3600.0;

const AFTER: &str = "\
Examples:
  phalanx top                                       watch all ranks of this user; q to leave
  phalanx top --job-id nightly --interval 5         one job, in steps of five seconds
  phalanx top --once                                one table, for a script or a report
  phalanx top --json | jq -r '.findings[].verdict'  who does not answer, who is waited for

Shown are the ranks of this host that this user started, by whatever launcher; root sees those of all users.
A rank that does not answer within half a second is shown as such: it is stopped, or its machine is busy.
IN OPS is the share of time that a rank spends in operations: it moves bytes, or waits for others. The rank
that the others wait for is the one that spends least. Ranks with PHALANX_TOP=0 are not shown.";
