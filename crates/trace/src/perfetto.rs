//! Dumps as Chrome trace events, which Perfetto and others show: a process a rank, a thread a group.

use serde_json::{Value, json};

use crate::analyse::Report;
use crate::dump::Dump;
use crate::timeline::{Operation, Timeline};

/// The dumps and what was found in them as the JSON of a trace.
///
/// Collectives stand from their turn to their end; messages, which overlap, and the time in the queue are in `args`.
pub fn trace(dumps: &[Dump], report: &Report) -> Value {
    let timeline = Timeline::of(dumps, report);
    let processes = timeline.ranks.iter().map(|lane| {
        let host = lane.host.map(|host| format!(" on {host}")).unwrap_or_default();
        json!({ "ph": "M", "name": "process_name", "pid": lane.rank, "args": { "name": format!("rank {}{host}", lane.rank) } })
    });
    let threads = timeline.ranks.iter().flat_map(|lane| {
        timeline.groups.iter().enumerate().map(|(thread, group)| {
            json!({ "ph": "M", "name": "thread_name", "pid": lane.rank, "tid": thread, "args": { "name": group } })
        })
    });
    let operations =
        timeline.operations.iter().enumerate().flat_map(|(id, operation)| events(&timeline, id, operation));
    let verdicts = timeline.verdicts.iter().map(|verdict| {
        let at = microseconds(timeline.span);
        json!({ "ph": "i", "s": "g", "name": verdict, "cat": "verdict", "pid": 0, "tid": 0, "ts": at })
    });
    let events: Vec<Value> = processes.chain(threads).chain(operations).chain(verdicts).collect();
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
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
