//! What a recorder of the `metrics` crate is told.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, KeyName, SharedString, with_local_recorder};

use super::*;

/// A recorder that remembers what it was told last.
#[derive(Clone, Default)]
struct Remembering(Arc<Mutex<BTreeMap<String, f64>>>);

/// One series of it.
struct Series(Remembering, String);

impl Remembering {
    fn told(&self, series: &str) -> Option<f64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(series).copied()
    }

    fn series(&self, key: &Key) -> Arc<Series> {
        let labels = key.labels().filter(|label| label.key() != "rank" && label.key() != "number");
        let labels: Vec<String> = labels.map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Series(self.clone(), format!("{} {}", key.name(), labels.join(" "))))
    }
}

impl Series {
    fn is(&self, value: f64) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).insert(self.1.clone(), value);
    }
}

impl CounterFn for Series {
    fn increment(&self, _: u64) {
        panic!("totals are told as they are");
    }

    fn absolute(&self, value: u64) {
        self.is(value as f64);
    }
}

impl GaugeFn for Series {
    fn increment(&self, _: f64) {
        panic!("moments are told as they are");
    }

    fn decrement(&self, _: f64) {
        panic!("moments are told as they are");
    }

    fn set(&self, value: f64) {
        self.is(value);
    }
}

impl Recorder for Remembering {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.series(&Key::from_name(format!("described {}", name.as_str()))).is(1.0);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.series(&Key::from_name(format!("described {}", name.as_str()))).is(1.0);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("a histogram comes as counters");
    }
}

#[test]
fn a_recorder_is_told_what_prometheus_is() {
    let store = std::env::temp_dir().join(format!("phalanx-publish-{}", std::process::id()));
    let world = crate::join(&format!("file://{}?rank=0&world_size=1", store.display())).unwrap();
    let group = world.group().unwrap();
    for _ in 0..3 {
        group.all_reduce(&mut [1.0_f32; 2000], phalanx_core::ReduceOp::Sum).unwrap();
    }
    let recorder = Remembering::default();
    let publisher = Publisher::of(&world);
    // Nobody listens: nothing happens.
    publisher.publish();
    with_local_recorder(&recorder, || publisher.publish());
    for (series, value) in [
        ("phalanx_operations_total group=world kind=all_reduce", 3.0),
        ("phalanx_bytes_total group=world kind=all_reduce direction=output", 24000.0),
        ("phalanx_operations_in_flight group=world kind=all_reduce", 0.0),
        ("phalanx_operation_seconds_count group=world kind=all_reduce", 3.0),
        ("phalanx_operation_seconds_bucket group=world kind=all_reduce le=+Inf", 3.0),
        ("phalanx_oldest_operation_seconds group=world", 0.0),
        ("phalanx_collective_sequence group=world", 2.0),
        ("described phalanx_operations_total ", 1.0),
        ("described phalanx_operation_seconds_sum ", 1.0),
    ] {
        assert_eq!(recorder.told(series), Some(value), "{series}: {:?}", recorder.0);
    }
    assert!(recorder.told("phalanx_operation_seconds_sum group=world kind=all_reduce").is_some_and(|sum| sum > 0.0));
    drop(group);
    // A thread publishes until it is told to end.
    publisher.every(Duration::from_secs(3600)).map(drop).unwrap();
    drop(world);
    std::fs::remove_file(store).unwrap();
}

#[test]
fn a_period_of_nothing_leaves_the_thread_its_rest() {
    let ((end, ended), began, told) = (channel::<()>(), Instant::now(), Cell::new(0));
    let end = Cell::new(Some(end));
    repeat(&ended, Duration::ZERO, || {
        told.set(told.get() + 1);
        if told.get() == 3 {
            end.take();
        }
    });
    assert_eq!(told.get(), 4);
    assert!(began.elapsed() >= 3 * SHORTEST);
}
