//! A call on its way from the group to its backend: the operation and everything that travels with it.

use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::hook::Watch;
use crate::op::Need;
use crate::recorder::{Flight, Record};
use crate::reduce::{Factor, ReduceOp};
use crate::{Chain, DType, Error, Op, Site, Stuck, Timeout};

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
    /// The round in which it was numbered.
    pub round: u32,
    /// What its first frames say.
    pub fingerprint: Fingerprint,
    /// Elements that it needs of each buffer.
    pub(crate) need: Need,
    /// How long it may take.
    pub timeout: Duration,
    /// Where in the program it was called.
    pub site: Site,
    /// Its entry in the flight recorder.
    pub flight: Flight,
    /// Who is told when it ends.
    pub(crate) watch: Option<Box<Watch>>,
}

impl Call {
    /// Writes this call down, unless it is already: whoever carries it out does so before it waits for anything.
    pub fn open(&self, now: Duration) {
        self.flight.open(|number| self.record(number, now));
    }

    /// Says that its turn has come.
    pub fn start(&self, now: Duration) {
        self.open(now);
        self.flight.start(now);
    }

    /// Says that its turn came when it was called, which is now unless it is written down already.
    pub fn start_when_called(&self, now: impl FnOnce() -> Duration) {
        self.flight.open_started(|number| self.record(number, now()));
    }

    /// Says that this call has ended, well or in `error`: whoever carries it out does so once, before its end is known.
    #[inline]
    pub fn end(&self, now: impl FnOnce() -> Duration, error: Option<&Error>) {
        if !self.flight.is_recorded() {
            return;
        }
        let now = now();
        self.flight.end(now, error.map(Error::kind), |number| self.record(number, now));
        if let Some(watch) = &self.watch {
            watch.end(&self.flight, now, error);
        }
    }

    /// What is written down under this number of a call that was made now.
    #[inline]
    pub(crate) fn record(&self, number: u64, now: Duration) -> Record {
        let (sequence, timeout) = (self.sequence, self.timeout);
        Record { number, sequence, created: now, timeout, ..Record::of(&self.op, self.need, self.dtype, self.site) }
    }

    /// The error of this call when it has taken too long, waiting for these transfers.
    pub fn timed_out(&self, stuck: Vec<Stuck>) -> Error {
        let (op, sequence, after) = (self.op.kind(), self.sequence, self.timeout);
        Error::Timeout(Box::new(Timeout { op, sequence, after, stuck, chain: Chain::Direct }))
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
