//! The account of a rank for the `metrics` crate: the same series as Prometheus gets, told to whichever recorder the program has.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, Recorder, Unit, with_recorder};
use phalanx_comm::rendezvous::World;
use phalanx_core::{Error, Result};

use crate::account::{Accountant, Family, Sample, Shape, Value, families};
use crate::companion::Companion;
use crate::presence::Seat;

/// Tells the recorder of the `metrics` crate how the groups of a world stand, as often as it is asked to.
///
/// Nothing is told while operations run, so a program that never asks, or has no recorder, pays nothing. Names and labels are those of
/// docs/metrics.md. A histogram comes as the counters that Prometheus makes of one; seconds come as gauges, because counters are whole
/// numbers there.
///
/// ```no_run
/// # use std::time::Duration;
/// let world = phalanx::init()?;
/// let _publishing = phalanx::Publisher::of(&world).every(Duration::from_secs(10))?;
/// # Ok::<(), phalanx::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Publisher {
    accountant: Accountant,
}

/// A thread that publishes until this is dropped.
#[must_use]
pub struct Publishing {
    /// Dropped first, which the thread notices.
    _end: Sender<()>,
    _thread: Companion,
}

impl Publisher {
    /// A publisher of this world's groups on this rank. It keeps neither.
    pub fn of(world: &World) -> Publisher {
        Publisher { accountant: Accountant::of(Seat::of(world)) }
    }

    /// Tells the recorder once.
    pub fn publish(&self) {
        let families = families(&self.accountant.account());
        with_recorder(|recorder| families.iter().for_each(|family| tell(recorder, family)));
    }

    /// Tells it again and again on a thread of its own, and a last time at the end. A period of less than 10 ms is one of 10 ms.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), when the system has no thread for it.
    pub fn every(self, period: Duration) -> Result<Publishing> {
        let (end, ended) = channel::<()>();
        let publish = move || repeat(&ended, period, || self.publish());
        let thread = thread::Builder::new().name("phalanx-metrics".to_owned());
        let started = Companion::start(thread, publish).map_err(|error| Error::setup("publisher of metrics", error))?;
        Ok(Publishing { _end: end, _thread: started })
    }
}

/// Does so until the end, and once more.
fn repeat(ended: &Receiver<()>, period: Duration, publish: impl Fn()) {
    while ended.recv_timeout(period.max(SHORTEST)) == Err(RecvTimeoutError::Timeout) {
        publish();
    }
    publish();
}

impl fmt::Debug for Publishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publishing")
    }
}

fn tell(recorder: &dyn Recorder, family: &Family) {
    let metadata = Metadata::new("phalanx", Level::INFO, None);
    let mut described: Vec<&str> = Vec::new();
    for Sample { suffix, labels, value } in &family.samples {
        let name = format!("{}{suffix}", family.name);
        let is_counter = matches!(value, Value::Count(_)) && family.shape != Shape::Gauge;
        if !described.contains(suffix) {
            described.push(suffix);
            describe(recorder, &name, family.help, is_counter);
        }
        let labels: Vec<Label> = labels.iter().map(|(name, value)| Label::new(*name, value.clone())).collect();
        let key = Key::from_parts(name, labels);
        match *value {
            Value::Count(count) if is_counter => recorder.register_counter(&key, &metadata).absolute(count),
            Value::Count(count) => recorder.register_gauge(&key, &metadata).set(count as f64),
            Value::Measure(measure) => recorder.register_gauge(&key, &metadata).set(measure),
        }
    }
}

fn describe(recorder: &dyn Recorder, name: &str, help: &'static str, is_counter: bool) {
    let name = name.to_owned();
    match is_counter {
        true => recorder.describe_counter(name.into(), Some(Unit::Count), help.into()),
        false => recorder.describe_gauge(name.into(), None, help.into()),
    }
}

/// More often nobody looks, and a thread that never rests takes a core from the ranks.
const SHORTEST: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
