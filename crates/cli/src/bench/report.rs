//! What the bench prints: a table for people, or one JSON object a line.

use std::io::{self, Write};
use std::thread;

use serde_json::json;

use super::Options;
use super::case::{Case, Memory};
use super::measure::Measured;
use super::meeting::Transport;
use crate::sizes;

/// Prints each case as soon as it is measured.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    transport: Transport,
    memory: Memory,
    wrong: usize,
}

impl Report {
    pub(super) fn new(options: &Options) -> Report {
        Report { json: options.json, transport: options.transport, memory: options.memory(), wrong: 0 }
    }

    pub(super) fn begin(&self, options: &Options, is_pinned: bool) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        writeln!(io::stdout().lock(), "{}\n{HEAD}", heading(options, is_pinned))
    }

    pub(super) fn add(&mut self, case: &Case, measured: &Measured) -> io::Result<()> {
        self.wrong += measured.wrong;
        let line = if self.json { object(case, measured, (self.transport, self.memory)) } else { row(case, measured) };
        writeln!(io::stdout().lock(), "{line}")
    }

    pub(super) fn end(&self) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        writeln!(io::stdout().lock(), "{}", verdict(self.wrong))
    }
}

/// Whether results were right.
pub(super) fn verdict(wrong: usize) -> String {
    match wrong {
        0 => "every result was right".to_owned(),
        wrong => format!("{wrong} elements were wrong"),
    }
}

pub(super) fn heading(options: &Options, is_pinned: bool) -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let Options { np, dtype, op, .. } = options;
    let ranks = if options.transport.has_processes() { "processes" } else { "threads" };
    let pinned = if is_pinned { "each pinned to one of its own" } else { "not pinned" };
    let how = match options.transport {
        Transport::Tcp => "TCP",
        Transport::TcpAuthenticated => "authenticated TCP",
        Transport::TcpEncrypted => "encrypted TCP",
        Transport::Mixed => "shared memory and TCP",
        _ if options.links => "links",
        _ => "shared windows and links",
    };
    let memory = options.memory().name();
    let ranks = match options.hosts {
        1 => ranks.to_owned(),
        hosts => format!("{ranks}, as if on {hosts} hosts,"),
    };
    format!("{np} ranks as {ranks} on {cores} cores, {pinned}, {dtype}, {op}, {memory} buffers, over {how}")
}

fn row(case: &Case, measured: &Measured) -> String {
    let (algorithm, bus) = bandwidth(case, measured);
    format!(
        "{:<15}{:>8}{:>12.2}{:>12.2}{:>12.2}{:>10.2}{:>10.2}{:>9}{:>7}",
        case.kind.name(),
        sizes::show(case.byte_len()),
        measured.quantile(0.0),
        measured.quantile(0.5),
        measured.quantile(0.99),
        algorithm,
        bus,
        measured.calls(),
        measured.wrong,
    )
}

fn object(case: &Case, measured: &Measured, (transport, memory): (Transport, Memory)) -> String {
    let (algorithm, bus) = bandwidth(case, measured);
    json!({
        "op": case.kind.name(),
        "np": case.np,
        "transport": transport.name(),
        "buffers": memory.name(),
        "dtype": case.dtype.name(),
        "reduce": case.kind.reduces().then(|| case.reduce.name()),
        "bytes": case.byte_len(),
        "iters": measured.calls(),
        "p50_us": measured.quantile(0.5),
        "p99_us": measured.quantile(0.99),
        "min_us": measured.quantile(0.0),
        "algbw_GBps": algorithm,
        "busbw_GBps": bus,
        "wrong": measured.wrong,
    })
    .to_string()
}

/// Gigabytes a second of the size itself, and of what each rank's hardware moves for it.
fn bandwidth(case: &Case, measured: &Measured) -> (f64, f64) {
    let micros = measured.quantile(0.5);
    let algorithm = if micros > 0.0 { case.byte_len() as f64 / micros / 1e3 } else { 0.0 };
    (algorithm, algorithm * case.kind.bus_factor(case.np))
}

const HEAD: &str = "\
operation          size      min us      p50 us      p99 us  alg GB/s  bus GB/s    calls  wrong";
