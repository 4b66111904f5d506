//! An account as series with names and labels, whoever is told of them. The names are a promise, kept in docs/metrics.md.

use phalanx_core::recorder::Total;

use super::{Account, GroupAccount, KindAccount};

/// All series of one name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample>,
}

/// How the samples of a family go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Counter,
    Gauge,
    /// Counters by `le`, with their sum and count.
    Histogram,
}

/// One series at this moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// What its name has after the family's.
    pub(crate) suffix: &'static str,
    pub(crate) labels: Labels,
    pub(crate) value: Value,
}

/// What a series says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Count(u64),
    Measure(f64),
}

pub(crate) type Labels = Vec<(&'static str, String)>;

/// The account in series.
pub(crate) fn families(account: &Account) -> Vec<Family> {
    use Shape::{Counter, Gauge, Histogram};
    let kinds = |name, shape, help, of: &dyn Fn(&KindAccount, &mut Samples)| {
        let mut samples = Samples::default();
        for (group, kind) in account.groups.iter().flat_map(|group| group.kinds.iter().map(move |kind| (group, kind))) {
            samples.labels = labels(account, group);
            samples.labels.push(("kind", kind.kind.clone()));
            of(kind, &mut samples);
        }
        Family { name, shape, help, samples: samples.all }
    };
    let groups = |name, help, of: &dyn Fn(&GroupAccount) -> Option<Value>| {
        let sample = |group| Some(Sample { suffix: "", labels: labels(account, group), value: of(group)? });
        Family { name, shape: Gauge, help, samples: account.groups.iter().filter_map(sample).collect() }
    };
    vec![
        identity(account),
        kinds(OPERATIONS, Counter, "Operations that have ended, well or not.", &|kind, samples| {
            samples.count(None, kind.ended);
        }),
        kinds(FAILURES, Counter, "Operations that have ended in an error.", &|kind, samples| {
            kind.failed.iter().for_each(|(error, count)| samples.count(Some(("error", error)), *count));
        }),
        kinds(
            BYTES,
            Counter,
            "Bytes that this rank gave to operations that were called, or gets.",
            &|kind, samples| {
                samples.count(Some(("direction", "input")), kind.input_bytes);
                samples.count(Some(("direction", "output")), kind.output_bytes);
            },
        ),
        kinds(IN_FLIGHT, Gauge, "Operations that have not ended.", &|kind, samples| {
            samples.count(None, kind.in_flight());
        }),
        kinds(QUEUED, Counter, "Time that operations waited for their turn on this rank.", &|kind, samples| {
            samples.add("", None, Value::Measure(seconds(kind.queued_ns)));
        }),
        kinds(DURATIONS, Histogram, "Time from the call of an operation to its end.", &durations),
        groups(
            OLDEST,
            "How long ago the oldest operation was called that has not ended; 0 where all have.",
            &|group| Some(Value::Measure(seconds(group.oldest_ns()))),
        ),
        groups(SEQUENCE, "The number of the collective that this rank called last.", &|group| {
            Some(Value::Count(group.last_sequence()?.into()))
        }),
    ]
}

fn identity(account: &Account) -> Family {
    let labels = vec![
        ("rank", account.rank.to_string()),
        ("world_size", account.world_size.to_string()),
        ("local_rank", account.local_rank.to_string()),
        ("pid", account.pid.to_string()),
        ("job_name", account.job.clone()),
        ("host", account.host_name.clone()),
    ];
    let samples = vec![Sample { suffix: "", labels, value: Value::Count(1) }];
    Family { name: "phalanx_rank_info", shape: Shape::Gauge, help: "Who this rank is; always 1.", samples }
}

fn labels(account: &Account, group: &GroupAccount) -> Labels {
    vec![("rank", account.rank.to_string()), ("group", group.name.clone()), ("number", group.number.to_string())]
}

/// The samples of a family in the making.
#[derive(Default)]
struct Samples {
    all: Vec<Sample>,
    /// Those of the kind of operation at hand.
    labels: Labels,
}

impl Samples {
    fn count(&mut self, label: Option<(&'static str, &str)>, count: u64) {
        self.add("", label, Value::Count(count));
    }

    fn add(&mut self, suffix: &'static str, label: Option<(&'static str, &str)>, value: Value) {
        let more = label.map(|(name, value)| (name, value.to_owned()));
        let labels = self.labels.iter().cloned().chain(more).collect();
        self.all.push(Sample { suffix, labels, value });
    }
}

fn durations(kind: &KindAccount, samples: &mut Samples) {
    let mut sum = 0_u64;
    for (bucket, count) in kind.durations.iter().enumerate().take(Total::BUCKETS) {
        sum = sum.saturating_add(*count);
        let bound = Total::bound(bucket).map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
        samples.add("_bucket", Some(("le", &bound)), Value::Count(sum));
    }
    samples.add("_sum", None, Value::Measure(seconds(kind.queued_ns.saturating_add(kind.busy_ns))));
    samples.add("_count", None, Value::Count(sum));
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

const OPERATIONS: &str = "phalanx_operations_total";
const FAILURES: &str = "phalanx_failures_total";
const BYTES: &str = "phalanx_bytes_total";
const IN_FLIGHT: &str = "phalanx_operations_in_flight";
const QUEUED: &str = "phalanx_queued_seconds_total";
const DURATIONS: &str = "phalanx_operation_seconds";
const OLDEST: &str = "phalanx_oldest_operation_seconds";
const SEQUENCE: &str = "phalanx_collective_sequence";
