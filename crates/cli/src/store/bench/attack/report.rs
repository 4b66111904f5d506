//! What is told of an attack: two tables for people or one JSON object, and what is to be found fault with.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::Siege;
use super::kind::Kind;
use super::member::Latencies;

/// What should not have been, in words.
pub(super) fn faults(siege: &Siege) -> Vec<String> {
    let mut faults: Vec<String> = Kind::ALL.into_iter().flat_map(|kind| faults_of(siege, kind)).collect();
    let (before, after) = (siege.before, siege.after);
    if after.descriptors > before.descriptors {
        faults.push(format!("the server has {} files open, {} before", after.descriptors, before.descriptors));
    }
    let grown = after.resident.saturating_sub(before.resident);
    if grown > MAY_GROW {
        faults.push(format!("the server grew by {} MiB", grown >> 20));
    }
    faults
}

pub(super) fn print(siege: &Siege, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{}", object(siege));
    }
    writeln!(out, "a member's calls         calls    p50 us    p99 us    max us")?;
    writeln!(out, "{}", row_of_calls("alone", &siege.idle))?;
    writeln!(out, "{}", row_of_calls("among strangers", &siege.attacked))?;
    writeln!(
        out,
        "{:<20}{:>10}{:>10.2}{:>10.2}{:>10.2}",
        "ratio",
        "",
        ratio(siege, 0.5),
        ratio(siege, 0.99),
        ratio(siege, 1.0)
    )?;
    let (tries, seconds) = (siege.tally.tries(), siege.elapsed.as_secs_f64());
    writeln!(out, "\n{tries} tries to get in, {:.0} a second", tries as f64 / seconds)?;
    writeln!(out, "{HEAD}")?;
    for kind in Kind::ALL {
        writeln!(out, "{}", row(siege, kind))?;
    }
    let (before, after) = (siege.before, siege.after);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    writeln!(
        out,
        "\nserver: alive, {:.1} MiB before and {:.1} after ({:.1} at most), {} open files before and {} after, {:.2} s of a processor",
        mebibytes(before.resident),
        mebibytes(after.resident),
        mebibytes(after.peak),
        before.descriptors,
        after.descriptors,
        after.processor.saturating_sub(before.processor).as_secs_f64(),
    )?;
    for fault in faults(siege) {
        writeln!(out, "fault: {fault}")?;
    }
    Ok(())
}

fn faults_of(siege: &Siege, kind: Kind) -> Vec<String> {
    let count = siege.tally.count(kind);
    let told = if kind.has_key() { 0 } else { count.told };
    let is_long = count.longest > HELD_LIMIT;
    let counted = [
        (count.admitted, "were let in"),
        (told, "were told why they are sent away, without the key"),
        (count.disclosed, "bytes were given away"),
        (count.left_open, "were not sent away"),
        (count.unreached, "did not reach the server"),
        (u64::from(is_long), "was held too long"),
    ];
    let fault = |(number, what): (u64, &str)| (number > 0).then(|| format!("{kind}: {number} {what}"));
    counted.into_iter().filter_map(fault).collect()
}

fn row(siege: &Siege, kind: Kind) -> String {
    let count = siege.tally.count(kind);
    format!(
        "{:<20}{:>9}{:>9}{:>10}{:>10}{:>11}{:>11.3}",
        kind.name(),
        count.tries,
        count.refused,
        count.told,
        count.admitted,
        count.disclosed,
        count.longest.as_secs_f64(),
    )
}

fn row_of_calls(name: &str, latencies: &Latencies) -> String {
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| latencies.quantile(share));
    format!("{name:<20}{:>10}{p50:>10.1}{p99:>10.1}{most:>10.1}", latencies.calls())
}

fn object(siege: &Siege) -> Value {
    let calls = |latencies: &Latencies| {
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| latencies.quantile(share));
        json!({ "calls": latencies.calls(), "p50_us": p50, "p99_us": p99, "max_us": most })
    };
    let (before, after) = (siege.before, siege.after);
    json!({
        "alone": calls(&siege.idle),
        "attacked": calls(&siege.attacked),
        "p99_ratio": ratio(siege, 0.99),
        "seconds": siege.elapsed.as_secs_f64(),
        "kinds": siege.tally.to_json(),
        "server_resident_bytes": [before.resident, after.resident],
        "server_peak_bytes": after.peak,
        "server_open_files": [before.descriptors, after.descriptors],
        "server_cpu_s": after.processor.saturating_sub(before.processor).as_secs_f64(),
        "faults": faults(siege),
    })
}

fn ratio(siege: &Siege, share: f64) -> f64 {
    siege.attacked.quantile(share) / siege.idle.quantile(share)
}

/// A server closes after two seconds; the rest is for a machine that is busy.
const HELD_LIMIT: Duration = Duration::from_secs(3);
const MAY_GROW: u64 = 32 << 20;

const HEAD: &str = "\
strangers               tries  refused  told why  admitted  disclosed  longest s";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burden::Burden;
    use crate::store::bench::attack::attempt::Outcome;
    use crate::store::bench::attack::tally::Tally;

    fn siege(tell: impl Fn(&mut Tally)) -> Siege {
        let mut tally = Tally::default();
        tell(&mut tally);
        let burden = Burden { descriptors: 9, ..Burden::default() };
        let (idle, attacked) = (Latencies::default(), Latencies::default());
        Siege { idle, attacked, tally, elapsed: Duration::from_secs(1), before: burden, after: burden }
    }

    fn seen(kind: Kind, outcome: Outcome, held: Duration, is_closed: bool) -> Vec<String> {
        faults(&siege(|tally| tally.add(kind, outcome, held, is_closed)))
    }

    #[test]
    fn whoever_was_sent_away_in_time_is_no_fault() {
        let told = Outcome { told: true, ..Outcome::default() };
        assert!(seen(Kind::OldEpoch, told, Duration::from_secs(2), true).is_empty());
        assert!(seen(Kind::Drip, Outcome::default(), Duration::from_secs(2), true).is_empty());
    }

    #[test]
    fn everything_else_is() {
        let none = Outcome::default();
        let (short, long) = (Duration::from_millis(1), Duration::from_secs(4));
        let admitted = seen(Kind::TakenRank, Outcome { admitted: true, ..none }, short, true);
        assert_eq!(admitted, ["claimed rank: 1 were let in"]);
        assert_eq!(seen(Kind::NoKey, Outcome { disclosed: 7, ..none }, short, true).len(), 1);
        assert_eq!(seen(Kind::WrongKey, Outcome { told: true, ..none }, short, true).len(), 1);
        assert_eq!(seen(Kind::Drip, none, long, true).len(), 1);
        assert_eq!(seen(Kind::Drip, none, long, false).len(), 2);
        assert_eq!(faults(&siege(|tally| tally.add_unreached(Kind::Replay))).len(), 1);
        let mut grown = siege(|_| {});
        grown.after = Burden { descriptors: 10, resident: 64 << 20, ..Burden::default() };
        assert_eq!(faults(&grown).len(), 2);
    }
}
