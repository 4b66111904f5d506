//! `phalanx trace`: what the flight recorders of a job's ranks say together. What they say is the business of `phalanx-trace`;
//! here it is asked for and written down.

mod collect;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use phalanx_trace::files::Found;
use phalanx_trace::torch::Messages;
use phalanx_trace::{Dump, Report, analyse, files, page, perfetto};

use crate::counted::counted;
use crate::failure::{Failure, printed, tell};

/// Collect, analyse and draw the flight-recorder dumps of a job's ranks, ours and PyTorch's
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Collect(collect::Options),
    Analyze(Analyze),
    Html(Html),
    Perfetto(Perfetto),
    Convert(Convert),
}

/// Tell which rank called something else, never came, waits, or is late
#[derive(Args, Debug)]
#[command(after_help = ANALYZE)]
struct Analyze {
    /// The directory with a dump of each rank
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Exit with 3 when something is found, or a dump cannot be read
    #[arg(long)]
    check: bool,
}

/// Draw a timeline of all ranks as one page that needs nothing else
#[derive(Args, Debug)]
#[command(after_help = HTML)]
struct Html {
    /// The directory with a dump of each rank
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The page to write
    #[arg(short, long, value_name = "FILE", default_value = "trace.html")]
    output: PathBuf,
}

/// Write Chrome trace events, for ui.perfetto.dev and other viewers
#[derive(Args, Debug)]
#[command(after_help = PERFETTO)]
struct Perfetto {
    /// The directory with a dump of each rank
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The trace to write
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    output: PathBuf,
}

/// Write the dumps as PyTorch's own analyser reads them
#[derive(Args, Debug)]
#[command(after_help = CONVERT)]
struct Convert {
    /// The directory with a dump of each rank
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The directory to write one pickle a rank to
    #[arg(long, value_name = "OUT")]
    torch: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.command {
        Command::Collect(options) => collect::run(options),
        Command::Analyze(analyze) => analyze.run(),
        Command::Html(Html { directory, output }) => {
            let (dumps, report) = read(directory)?;
            write(output, |out| page::write(out, &dumps, &report))
        }
        Command::Perfetto(Perfetto { directory, output }) => {
            let (dumps, report) = read(directory)?;
            write(output, |out| perfetto::write(out, &dumps, &report))
        }
        Command::Convert(Convert { directory, torch }) => convert(directory, torch),
    }
}

impl Analyze {
    fn run(&self) -> Result<(), Failure> {
        let found = read_newest(&self.directory)?;
        let report = analyse(&found.dumps);
        let mut out = io::stdout().lock();
        let written = if self.json {
            let mut json = report.to_json();
            json["unread"] = found.unread.iter().map(ToString::to_string).collect();
            writeln!(out, "{json}")
        } else {
            write!(out, "{report}")
        };
        printed(written)?;
        // Of a rank whose dump cannot be read nobody knows that it agrees.
        let is_clean = report.is_clean() && found.unread.is_empty();
        if self.check && !is_clean { Err(Failure::Code(FOUND)) } else { Ok(()) }
    }
}

fn read(directory: &Path) -> Result<(Vec<Dump>, Report), Failure> {
    let dumps = read_newest(directory)?.dumps;
    let report = analyse(&dumps);
    Ok((dumps, report))
}

/// The dumps that can be read; what else there is is told.
fn read_newest(directory: &Path) -> Result<Found, Failure> {
    let found = files::read_directory(directory)?;
    for error in &found.unread {
        tell(&format!("passed over {error}"));
    }
    if !found.earlier.is_empty() {
        let count = counted(found.earlier.len(), "dump");
        tell(&format!(
            "{}: passed over {count} of an earlier start of the job, or of an earlier world",
            directory.display()
        ));
    }
    Ok(found)
}

/// Writes a drawing as it comes: it may be longer than all dumps.
fn write(output: &Path, draw: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
    let written =
        File::create(output).map(BufWriter::new).and_then(|mut out| draw(&mut out).and_then(|()| out.flush()));
    written.map_err(|error| Failure::Stopped(format!("{}: {error}", output.display())))?;
    printed(writeln!(io::stdout(), "{}", output.display()))
}

fn convert(directory: &Path, out: &Path) -> Result<(), Failure> {
    refuse_dumps("--torch", out)?;
    let dumps = read_newest(directory)?.dumps;
    let messages = Messages::of(&dumps);
    if messages == Messages::Leave {
        tell("messages are left out: not every rank remembers all of them and whom they were from");
    }
    let mut said = io::stdout().lock();
    for dump in &dumps {
        printed(writeln!(said, "{}", files::write_torch(out, dump, messages)?.display()))?;
    }
    Ok(())
}

/// Refuses to write dumps where there are some: nobody can tell those of two moments, or two of one rank, apart.
fn refuse_dumps(flag: &str, directory: &Path) -> Result<(), Failure> {
    if directory.is_dir() && files::holds_dumps(directory)? {
        let place = directory.display();
        let what = "there are dumps already, which must not be mixed";
        return Err(Failure::Usage(format!("{flag} {place}: {what}: name another directory, as in {flag} dumps-2")));
    }
    Ok(())
}

impl From<phalanx_trace::Error> for Failure {
    fn from(error: phalanx_trace::Error) -> Failure {
        Failure::Stopped(error.to_string())
    }
}

/// The exit code of `--check` when something is found, or may be where nothing can be read.
const FOUND: u8 = 3;

const AFTER: &str = "\
Examples:
  phalanx trace collect                             ask the ranks of this host for their dumps
  phalanx trace analyze dumps                       what went wrong, in a line each
  phalanx trace html dumps -o trace.html            a timeline to look at
  phalanx trace perfetto dumps -o trace.json        the same for ui.perfetto.dev
  phalanx trace convert dumps --torch pickles       for PyTorch's torchfrtrace

A dump is a file whose name ends in the rank: trace_0.json as Phalanx writes it, or a pickle of PyTorch's
flight recorder. Pickles are read as data, and nothing in them is ever run.";

const ANALYZE: &str = "\
Examples:
  phalanx trace analyze dumps                       what was found, the most important first
  phalanx trace analyze dumps --check               the same, with exit code 3 when something is found
  phalanx trace analyze dumps --json | jq -r '.findings[].verdict'

A dump that cannot be read is named on standard error, and the others are analysed. The exit code is 0 whatever
is found, 1 when no dump can be read, and 3 with --check when something is found or a dump cannot be read.";

const HTML: &str = "\
Examples:
  phalanx trace html dumps                          writes trace.html
  phalanx trace html dumps -o hang.html             anywhere else

In the page: wheel to zoom, drag to move, click an operation to read about it.";

const PERFETTO: &str = "\
Examples:
  phalanx trace perfetto dumps                      writes trace.json
  phalanx trace perfetto dumps -o hang.json         anywhere else";

const CONVERT: &str = "\
Examples:
  phalanx trace convert dumps --torch pickles && torchfrtrace pickles -p trace_

Messages between two ranks become groups of these two, because PyTorch's analyser takes an operation of some
ranks of a group for one that the others miss.";
