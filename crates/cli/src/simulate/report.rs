//! What the simulator prints: a tally, one seed's story, or how soon a planted bug was found.

use std::io::{self, Write};
use std::time::Duration;

use phalanx_sim::{Mutation, Report, Tally};
use serde_json::{Value, json};

use crate::counted::{counted, noun};

/// Many seeds, and the time they took.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) elapsed: Duration,
}

/// All seeds together.
pub(super) fn tally(outcome: &Outcome, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        return writeln!(out, "{}", object(outcome));
    }
    let Outcome { tally, elapsed } = outcome;
    let (seeds, rate) = (tally.seeds(), rate(outcome));
    writeln!(out, "{} in {:.1} s: {rate:.0} seeds a second", counted(seeds, "seed"), elapsed.as_secs_f64())?;
    let (right, answers) = (noun(tally.right(), "seed"), counted(tally.answers(), "right answer"));
    writeln!(out, "  right to the end   {:>8} {right}, {answers} in all", tally.right())?;
    for (fault, count) in tally.faults() {
        writeln!(out, "  fault {:<12} {count:>8} {}", fault.to_string(), noun(*count, "seed"))?;
    }
    for (kind, count) in tally.errors() {
        writeln!(out, "  ended in {:<9} {count:>8} {}", format!("{kind:?}"), noun(*count, "rank"))?;
    }
    writeln!(out, "  violations         {:>8}", tally.violations().len())?;
    for (seed, kind) in tally.violations().iter().take(SHOWN) {
        writeln!(out, "    {}: phalanx simulate --seed {seed}", kind.name())?;
    }
    Ok(())
}

/// One seed.
pub(super) fn story(report: &Report, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !as_json {
        return writeln!(out, "{report}");
    }
    let endings: Vec<String> = report.endings().iter().map(ToString::to_string).collect();
    let violation = report.violation().map(|violation| {
        json!({ "kind": violation.kind().name(), "rank": violation.rank(), "verdict": violation.to_string() })
    });
    let object = json!({
        "seed": report.seed(),
        "mutation": report.mutation().map(Mutation::name),
        "planted": report.planted(),
        "fault": report.fault().map(|fault| fault.to_string()),
        "endings": endings,
        "violation": violation,
        "answers": report.answers(),
        "ticks": report.ticks(),
        "bytes": report.bytes(),
        "again": report.rerun(),
    });
    writeln!(out, "{object}")
}

/// One planted bug.
pub(super) fn catch(mutation: Mutation, outcome: &Outcome, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Outcome { tally, elapsed } = outcome;
    let found = tally.caught().first();
    if as_json {
        let found = found.map(|(seed, kind)| json!({ "seed": seed, "as": kind.name() }));
        let object = json!({
            "mutation": mutation.name(),
            "seeds": tally.seeds(),
            "planted": tally.planted(),
            "found": found,
            "violations": violations(tally),
        });
        return writeln!(out, "{object}");
    }
    let (name, planted, seeds) = (mutation.name(), counted(tally.planted(), "time"), counted(tally.seeds(), "seed"));
    match found {
        Some((seed, kind)) => writeln!(
            out,
            "{name:<22} found as {:<13} in seed {seed}, planted {planted} in {seeds}, {:.2} s",
            kind.name(),
            elapsed.as_secs_f64(),
        ),
        None => writeln!(out, "{name:<22} NOT FOUND, planted {planted} in {seeds}"),
    }?;
    for (seed, kind) in tally.violations().iter().take(SHOWN) {
        writeln!(out, "    {} with nothing planted: phalanx simulate --seed {seed} --mutate {name}", kind.name())?;
    }
    Ok(())
}

fn object(outcome: &Outcome) -> Value {
    let Outcome { tally, elapsed } = outcome;
    let errors: serde_json::Map<String, Value> =
        tally.errors().iter().map(|(kind, count)| (format!("{kind:?}"), json!(count))).collect();
    let faults: serde_json::Map<String, Value> =
        tally.faults().iter().map(|(fault, count)| (fault.to_string(), json!(count))).collect();
    json!({
        "seeds": tally.seeds(),
        "seconds": elapsed.as_secs_f64(),
        "seeds_per_s": rate(outcome),
        "right": tally.right(),
        "answers": tally.answers(),
        "faults": faults,
        "errors": errors,
        "violations": violations(tally),
    })
}

fn violations(tally: &Tally) -> Vec<Value> {
    tally.violations().iter().map(|(seed, kind)| json!({ "seed": seed, "kind": kind.name() })).collect()
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.tally.seeds() as f64 / outcome.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// The first violations say enough.
const SHOWN: usize = 20;
