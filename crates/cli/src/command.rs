//! The commands and their flags.

use clap::{Parser, Subcommand};

use crate::{bench, completions, doctor, gpu_check, run, simulate, store, top, trace, train};

/// Distributed training communication: start the ranks, measure it and try its faults.
#[derive(Debug, Parser)]
#[command(name = "phalanx", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Options),
    Store(store::Options),
    Bench(bench::Options),
    Train(train::Options),
    Simulate(simulate::Options),
    Trace(trace::Options),
    Top(top::Options),
    Doctor(doctor::Options),
    GpuCheck(gpu_check::Options),
    Completions(completions::Options),
    /// The launcher proper, started by `run`.
    #[command(name = "__launch", hide = true)]
    Launch(run::LaunchStep),
    /// The last step before a rank's program, started by the launcher.
    #[command(name = "__rank", hide = true)]
    Rank(run::RankStep),
    /// One rank of a bench, started by `bench`.
    #[command(name = "__bench_rank", hide = true)]
    BenchRank,
    /// One rank of a training, started by `train`.
    #[command(name = "__train_rank", hide = true)]
    TrainRank(train::RankStep),
    /// One of two processes that try to read each other's memory, started by `doctor`.
    #[command(name = "__neighbour", hide = true)]
    Neighbour(doctor::Role),
    /// One rank on a card, started by `gpu-check`.
    #[command(name = "__gpu_rank", hide = true)]
    GpuRank(gpu_check::Role),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all went well
  1  it ran, and found something wrong: a wrong result, a violation, a failed operation, a failed rank,
     something of this machine that must be mended
  2  the command line could not be understood; of `gpu-check`: there was nothing to try
  3  `trace analyze --check` has found something
  128 + N  ended by signal N: 130 by SIGINT, 143 by SIGTERM";
