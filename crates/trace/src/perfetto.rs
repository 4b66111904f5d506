//! Dumps as Chrome trace events, which Perfetto and others show: a process a rank, a thread a group.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::analyse::Report;
use crate::dump::Dump;
use crate::timeline::{Operation, Timeline};

/// The dumps and what was found in them as the JSON of a trace.
///
/// Collectives stand from their turn to their end; messages, which overlap, and the time in the queue are in `args`.
pub fn trace(dumps: &[Dump], report: &Report) -> Value {
    json!(Trace::of(&Timeline::of(dumps, report)))
}

/// Writes the same one event after the other, so that a trace may be longer than memory is. Best to what keeps some until it is worth a write.
///
/// # Errors
///
/// What `out` says.
pub fn write(out: impl Write, dumps: &[Dump], report: &Report) -> io::Result<()> {
    Ok(serde_json::to_writer(out, &Trace::of(&Timeline::of(dumps, report)))?)
}

/// A trace, whose events are made when they are written.
#[derive(Serialize)]
struct Trace<'t, 'd> {
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "traceEvents")]
    events: Events<'t, 'd>,
}

struct Events<'t, 'd>(&'t Timeline<'d>);

impl<'t, 'd> Trace<'t, 'd> {
    fn of(timeline: &'t Timeline<'d>) -> Trace<'t, 'd> {
        Trace { unit: "ns", events: Events(timeline) }
    }
}

impl Serialize for Events<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Events(timeline) = self;
        let operations = timeline.operations.iter().enumerate();
        let operations = operations.flat_map(|(id, operation)| events(timeline, id, operation));
        let verdicts = timeline.verdicts.iter().map(|verdict| {
            let at = microseconds(timeline.span);
            json!({ "ph": "i", "s": "g", "name": verdict, "cat": "verdict", "pid": 0, "tid": 0, "ts": at })
        });
        serializer.collect_seq(names(timeline).chain(operations).chain(verdicts))
    }
}

/// What the processes and threads of a trace are called.
fn names(timeline: &Timeline<'_>) -> impl Iterator<Item = Value> {
    let processes = timeline.ranks.iter().map(|lane| {
        let host = lane.host.map(|host| format!(" on {host}")).unwrap_or_default();
        json!({ "ph": "M", "name": "process_name", "pid": lane.rank, "args": { "name": format!("rank {}{host}", lane.rank) } })
    });
    let threads = timeline.ranks.iter().flat_map(|lane| {
        timeline.groups.iter().enumerate().map(|(thread, group)| {
            json!({ "ph": "M", "name": "thread_name", "pid": lane.rank, "tid": thread, "args": { "name": group } })
        })
    });
    processes.chain(threads)
}

fn events(timeline: &Timeline<'_>, id: usize, operation: &Operation<'_>) -> Vec<Value> {
    let Operation { lane, group, created, started, until, entry, verdicts } = operation;
    let begin = if entry.is_message { *created } else { started.unwrap_or(*created) };
    let verdicts: Vec<&String> = verdicts.iter().map(|&at| &timeline.verdicts[at]).collect();
    let whole = json!({
        "ph": "X",
        "name": format!("{} {}", entry.kind, entry.sequence),
        "cat": if entry.is_message { "message" } else { "collective" },
        "pid": timeline.ranks[*lane].rank,
        "tid": group,
        "ts": microseconds(begin),
        "dur": microseconds(until - begin),
        "args": { "operation": entry, "queued_us": microseconds(begin - created), "verdicts": verdicts },
    });
    if entry.is_message { overlapping(&whole, id, microseconds(*until)) } else { vec![whole] }
}

/// The two ends of an event that may overlap others of its thread.
fn overlapping(whole: &Value, id: usize, until: f64) -> Vec<Value> {
    let [mut begin, mut end] = [whole.clone(), whole.clone()];
    (begin["ph"], begin["id"]) = (json!("b"), json!(id));
    (end["ph"], end["id"], end["ts"]) = (json!("e"), json!(id), json!(until));
    vec![begin, end]
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::dump::{Identity, TracedGroup};
    use crate::page::tests::Narrow;

    #[test]
    fn a_trace_is_written_event_by_event_and_says_the_same() {
        let dump = |rank| {
            let identity = Identity { rank, world_size: 1000, host_name: "host".to_owned(), pid: 7 };
            let mut dump = Dump::new(identity, SystemTime::UNIX_EPOCH);
            dump.groups = vec![TracedGroup { name: "a group".repeat(100), ..TracedGroup::default() }; 4];
            dump
        };
        let dumps: Vec<Dump> = (0..1000).map(dump).collect();
        let report = crate::analyse(&dumps);
        let mut out = Narrow::default();
        write(&mut out, &dumps, &report).expect("it takes all");
        assert!(out.longest < 4096, "{} bytes came at once", out.longest);
        let written: Value = serde_json::from_slice(&out.all).expect("JSON");
        assert_eq!(written, trace(&dumps, &report));
    }
}
