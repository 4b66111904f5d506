//! Errors of Rust as an exception of Python, with what they say as attributes. Which of PyTorch's exceptions it becomes is not decided here.

use phalanx::{Error as Failure, StoreError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::types::PyAnyMethods;
use pyo3::{PyErr, Python, create_exception};

create_exception!(
    phalanx._native,
    Error,
    PyRuntimeError,
    "Why a call did not give its result.\n\n\
     kind: usage, desync, peer, timeout, aborted, device or setup; scope: call, group or process, what is no longer usable;\n\
     ranks: those who are dead, missing or disagree; epoch: of the group; sequence: of the operation where the error has one;\n\
     after: the seconds that were waited, where the time was up."
);

create_exception!(
    phalanx._native,
    NetworkError,
    Error,
    "A store that is not reached, that was lost, or that cannot be served where it should be. It says what every Error does."
);

/// What Python is raised for `failure` of a group in this epoch.
pub(crate) fn raised(py: Python<'_>, failure: &Failure, epoch: u32) -> PyErr {
    Said::of(failure, epoch).aloud(py, Error::new_err(failure.to_string()))
}

/// What Python is raised for a server that did not come up: PyTorch has a word for what the network is to blame for.
pub(crate) fn raised_by_server(py: Python<'_>, failure: &Failure) -> PyErr {
    Said::of(failure, 0).aloud(py, NetworkError::new_err(failure.to_string()))
}

/// What Python is raised for a store that did not answer as asked.
pub(crate) fn raised_by_store(py: Python<'_>, failure: &StoreError) -> PyErr {
    let (kind, scope, after) = match failure {
        StoreError::Timeout { after, .. } => ("timeout", "call", Some(after.as_secs_f64())),
        StoreError::Refused { .. } => ("usage", "call", None),
        _ => ("setup", "process", None),
    };
    let told = failure.to_string();
    let is_lost = matches!(failure, StoreError::Lost { .. });
    let error = if is_lost { NetworkError::new_err(told) } else { Error::new_err(told) };
    Said { kind, scope, ranks: Vec::new(), epoch: None, sequence: None, after }.aloud(py, error)
}

/// What an exception has for attributes.
struct Said {
    kind: &'static str,
    scope: &'static str,
    ranks: Vec<usize>,
    epoch: Option<u32>,
    sequence: Option<u32>,
    after: Option<f64>,
}

impl Said {
    fn of(failure: &Failure, epoch: u32) -> Said {
        Said {
            kind: failure.kind().name(),
            scope: failure.scope().name(),
            ranks: ranks(failure),
            epoch: Some(epoch),
            sequence: sequence(failure),
            after: after(failure),
        }
    }

    fn aloud(self, py: Python<'_>, error: PyErr) -> PyErr {
        let value = error.value(py);
        let named = [
            value.setattr("kind", self.kind),
            value.setattr("scope", self.scope),
            value.setattr("ranks", self.ranks),
            value.setattr("epoch", self.epoch),
            value.setattr("sequence", self.sequence),
            value.setattr("after", self.after),
        ];
        // What could not be said is told instead.
        named.into_iter().find_map(Result::err).unwrap_or(error)
    }
}

/// The ranks to go on without, or the two that disagree.
fn ranks(failure: &Failure) -> Vec<usize> {
    match first(failure) {
        Failure::Desync(desync) => vec![desync.rank.min(desync.peer), desync.rank.max(desync.peer)],
        cause => cause.culprits(),
    }
}

fn sequence(failure: &Failure) -> Option<u32> {
    match first(failure) {
        Failure::Desync(desync) => Some(desync.sequence),
        Failure::Timeout(timeout) => Some(timeout.sequence),
        _ => None,
    }
}

fn after(failure: &Failure) -> Option<f64> {
    match failure {
        Failure::Timeout(timeout) => Some(timeout.after.as_secs_f64()),
        _ => None,
    }
}

/// The first failure, in whose wake this one is.
fn first(failure: &Failure) -> &Failure {
    match failure {
        Failure::Aborted(aborted) => aborted.cause.as_deref().map_or(failure, first),
        own => own,
    }
}
