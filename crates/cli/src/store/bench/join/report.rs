//! What is told of the crowds: a table of medians for people, or one JSON object a server.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;

use super::{Contender, Kind, Round};
use crate::figures::median;

/// The middle of what was seen in all rounds, each figure by itself.
#[derive(Clone, Copy, Debug)]
struct Medians {
    connect: f64,
    barrier: f64,
    leave: f64,
    total: f64,
    peak: f64,
    grown: f64,
    processor: f64,
}

pub(super) fn print(contenders: &[Contender], clients: usize, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        contenders.iter().try_for_each(|contender| writeln!(out, "{}", object(contender, clients)))
    } else {
        table(&mut out, contenders, clients)
    }
}

fn table(out: &mut impl Write, contenders: &[Contender], clients: usize) -> io::Result<()> {
    let repeats = contenders.first().map_or(0, |contender| contender.rounds.len());
    writeln!(out, "{clients} clients in one thread join, meet in a barrier and leave; medians of {repeats}")?;
    writeln!(out, "{HEAD}")?;
    for contender in contenders {
        writeln!(out, "{}", row(&contender.name, clients, &Medians::of(&contender.rounds)))?;
    }
    if let [ours, theirs] = contenders {
        let (ours, theirs) = (Medians::of(&ours.rounds), Medians::of(&theirs.rounds));
        writeln!(out, "{}", row_of_ratios(&ours, &theirs))?;
    }
    for contender in contenders {
        for (why, count) in failures(contender) {
            writeln!(out, "{}: {count} clients failed: {why}", contender.name)?;
        }
    }
    Ok(())
}

fn row(name: &str, clients: usize, medians: &Medians) -> String {
    format!(
        "{name:<20}{:>11.1}{:>11.1}{:>10.1}{:>10.1}{:>10.0}{:>10.1}{:>13.1}{:>10.2}",
        medians.connect * 1e3,
        medians.barrier * 1e3,
        medians.leave * 1e3,
        medians.total * 1e3,
        clients as f64 / medians.total,
        medians.peak / MEBIBYTE,
        medians.grown / MEBIBYTE,
        medians.processor,
    )
}

/// The first server's figures in parts of the second's.
fn row_of_ratios(ours: &Medians, theirs: &Medians) -> String {
    let ratio = |figure: fn(&Medians) -> f64| figure(ours) / figure(theirs);
    format!(
        "{:<20}{:>11.2}{:>11.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>13.2}{:>10.2}",
        "ratio",
        ratio(|medians| medians.connect),
        ratio(|medians| medians.barrier),
        ratio(|medians| medians.leave),
        ratio(|medians| medians.total),
        1.0 / ratio(|medians| medians.total),
        ratio(|medians| medians.peak),
        ratio(|medians| medians.grown),
        ratio(|medians| medians.processor),
    )
}

fn object(contender: &Contender, clients: usize) -> String {
    let medians = Medians::of(&contender.rounds);
    json!({
        "server": contender.name,
        "keyed": matches!(contender.kind, Kind::Keyed(_)),
        "clients": clients,
        "repeats": contender.rounds.len(),
        "connect_ms": medians.connect * 1e3,
        "barrier_ms": medians.barrier * 1e3,
        "leave_ms": medians.leave * 1e3,
        "total_ms": medians.total * 1e3,
        "joins_per_s": clients as f64 / medians.total,
        "server_peak_bytes": medians.peak,
        "server_grown_bytes": medians.grown,
        "server_cpu_s": medians.processor,
        "failures": failures(contender),
    })
    .to_string()
}

/// The failures of all rounds together.
fn failures(contender: &Contender) -> BTreeMap<&str, usize> {
    let mut failures = BTreeMap::new();
    for (why, count) in contender.rounds.iter().flat_map(|round| &round.gathering.failures) {
        *failures.entry(why.as_str()).or_default() += count;
    }
    failures
}

impl Medians {
    fn of(rounds: &[Round]) -> Medians {
        let of = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
        Medians {
            connect: of(|round| round.gathering.connect.as_secs_f64()),
            barrier: of(|round| round.gathering.barrier.as_secs_f64()),
            leave: of(|round| round.gathering.leave.as_secs_f64()),
            total: of(|round| round.gathering.total().as_secs_f64()),
            peak: of(|round| round.peak as f64),
            grown: of(|round| round.grown as f64),
            processor: of(|round| round.processor.as_secs_f64()),
        }
    }
}

const MEBIBYTE: f64 = (1 << 20) as f64;

const HEAD: &str = "\
server               connect ms barrier ms  leave ms  total ms   joins/s  peak MiB  clients MiB     CPU s";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_heads() {
        let medians =
            Medians { connect: 1.0, barrier: 1.0, leave: 1.0, total: 3.0, peak: 1e6, grown: 1e6, processor: 1.0 };
        assert_eq!(row("phalanx", 10_000, &medians).len(), HEAD.len());
        assert_eq!(row_of_ratios(&medians, &medians).len(), HEAD.len());
    }
}
