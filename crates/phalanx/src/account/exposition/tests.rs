//! A page for Prometheus, read by a strict reader.

use std::collections::BTreeMap;

use phalanx_core::recorder::Total;

use super::*;
use crate::account::{FORMAT, GroupAccount, KindAccount, Underway};

#[path = "../../../tests/metrics/strict.rs"]
mod strict;

use strict::Samples;

fn account(groups: Vec<GroupAccount>) -> Account {
    Account {
        format: FORMAT,
        job: "a \"job\"\\\n".to_owned(),
        rank: 3,
        world_size: 4,
        local_rank: 1,
        host_name: "node".to_owned(),
        pid: 7,
        metrics: None,
        groups,
    }
}

fn group(number: u64) -> GroupAccount {
    let mut durations = vec![0; Total::BUCKETS];
    (durations[0], durations[3], durations[Total::BUCKETS - 1]) = (2, 1, 1);
    let kind = KindAccount {
        kind: "all_reduce".to_owned(),
        called: 5,
        ended: 4,
        failed: BTreeMap::from([("timeout".to_owned(), 1)]),
        input_bytes: 80,
        output_bytes: 90,
        queued_ns: 500_000_000,
        busy_ns: 2_000_000_000,
        durations,
    };
    let pending = Underway { called_ns: 1_500_000_000, sequence: 4, ..Underway::default() };
    let pending_message = Some(Underway { called_ns: 2_500_000_000, is_message: true, ..Underway::default() });
    let (last_collective, pending) = (Some(pending.clone()), Some(pending));
    let kinds = vec![kind.clone(), KindAccount { kind: "barrier".to_owned(), failed: BTreeMap::new(), ..kind }];
    let name = "world".to_owned();
    GroupAccount { name, number, kinds, last_collective, pending, pending_message, ..GroupAccount::default() }
}

#[test]
fn a_page_is_what_prometheus_reads() {
    let samples = Samples::read(&exposition(&account(vec![group(0), group(1)])));
    let identity = [("job_name", "a \"job\"\\\n"), ("rank", "3"), ("world_size", "4"), ("host", "node")];
    assert!((samples.value("phalanx_rank_info", &identity) - 1.0).abs() < 1e-9);
    for number in ["0", "1"] {
        let own = [("rank", "3"), ("group", "world"), ("number", number), ("kind", "all_reduce")];
        let value =
            |name: &str, more: &[(&str, &str)]| samples.value(&format!("phalanx_{name}"), &[&own, more].concat());
        let moment = |name: &str| samples.value(&format!("phalanx_{name}"), &own[..3]);
        let found = [
            value("operations_total", &[]),
            value("failures_total", &[("error", "timeout")]),
            value("bytes_total", &[("direction", "input")]),
            value("bytes_total", &[("direction", "output")]),
            value("operations_in_flight", &[]),
            value("queued_seconds_total", &[]),
            value("operation_seconds_sum", &[]),
            value("operation_seconds_count", &[]),
            value("operation_seconds_bucket", &[("le", "0.000000512")]),
            value("operation_seconds_bucket", &[("le", "0.000004096")]),
            value("operation_seconds_bucket", &[("le", "17.179869184")]),
            moment("oldest_operation_seconds"),
            moment("collective_sequence"),
        ];
        assert_eq!(found, [4.0, 1.0, 80.0, 90.0, 1.0, 0.5, 2.5, 4.0, 2.0, 3.0, 3.0, 2.5, 4.0]);
    }
}

#[test]
fn a_rank_without_groups_has_a_page() {
    let page = exposition(&account(Vec::new()));
    Samples::read(&page);
    assert_eq!(page.lines().filter(|line| !line.starts_with('#')).count(), 1);
}
