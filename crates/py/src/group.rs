//! A group as Python sees it: operations over memory that Python lends, at once on the calling thread or under way as a work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use phalanx::reduce::Factor;
use phalanx::{DType, Error, Group as Ranks, Op as Operation, OpKind, Result, Site, Transport};
use pyo3::{Bound, FromPyObject, Py, PyAny, PyResult, Python, pyclass, pymethods};

use crate::callsite;
use crate::failure::raised;
use crate::held::Held;
use crate::joining::Door;
use crate::memory::{Loan, Span};
use crate::operation::{Op, known};
use crate::served::Served;
use crate::shared::Memory;
use crate::work::Work;

/// A group of ranks and this process's place in it. It is left when [`leave`](Group::leave) was called and nothing is under way any more.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct Group {
    /// Absent once the group was left.
    ranks: Held<Ranks>,
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    size: usize,
    #[pyo3(get)]
    epoch: u32,
    /// How many collectives were called.
    called: AtomicU64,
    /// How many milliseconds a call may take that does not say it, or 0 for as long as the group says.
    patience: AtomicU64,
    transport: Option<Transport>,
    /// Where its ranks have met, and meet again after a disagreement; served here on one of them. It ends after the group.
    meeting_place: Served,
}

/// This rank's factor, for the reduction that has one.
#[derive(FromPyObject)]
enum Scale {
    Real(f64),
    #[pyo3(annotation = "tuple[float, float]")]
    Complex((f64, f64)),
}

impl Group {
    pub(crate) fn new(ranks: Ranks) -> Group {
        Group::over(ranks, None)
    }

    /// A group whose ranks met at a [`Door`].
    pub(crate) fn met(ranks: Ranks, transport: Transport) -> Group {
        Group::over(ranks, Some(transport))
    }

    fn over(ranks: Ranks, transport: Option<Transport>) -> Group {
        let (rank, size, epoch) = (ranks.rank(), ranks.size(), ranks.epoch());
        Group {
            ranks: Held::new(ranks),
            rank,
            size,
            epoch,
            called: AtomicU64::new(0),
            patience: AtomicU64::new(0),
            transport,
            meeting_place: Served::nothing(),
        }
    }

    /// A handle whose calls may take this many milliseconds, or as long as is usual, and are told as called at `site`.
    fn handle(&self, millis: Option<u64>, site: Option<Site>) -> Result<Ranks> {
        let ranks = self.ranks.look();
        let ranks = ranks.as_ref().ok_or_else(|| Error::aborted(format!("rank {} has left it", self.rank)))?;
        let ranks = ranks.at(site);
        Ok(match millis.unwrap_or(self.patience.load(Ordering::Relaxed)) {
            0 => ranks,
            millis => ranks.within(Duration::from_millis(millis)),
        })
    }

    fn play(&self, op: Operation, asked: &Asked, factor: Option<Scale>) -> Result<Option<usize>> {
        let (ranks, dtype, loan) = self.prepare(&op, asked)?;
        loan.lend(|input, output| ranks.run_bytes(op, dtype, factor.map(Factor::from), input, output))
    }

    /// What the arguments of `run` and `submit` have in common, checked.
    fn prepare(&self, op: &Operation, asked: &Asked) -> Result<(Ranks, DType, Loan)> {
        let name = op.kind().name();
        let dtype = element_type(name, asked.dtype)?;
        let loan = Loan::new(name, asked.input, asked.output)?;
        let ranks = self.handle(asked.millis, asked.site)?;
        if !op.is_message() {
            self.called.fetch_add(1, Ordering::Relaxed);
        }
        Ok((ranks, dtype, loan))
    }
}

/// The numbers of a call.
struct Asked {
    dtype: u8,
    output: Span,
    input: Option<Span>,
    millis: Option<u64>,
    site: Option<Site>,
}

#[pymethods]
impl Group {
    /// Carries `op` out on this thread: its peers are waited for. Returns the sender of a message that was received.
    ///
    /// `output` and `input` are addresses with their lengths in bytes; see the promise of the room `memory`.
    #[pyo3(signature = (op, dtype, output, input=None, millis=None, factor=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of Python's call, by position because it is short")]
    fn run(
        &self,
        py: Python<'_>,
        op: &Bound<'_, Op>,
        dtype: u8,
        output: Span,
        input: Option<Span>,
        millis: Option<u64>,
        factor: Option<Scale>,
    ) -> PyResult<Option<usize>> {
        let op = &op.get().0;
        let asked = Asked { dtype, output, input, millis, site: callsite::of_caller(py, op.kind()) };
        py.detach(|| self.play(op.clone(), &asked, factor)).map_err(|error| raised(py, &error, self.epoch))
    }

    /// Raises what `run` and `submit` would raise of one of several operations that are called together, of which none is to begin where
    /// another one cannot. Sends nothing.
    #[pyo3(signature = (op, dtype, output, input=None, factor=None))]
    fn check(
        &self,
        py: Python<'_>,
        op: &Bound<'_, Op>,
        dtype: u8,
        output: Span,
        input: Option<Span>,
        factor: Option<Scale>,
    ) -> PyResult<()> {
        let op = &op.get().0;
        let name = op.kind().name();
        let checked = py.detach(|| {
            let dtype = element_type(name, dtype)?;
            let loan = Loan::new(name, input, output)?;
            let ranks = self.handle(None, None)?;
            loan.lend(|input, output| ranks.check_bytes(op, dtype, factor.map(Factor::from), input, output))
        });
        checked.map_err(|error| raised(py, &error, self.epoch))
    }

    /// All-reduces the elements at `address` in place, on this thread: what `run` does with that operation, in fewer steps of Python.
    #[pyo3(signature = (dtype, reduce, address, byte_len, millis=None, factor=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of Python's call, by position because it is short")]
    fn all_reduce(
        &self,
        py: Python<'_>,
        dtype: u8,
        reduce: u8,
        address: usize,
        byte_len: usize,
        millis: Option<u64>,
        factor: Option<Scale>,
    ) -> PyResult<()> {
        let site = callsite::of_caller(py, OpKind::AllReduce);
        let asked = Asked { dtype, output: (address, byte_len), input: None, millis, site };
        let played = py.detach(|| {
            let element = DType::from_wire(dtype).map_or(1, DType::byte_len);
            let op = Operation::AllReduce { count: byte_len / element, reduce: known(reduce)? };
            self.play(op, &asked, factor)
        });
        played.map(drop).map_err(|error| raised(py, &error, self.epoch))
    }

    /// Begins `op` and returns at once. `owner` is kept until the operation has ended: it is what the memory belongs to.
    #[pyo3(signature = (op, dtype, output, owner, input=None, millis=None, factor=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of Python's call, by position because it is short")]
    fn submit(
        &self,
        py: Python<'_>,
        op: &Bound<'_, Op>,
        dtype: u8,
        output: Span,
        owner: Py<PyAny>,
        input: Option<Span>,
        millis: Option<u64>,
        factor: Option<Scale>,
    ) -> PyResult<Work> {
        let op = &op.get().0;
        let asked = Asked { dtype, output, input, millis, site: callsite::of_caller(py, op.kind()) };
        let owner_of_input = owner.clone_ref(py);
        let submitted = py.detach(|| {
            let (ranks, dtype, loan) = self.prepare(op, &asked)?;
            let buffers = loan.buffers(owner, owner_of_input);
            ranks.submit_bytes(op.clone(), dtype, factor.map(Factor::from), buffers)
        });
        submitted.map(|pending| Work::new(pending, self.epoch)).map_err(|error| raised(py, &error, self.epoch))
    }

    /// Zeroed bytes for this group's operations, of the fastest kind there is.
    fn buffer(&self, py: Python<'_>, byte_len: usize) -> PyResult<Memory> {
        let made = py.detach(|| self.handle(None, None)?.buffer(byte_len));
        made.map(Memory::new).map_err(|error| raised(py, &error, self.epoch))
    }

    /// Waits for every rank, and says who does not come, all of them if so asked.
    #[pyo3(signature = (wait_all, millis=None))]
    fn monitored_barrier(&self, py: Python<'_>, wait_all: bool, millis: Option<u64>) -> PyResult<()> {
        let site = callsite::of_caller(py, OpKind::Barrier);
        let met = py.detach(|| self.handle(millis, site)?.monitored_barrier(wait_all));
        met.map_err(|error| raised(py, &error, self.epoch))
    }

    /// Keeps the door open as long as the group lasts, where its ranks come back to it: those that share memory only do not.
    fn keep(&self, door: &Door) {
        if self.transport == Some(Transport::Tcp) {
            self.meeting_place.take_over(&door.server);
        }
    }

    /// Has calls that do not say how long they may take, take so many milliseconds from now on.
    fn set_timeout(&self, millis: u64) {
        self.patience.store(millis.max(1), Ordering::Relaxed);
    }

    /// Ends the group: what is under way and to come fails on every rank, with these words.
    fn abort(&self, py: Python<'_>, why: &str) {
        py.detach(|| {
            if let Ok(ranks) = self.handle(None, None) {
                ranks.abort(why);
            }
        });
    }

    /// Leaves the group. What is under way ends as it would have; calls after it fail.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| {
            drop(self.ranks.take());
            self.meeting_place.close();
        });
    }

    /// How many collectives this rank has called.
    #[getter]
    fn called(&self) -> u64 {
        self.called.load(Ordering::Relaxed)
    }

    /// Who shares a host with whom: the number of each rank's host.
    #[getter]
    fn hosts(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.handle(None, None)
            .map(|ranks| ranks.layout().hosts().to_vec())
            .map_err(|error| raised(py, &error, self.epoch))
    }
}

fn element_type(call: &'static str, number: u8) -> Result<DType> {
    DType::from_wire(number).ok_or_else(|| Error::usage(call, "dtype", number, "must be the number of a dtype"))
}

impl From<Scale> for Factor {
    fn from(scale: Scale) -> Factor {
        match scale {
            Scale::Real(factor) => Factor::Real(factor),
            Scale::Complex((real, imaginary)) => Factor::Complex(num_complex::Complex::new(real, imaginary)),
        }
    }
}
