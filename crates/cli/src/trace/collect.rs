//! `phalanx trace collect`: every rank of a job is asked for what it remembers, over the job's store or on this host.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use phalanx::trace::{Collected, collect, collect_host};
use phalanx::{JobName, Ranks};

use crate::counted::counted;
use crate::failure::{Failure, printed, tell};
use crate::seconds::seconds_above_zero;
use crate::store::{Target, connect};

/// Ask the ranks of a job for their dumps, also those that hang
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(super) struct Options {
    /// The job's store: host:port, [v6]:port or unix:/path; the ranks of this host where none is given
    address: Option<String>,

    /// The directory to write one dump a rank to
    #[arg(short, long, value_name = "DIR", default_value = "dumps")]
    output: PathBuf,

    /// The job, as `phalanx top` shows it; needed with an address unless several nodes were given none, and on this host where
    /// there are several
    #[arg(long, value_name = "ID")]
    job_id: Option<String>,

    /// Any process of the job, where this host has several of one name
    #[arg(long, value_name = "PID", conflicts_with = "address")]
    pid: Option<u32>,

    /// Which start of the job the store serves
    #[arg(long, value_name = "N", default_value_t = 0, requires = "address")]
    epoch: u32,

    /// File with the job key; without it the key is looked for in PHALANX_KEY_FD, PHALANX_KEY_FILE and PHALANX_KEY
    #[arg(long, value_name = "PATH", requires = "address")]
    key_file: Option<PathBuf>,

    /// Go to another machine without a key
    #[arg(long, requires = "address")]
    insecure: bool,

    /// How long a rank has to answer
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds_above_zero)]
    timeout: Duration,
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    super::refuse_dumps("--output", &options.output)?;
    let output = options.output.display();
    let collected = match &options.address {
        Some(address) => ask(options, address)?,
        None => collect_host((options.job_id.as_deref(), options.pid), &options.output, options.timeout)
            .map_err(|error| refused(&error))?,
    };
    for (rank, why) in &collected.garbled {
        tell(&format!("the answer of rank {rank} is no dump that can be kept: {why}"));
    }
    if !collected.silent.is_empty() {
        let silent = Ranks(&collected.silent).named();
        tell(&format!("no answer within {} s from {silent}", options.timeout.as_secs_f64()));
    }
    if let Some(how) = not_asked(&collected.elsewhere) {
        tell(&how);
    }
    match collected.files.len() {
        0 => Err(Failure::Stopped("no rank gave its dump".to_owned())),
        count => printed(writeln!(io::stdout(), "{output}: dumps of {}", counted(count, "rank"))),
    }
}

/// Which ranks are on other hosts, and how they are asked.
fn not_asked(elsewhere: &[usize]) -> Option<String> {
    let are = if elsewhere.len() == 1 { "is" } else { "are" };
    let how = || {
        format!("{} {are} not on this host: run this there too, or name the store's address", Ranks(elsewhere).named())
    };
    (!elsewhere.is_empty()).then(how)
}

/// The library names its arguments where one has to be given, which are flags here.
fn refused(error: &phalanx::Error) -> Failure {
    let flags = [("(`job`)", "(--job-id)"), ("(`pid`)", "(--pid)"), ("(`epoch`)", "(--epoch)")];
    Failure::Stopped(flags.into_iter().fold(error.to_string(), |why, (argument, flag)| why.replace(argument, flag)))
}

fn ask(options: &Options, address: &str) -> Result<Collected, Failure> {
    let target = Target {
        address: address.to_owned(),
        key_file: options.key_file.clone(),
        insecure: options.insecure,
        timeout: options.timeout,
        job_id: options.job_id.clone().unwrap_or_else(|| JobName::default().as_str().to_owned()),
        epoch: options.epoch,
    };
    let store = connect(&target)?;
    let job = JobName::new(&target.job_id).map_err(|error| Failure::Usage(error.to_string()))?;
    let progress = ProgressBar::new(0);
    let told = |collected: &Collected, size: usize| {
        progress.set_length(size as u64);
        progress.set_position((collected.files.len() + collected.silent.len() + collected.garbled.len()) as u64);
    };
    let collected = collect(&store, (&job, target.epoch), &options.output, options.timeout, told);
    progress.finish_and_clear();
    collected.map_err(|error| refused(&error))
}

const AFTER: &str = "\
Examples:
  phalanx trace collect && phalanx trace analyze dumps             the ranks of this host, also where a job hangs
  phalanx trace collect --job-id nightly -o hang                   one job of several
  phalanx trace collect 10.0.0.1:29400 --key-file job.key          all ranks of all hosts, over the job's store

Over a store, each rank looks once a second whether it is asked; a job that was started anew has a higher --epoch.
A rank that does not answer in time is named: its process has ended or is stopped, or PHALANX_TRACE_REQUESTS
(over a store) or PHALANX_TOP (on this host) is 0. The dumps of the others are written all the same.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_other_hosts_are_named_with_how_they_are_asked() {
        assert_eq!(not_asked(&[]), None);
        let how = "not on this host: run this there too, or name the store's address";
        assert_eq!(not_asked(&[3]), Some(format!("rank 3 is {how}")));
        assert_eq!(not_asked(&[4, 5, 6, 7]), Some(format!("ranks 4-7 are {how}")));
    }

    #[test]
    fn what_has_to_be_given_is_called_by_its_flag() {
        let told = |why: &str| match refused(&phalanx::Error::setup("traces", why)) {
            Failure::Stopped(told) => told,
            other => panic!("{other:?}"),
        };
        assert_eq!(told("one has to be named (`job`): a, b"), "traces: one has to be named (--job-id): a, b");
        assert_eq!(told("any process says it (`pid`)"), "traces: any process says it (--pid)");
        assert_eq!(told("it has a higher epoch (`epoch`)"), "traces: it has a higher epoch (--epoch)");
    }
}
