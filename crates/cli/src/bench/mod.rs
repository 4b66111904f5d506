//! `phalanx bench`: latency and bandwidth of the collectives, checked while they are measured.

mod case;
mod measure;
mod report;

use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use phalanx::schedule::Algorithm;
use phalanx::{DType, ReduceOp, Threads};

use crate::failure::Failure;
use crate::sizes::Sizes;
use case::{Case, Kind};
use measure::Measured;
use report::Report;

/// Measure collectives among ranks that are threads of this process, and check their results
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The operations, or `all`
    #[arg(value_name = "OPERATION", default_value = "all", value_parser = case::parse_kinds)]
    operations: Kinds,

    /// Number of ranks
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    np: u16,

    /// Bytes of the larger of a rank's input and output: sizes, ranges that grow fourfold, or both
    #[arg(long, value_name = "LIST", default_value = "8,1K,64K,1M,16M")]
    sizes: Sizes,

    /// Element type
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: DType,

    /// Reduction
    #[arg(long, value_name = "REDUCTION", default_value = "sum")]
    op: ReduceOp,

    /// Use this algorithm wherever it can play the operation, instead of choosing by size
    #[arg(long, value_name = "NAME")]
    algorithm: Option<Algorithm>,

    /// Send everything over links, as if the ranks shared no memory
    #[arg(long)]
    links: bool,

    /// Seconds to measure each operation and size
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2, value_parser = seconds)]
    time: f64,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// The operations of one run.
pub(crate) type Kinds = Vec<Kind>;

/// Measures all cases in turn and prints what was measured.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let cases = options.cases()?;
    let progress = progress_bar(cases.len());
    let mut report = Report::new(options)?;
    let mut wrong = 0;
    for case in &cases {
        progress.set_message(case.to_string());
        let measured = options.measure(case)?;
        wrong += measured.wrong;
        progress.suspend(|| report.add(case, &measured))?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    report.end()?;
    if wrong > 0 { Err(Failure::Found) } else { Ok(()) }
}

impl Options {
    fn cases(&self) -> Result<Vec<Case>, Failure> {
        let case = |&kind: &Kind, &bytes: &usize| Case::new(kind, bytes, self.np.into(), self.dtype, self.op);
        let mut cases = vec![];
        for kind in &self.operations {
            if kind.reduces() {
                self.op.supports(self.dtype).map_err(|refused| Failure::Stopped(refused.to_string()))?;
            }
            match kind {
                Kind::Barrier => cases.push(case(kind, &0)),
                _ => cases.extend(self.sizes.0.iter().map(|bytes| case(kind, bytes))),
            }
        }
        Ok(cases)
    }

    fn measure(&self, case: &Case) -> Result<Measured, Failure> {
        let mut world = Threads::new(self.np.into()).windows(!self.links);
        if let Some(algorithm) = self.algorithm {
            world = world.algorithm(algorithm);
        }
        let budget = Duration::from_secs_f64(self.time);
        let ranks = world.run(|group| measure::rank(&group, case, budget))?;
        Ok(Measured::of(ranks.into_iter().collect::<phalanx::Result<_>>()?))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?;
    if (0.001..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("must be from 0.001 to 3600".to_owned()) }
}

/// Shown on a terminal only, and gone at the end.
fn progress_bar(cases: usize) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(cases as u64).with_style(style)
}

const EXAMPLES: &str = "\
Examples:
  phalanx bench                                        every operation at five sizes, 2 ranks
  phalanx bench all_reduce --np 4 --sizes 8..64M       one operation from 8 bytes to 64 MiB
  phalanx bench all_reduce --dtype bf16 --links        over links instead of shared windows
  phalanx bench all_reduce --algorithm ring --json     one algorithm, for another program to read";
