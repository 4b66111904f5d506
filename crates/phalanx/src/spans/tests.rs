//! What a subscriber of the `tracing` crate hears.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use phalanx_comm::Threads;
use phalanx_core::{GroupOptions, ReduceOp};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as Recorded};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// A subscriber that writes down what happens to spans.
#[derive(Clone, Default)]
struct Listener {
    said: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicU64>,
}

/// Fields as `name=value`.
#[derive(Default)]
struct Fields(Vec<String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push(format!("{}={value:?}", field.name()));
    }
}

impl Listener {
    fn say(&self, line: String) {
        self.said.lock().unwrap().push(line);
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "phalanx"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let (mut fields, id) = (Fields::default(), self.count.fetch_add(1, Ordering::Relaxed) + 1);
        span.record(&mut fields);
        self.say(format!("{id} {} {}", span.metadata().name(), fields.0.join(" ")));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Recorded<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.say(format!("{} {}", span.into_u64(), fields.0.join(" ")));
    }

    fn try_close(&self, span: Id) -> bool {
        self.say(format!("{} closed", span.into_u64()));
        true
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn an_operation_is_a_span_from_its_call_to_its_end() {
    let (listener, spans) = (Listener::default(), Arc::new(Spans::new("alone", 0)));
    let options = GroupOptions::default().hook(Arc::clone(&spans) as _);
    let ended = Threads::new(1).options(options).run(|group| {
        tracing::subscriber::with_default(listener.clone(), || group.all_reduce(&mut [1.0_f32; 3], ReduceOp::Sum))
    });
    assert_eq!(ended.unwrap(), [Ok(())]);
    let begun = "1 all_reduce group=\"alone\" rank=0 sequence=0 dtype=\"f32\" input_bytes=12 output_bytes=12";
    assert_eq!(*listener.said.lock().unwrap(), [begun, "1 closed"]);
    assert!(spans.open().is_empty());
}

#[test]
fn a_span_says_why_its_operation_failed() {
    let (listener, spans, record) = (Listener::default(), Spans::new("alone", 0), a_record());
    let error = Error::setup("a link", "is cut");
    tracing::subscriber::with_default(listener.clone(), || {
        spans.before(&record);
        spans.after(&record, Some(&error));
        // Nobody was told that this one began.
        spans.after(&record, None);
    });
    let said = listener.said.lock().unwrap();
    assert!(said[0].starts_with("1 barrier group=\"alone\""), "{said:?}");
    assert_eq!(said[1..], ["1 error=a link: is cut", "1 closed"]);
}

#[test]
fn every_kind_has_a_span_of_its_name() {
    let listener = Listener::default();
    tracing::subscriber::with_default(listener.clone(), || {
        for op in OpKind::ALL {
            let record = Record { op, ..a_record() };
            assert_eq!(span("world", 0, &record).metadata().map(|metadata| metadata.name()), Some(op.name()));
        }
    });
}

fn a_record() -> Record {
    let ended = Threads::new(1).run(|group| {
        group.barrier().unwrap();
        group.recorder().records()[0]
    });
    ended.unwrap()[0]
}
