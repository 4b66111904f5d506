//! A call on its way from the group to its backend: the operation and everything that travels with it.

use std::panic::Location;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::recorder::Flight;
use crate::reduce::{Factor, ReduceOp};
use crate::{DType, Error, Op, Stuck, Timeout};

/// One checked and numbered operation.
#[derive(Clone, Debug)]
pub struct Call {
    /// What is to be done.
    pub op: Op,
    /// The type of the elements.
    pub dtype: DType,
    /// This rank's factor, for the reduction that has one.
    pub factor: Option<Factor>,
    /// Whether the input stands in the output buffer.
    pub in_place: bool,
    /// The operation's number: collectives are played in this order on every rank. Messages are numbered apart.
    pub sequence: u32,
    /// What its first frames say.
    pub fingerprint: Fingerprint,
    /// When it was called, by the backend's clock.
    pub created: Duration,
    /// How long it may take, from then on.
    pub timeout: Duration,
    /// Where in the program it was called.
    pub site: &'static Location<'static>,
    /// Its entry in the flight recorder.
    pub flight: Flight,
}

impl Call {
    /// The error of this call when it has taken too long, waiting for these transfers.
    pub fn timed_out(&self, stuck: Vec<Stuck>) -> Error {
        let (op, sequence, after) = (self.op.kind(), self.sequence, self.timeout);
        Error::Timeout(Box::new(Timeout { op, sequence, after, stuck }))
    }
}

/// How elements are joined, and this rank's factor where the reduction has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    pub(crate) op: ReduceOp,
    pub(crate) factor: Option<Factor>,
}

impl Reduction {
    /// The sum of all ranks' elements, each multiplied by its own rank's factor first.
    pub fn scaled(factor: impl Into<Factor>) -> Reduction {
        Reduction { op: ReduceOp::PreMulSum, factor: Some(factor.into()) }
    }
}

impl From<ReduceOp> for Reduction {
    fn from(op: ReduceOp) -> Reduction {
        Reduction { op, factor: None }
    }
}
