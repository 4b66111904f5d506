//! Ranks as they might answer, for tests.

use phalanx::{GroupAccount, Neighbour, Underway};
use serde_json::json;

use super::super::look::{GroupView, RankView};

/// A group that has ended so many operations with so many bytes, and failed in some.
pub(crate) fn group(ended: u64, bytes: u64, failed: u64) -> GroupAccount {
    let kind = json!({
        "kind": "all_reduce", "called": ended, "ended": ended, "failed": { "timeout": failed }, "input_bytes": bytes,
        "output_bytes": 0, "queued_ns": 0, "busy_ns": 0, "durations": [],
    });
    let group = json!({
        "name": "world", "number": 0, "epoch": 0, "members": [0, 1], "transport": "TCP", "now_ns": 1_000_000_000,
        "kinds": [kind], "last": null, "last_collective": null, "upcoming": null, "pending": null,
    });
    serde_json::from_value(group).expect("a group")
}

/// An all-reduce that was called so long ago, when its turn came too.
pub(crate) fn pending(sequence: u32, called_ns: u64) -> Underway {
    let underway = json!({
        "kind": "all_reduce", "sequence": sequence, "is_message": false, "peer": null, "state": "started",
        "called_ns": called_ns, "started_ns": called_ns, "site": "train.rs:9",
    });
    serde_json::from_value(underway).expect("an operation")
}

/// A rank of the job `train` with these groups, or one that is stopped.
pub(crate) fn rank(number: usize, world_size: usize, groups: Option<Vec<GroupView>>) -> RankView {
    let account = groups.as_ref().map(|_| {
        json!({
            "format": 1, "job": "train", "rank": number, "world_size": world_size, "local_rank": number,
            "host_name": "node", "pid": 100 + number, "metrics": null, "groups": [],
        })
    });
    let neighbour = json!({
        "pid": 100 + number, "uid": 1000, "world": 0, "job": "train", "rank": number, "world_size": world_size,
        "account": account,
    });
    let neighbour: Neighbour = serde_json::from_value(neighbour).expect("a neighbour");
    let process = Some(if groups.is_some() { "sleeping" } else { "stopped" });
    RankView { neighbour, process, groups: groups.unwrap_or_default() }
}
