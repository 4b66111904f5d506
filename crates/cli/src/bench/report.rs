//! What the bench prints: a table for people, or one JSON object a line.

use std::io::{self, Write};
use std::thread;

use serde_json::json;

use super::Options;
use super::case::Case;
use super::measure::Measured;
use crate::sizes;

/// Prints each case as soon as it is measured.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    wrong: usize,
}

impl Report {
    pub(super) fn new(options: &Options) -> io::Result<Report> {
        let report = Report { json: options.json, wrong: 0 };
        if !report.json {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            let (np, dtype, op) = (options.np, options.dtype, options.op);
            let how = if options.links { "links" } else { "shared windows and links" };
            let mut out = io::stdout().lock();
            writeln!(out, "{np} ranks as threads on {cores} cores, {dtype}, {op}, over {how}")?;
            writeln!(out, "{}", HEAD)?;
        }
        Ok(report)
    }

    pub(super) fn add(&mut self, case: &Case, measured: &Measured) -> io::Result<()> {
        self.wrong += measured.wrong;
        let line = if self.json { object(case, measured) } else { row(case, measured) };
        writeln!(io::stdout().lock(), "{line}")
    }

    pub(super) fn end(&self) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let verdict = match self.wrong {
            0 => "every result was right".to_owned(),
            wrong => format!("{wrong} bytes were wrong"),
        };
        writeln!(io::stdout().lock(), "{verdict}")
    }
}

fn row(case: &Case, measured: &Measured) -> String {
    let (algorithm, bus) = bandwidth(case, measured);
    let micros = |share| measured.quantile(share).as_secs_f64() * 1e6;
    format!(
        "{:<15}{:>8}{:>12.2}{:>12.2}{:>12.2}{:>10.2}{:>10.2}{:>8}{:>7}",
        case.kind.name(),
        sizes::show(case.byte_len()),
        micros(0.0),
        micros(0.5),
        micros(0.99),
        algorithm,
        bus,
        measured.iterations(),
        measured.wrong,
    )
}

fn object(case: &Case, measured: &Measured) -> String {
    let (algorithm, bus) = bandwidth(case, measured);
    let micros = |share| measured.quantile(share).as_secs_f64() * 1e6;
    json!({
        "op": case.kind.name(),
        "np": case.np,
        "transport": "threads",
        "buffers": "ordinary",
        "dtype": case.dtype.name(),
        "reduce": case.kind.reduces().then(|| case.reduce.name()),
        "bytes": case.byte_len(),
        "iters": measured.iterations(),
        "p50_us": micros(0.5),
        "p99_us": micros(0.99),
        "min_us": micros(0.0),
        "algbw_GBps": algorithm,
        "busbw_GBps": bus,
        "wrong": measured.wrong,
    })
    .to_string()
}

/// Gigabytes a second of the size itself, and of what each rank's hardware moves for it.
fn bandwidth(case: &Case, measured: &Measured) -> (f64, f64) {
    let seconds = measured.quantile(0.5).as_secs_f64();
    let algorithm = if seconds > 0.0 { case.byte_len() as f64 / seconds / 1e9 } else { 0.0 };
    (algorithm, algorithm * case.kind.bus_factor(case.np))
}

const HEAD: &str = "\
operation          size      min us      p50 us      p99 us  alg GB/s  bus GB/s   calls  wrong";
