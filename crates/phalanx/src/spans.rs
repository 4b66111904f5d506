//! A span of the `tracing` crate for every operation of a group: a value that a program hangs into a group, no global.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use phalanx_core::recorder::Record;
use phalanx_core::{Error, Hook, OpKind};
use tracing::{Span, field, info_span};

/// A [`Hook`] that makes a span of each operation, from its call to its end: `all_reduce`, `send` and so on, of the target `phalanx` and
/// the level `INFO`.
///
/// Its fields are `group` and `rank`, as said here; `sequence`, `dtype`, `input_bytes`, `output_bytes`, `peer`; and at the end `error`, where it
/// is one. Its parent is the span that was entered where the operation was called. It is not entered itself, because an asynchronous
/// operation ends on another thread.
///
/// ```no_run
/// # use std::sync::Arc;
/// let world = phalanx::init()?;
/// let spans = phalanx::Spans::new("world", world.rank());
/// let options = phalanx::GroupOptions::default().hook(Arc::new(spans));
/// let group = world.wire(&phalanx::Wiring::default().options(options))?;
/// # Ok::<(), phalanx::Error>(())
/// ```
pub struct Spans {
    group: String,
    rank: usize,
    /// Of operations that have not ended, by their numbers.
    open: Mutex<HashMap<u64, Span>>,
}

impl Spans {
    /// Spans of one group, which are told apart by its name and this rank. Each group has to have a value of its own, because operations are
    /// known by their numbers: so it is not for the wiring of a mesh or of several groups.
    pub fn new(group: impl Into<String>, rank: usize) -> Spans {
        Spans { group: group.into(), rank, open: Mutex::default() }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Span>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook for Spans {
    fn before(&self, record: &Record) {
        let span = span(&self.group, self.rank, record);
        if !span.is_disabled() {
            self.open().insert(record.number, span);
        }
    }

    fn after(&self, record: &Record, error: Option<&Error>) {
        let span = self.open().remove(&record.number);
        if let (Some(span), Some(error)) = (&span, error) {
            span.record("error", field::display(error));
        }
        // It closes here, where no lock is held.
        drop(span);
    }
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spans({} rank {})", self.group, self.rank)
    }
}

/// The name of a span is part of the program, so each kind of operation has a line of its own.
fn span(group: &str, rank: usize, record: &Record) -> Span {
    let byte_len = record.dtype.byte_len();
    let (input, output) = (record.input * byte_len, record.output * byte_len);
    macro_rules! of {
        ($name:literal) => {
            info_span!(
                target: "phalanx",
                $name,
                group,
                rank,
                sequence = record.sequence,
                dtype = record.dtype.name(),
                input_bytes = input,
                output_bytes = output,
                peer = record.peer,
                error = field::Empty,
            )
        };
    }
    match record.op {
        OpKind::AllReduce => of!("all_reduce"),
        OpKind::Reduce => of!("reduce"),
        OpKind::Broadcast => of!("broadcast"),
        OpKind::AllGather => of!("all_gather"),
        OpKind::ReduceScatter => of!("reduce_scatter"),
        OpKind::AllToAll => of!("all_to_all"),
        OpKind::Gather => of!("gather"),
        OpKind::Scatter => of!("scatter"),
        OpKind::Barrier => of!("barrier"),
        OpKind::Send => of!("send"),
        OpKind::Recv => of!("recv"),
        // None that is known; a test sees to it.
        _ => of!("operation"),
    }
}

#[cfg(test)]
mod tests;
