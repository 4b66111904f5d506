//! `phalanx bench`: latency and bandwidth of the collectives, checked while they are measured.
//!
//! The ranks are other processes of this program, or threads of it, and make up one world for the whole run. They are told
//! one case after the other and sleep in between, while what they saw is printed.

mod case;
mod company;
mod cost;
mod kind;
mod measure;
mod meeting;
mod pair;
mod plot;
mod quiet;
mod rank;
mod report;
mod tune;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use phalanx::schedule::Algorithm;
use phalanx::{DType, ReduceOp};

use crate::failure::{Failure, printed};
use crate::open_files;
use crate::run::process::cores;
use crate::seconds::seconds_between;
use crate::sizes::Sizes;
use case::{Case, Memory};
use company::{Company, Terms};
use kind::Kind;
use measure::Pace;
use meeting::Style;
pub(crate) use meeting::Transport;
pub(crate) use pair::{Exchange, pair};
use plot::Plot;
pub(crate) use rank::rank;
use report::Report;

/// Measure collectives among ranks of one host, and check their results
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Options {
    /// The operation, several with commas between, or `all`
    #[arg(value_name = "OPERATIONS", default_value = "all", value_parser = kind::parse_kinds)]
    operations: Kinds,

    /// Number of ranks, at most 64 with shm
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    np: u16,

    /// How ranks reach each other
    #[arg(long, value_name = "TRANSPORT", value_enum, default_value = "shm")]
    transport: Transport,

    /// Pretend that the ranks are on so many hosts, in rows; two with mixed
    #[arg(long, value_name = "N", default_value_t = 1, default_value_if("transport", "mixed", "2"), value_parser = clap::value_parser!(u16).range(1..=1024))]
    hosts: u16,

    /// Bytes of the larger of a rank's input and output: sizes, ranges that grow fourfold, or both [default: 8,1K,64K,1M,16M]
    #[arg(long, value_name = "LIST")]
    sizes: Option<Sizes>,

    /// Element type
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: DType,

    /// Reduction
    #[arg(long, value_name = "REDUCTION", default_value = "sum")]
    op: ReduceOp,

    /// Use this algorithm wherever it can play the operation, instead of choosing by size
    #[arg(long, value_name = "NAME")]
    algorithm: Option<Algorithm>,

    /// Send everything over links, as if the ranks could not read each other's windows
    #[arg(long)]
    links: bool,

    /// Use buffers that the group has made, which ranks of one host read where they are
    #[arg(long)]
    shared_buffers: bool,

    /// Seconds to measure each operation and size
    #[arg(long, value_name = "SECONDS", default_value = "0.2", value_parser = time, allow_negative_numbers = true)]
    time: Duration,

    /// Microseconds that are timed at once, at least: short calls are timed several together, and count as their mean
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    burst: u32,

    /// Seconds to wait, at most, for the machine to be quiet before each operation and size
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=3600))]
    gate: u16,

    /// Instead of a table, print a profile for this machine: up to which sizes and in which pieces each algorithm is the better
    #[arg(long, conflicts_with_all = ["operations", "sizes", "algorithm", "links", "shared_buffers", "hosts", "json", "plot"])]
    tune: bool,

    /// Instead of a table, print what recorder, fingerprint, deadline and hooks cost: every case with and without them, in turns
    #[arg(long, conflicts_with_all = ["tune", "json", "plot"])]
    cost: bool,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,

    /// Also draw the median latency over the size into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// The operations of one run.
pub(crate) type Kinds = Vec<Kind>;

/// Measures all cases in turn and prints what was measured.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    // Each connection of each rank takes one; ranks inherit the limit.
    open_files::raise();
    if options.tune {
        return tune::run(options);
    }
    if options.cost {
        return cost::run(options);
    }
    let cases = options.cases()?;
    let terms = options.terms()?;
    let mut plot = options.plot.as_deref().map(Plot::create).transpose()?;
    let mut company = Company::start(&terms)?;
    let mut report = Report::new(options);
    printed(report.begin(options, !terms.cores.is_empty()))?;
    let progress = progress_bar(cases.len());
    let mut wrong = 0;
    for case in &cases {
        progress.set_message(case.to_string());
        quiet::wait(Duration::from_secs(options.gate.into()));
        let measured = company.measure(case)?;
        wrong += measured.wrong;
        plot.iter_mut().for_each(|plot| plot.add(case, measured.quantile(0.5)));
        progress.suspend(|| printed(report.add(case, &measured)))?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    company.end()?;
    plot.map_or(Ok(()), |plot| plot.draw(&report::heading(options, !terms.cores.is_empty())))?;
    printed(report.end())?;
    if wrong > 0 { Err(Failure::Found) } else { Ok(()) }
}

impl Options {
    fn cases(&self) -> Result<Vec<Case>, Failure> {
        let case = |&kind: &Kind, &bytes: &usize| Case::new(kind, bytes, self.np.into(), self.dtype, self.op);
        let (sizes, mut cases) = (self.sizes()?, vec![]);
        if self.operations.iter().any(|kind| kind.reduces()) {
            self.check_reduction()?;
        }
        for kind in &self.operations {
            match kind {
                Kind::Barrier => cases.push(case(kind, &0)),
                _ => cases.extend(sizes.iter().map(|bytes| case(kind, bytes))),
            }
        }
        Ok(cases)
    }

    /// Refuses a reduction that cannot be measured, before anything is started.
    fn check_reduction(&self) -> Result<(), Failure> {
        let (op, dtype) = (self.op, self.dtype);
        let why = match op.supports(dtype) {
            Err(why) => why.to_string(),
            Ok(()) if op == ReduceOp::PreMulSum => "there is no flag for the factor that comes with it".to_owned(),
            Ok(()) => return Ok(()),
        };
        Err(Failure::Usage(format!("--op {op} with --dtype {dtype}: {why}")))
    }

    /// The sizes that are asked for, or else the usual ones, of which none is less than an element.
    fn sizes(&self) -> Result<Vec<usize>, Failure> {
        let element = self.dtype.byte_len();
        let Some(Sizes(sizes)) = &self.sizes else {
            return Ok(USUAL.map(|size| size.max(element)).into());
        };
        match sizes.iter().find(|size| (1..element).contains(*size)) {
            Some(size) => {
                let why = format!("must be 0, or at least the {element} bytes of an element of --dtype {}", self.dtype);
                Err(Failure::Usage(format!("--sizes has {size}: {why}")))
            }
            None => Ok(sizes.clone()),
        }
    }

    fn memory(&self) -> Memory {
        if self.shared_buffers { Memory::Shared } else { Memory::Ordinary }
    }

    fn terms(&self) -> Result<Terms, Failure> {
        let (np, transport) = (usize::from(self.np), self.transport);
        let most = transport.most_ranks();
        if np > most {
            return Err(Failure::Usage(format!(
                "--np {np}: --transport {} has at most {most} ranks",
                transport.name()
            )));
        }
        if self.hosts > self.np {
            return Err(Failure::Usage(format!("--hosts {}: there are {np} ranks", self.hosts)));
        }
        let pace = Pace { budget: self.time, burst: Duration::from_micros(self.burst.into()) };
        let (algorithm, links, memory) = (self.algorithm, self.links, self.memory());
        let style = Style { algorithm, links, memory, hosts: self.hosts.into(), profile: None, is_bare: false };
        let cores = if transport.has_processes() { cores::one_each(&cores::usable(), np) } else { vec![] };
        Ok(Terms { np, transport, style, pace, cores })
    }
}

/// No rank may be silent for longer than an hour and what its calls take.
fn time(text: &str) -> Result<Duration, String> {
    seconds_between(text, 0.001, 3600.0)
}

/// Shown on a terminal only, and gone at the end.
fn progress_bar(cases: usize) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(cases as u64).with_style(style)
}

/// What is measured where no sizes are asked for, in bytes.
const USUAL: [usize; 5] = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20];

const AFTER: &str = "\
Examples:
  phalanx bench                                        every operation at five sizes, 2 ranks
  phalanx bench all_reduce --np 4 --sizes 8..256M      one operation from 8 bytes to 256 MiB
  phalanx bench all_reduce --dtype bf16 --links        over links instead of shared windows
  phalanx bench all_reduce --algorithm ring --json     one algorithm, for another program to read
  phalanx bench all_reduce --shared-buffers            in memory that the ranks share
  phalanx bench --sizes 8..64M --plot latency.svg      a picture
  phalanx bench --np 4 --transport mixed --hosts 2     two hosts that share memory inside and TCP between
  phalanx bench all_reduce --sizes 8,1K --cost         what checks and records cost
  phalanx bench --np 4 --tune > profile                limits for PHALANX_PROFILE to name

How it is measured: all ranks begin a burst of calls together, and each reads its clock before and after. A burst is one call,
or as many as last for --burst. Its time is that of its slowest rank; min, p50 and p99 are over bursts, per call. Roots take
turns; all_reduce, reduce and broadcast work in place. Each operation and size is checked before it is timed. Ranks that are
processes, as with all transports but threads, are each kept on a core of their own, if there are enough, as `mpirun --bind-to core` does.

Each line of --json has the keys op, np, transport, buffers (ordinary, or shared: the group's own), dtype, reduce (null where
nothing is reduced), bytes (of the larger of a rank's input and output), iters (timed calls), p50_us, p99_us, min_us, algbw_GBps
(bytes over the median), busbw_GBps (what each rank's hardware moves, as nccl-tests counts), wrong (elements).";
