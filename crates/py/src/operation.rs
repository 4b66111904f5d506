//! Operations as Python says them: the core's own, one constructor each.

use phalanx::{Counts, Error, Op as Operation, ReduceOp, Result};
use pyo3::{FromPyObject, PyResult, Python, pyclass, pymethods};

use crate::failure::raised;

/// What is to be done. How many elements it needs of each buffer is checked when it is called.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct Op(pub(crate) Operation);

/// One number for all ranks, or one for each.
#[derive(FromPyObject)]
pub(crate) enum Shares {
    Even(usize),
    Uneven(Vec<usize>),
}

#[pymethods]
impl Op {
    #[staticmethod]
    fn all_reduce(py: Python<'_>, count: usize, reduce: u8) -> PyResult<Op> {
        Ok(Op(Operation::AllReduce { count, reduce: reduction(py, reduce)? }))
    }

    #[staticmethod]
    fn reduce(py: Python<'_>, count: usize, reduce: u8, root: usize) -> PyResult<Op> {
        Ok(Op(Operation::Reduce { count, reduce: reduction(py, reduce)?, root }))
    }

    #[staticmethod]
    fn broadcast(count: usize, root: usize) -> Op {
        Op(Operation::Broadcast { count, root })
    }

    #[staticmethod]
    fn all_gather(counts: Shares) -> Op {
        Op(Operation::AllGather { counts: counts.into() })
    }

    #[staticmethod]
    fn reduce_scatter(py: Python<'_>, counts: Shares, reduce: u8) -> PyResult<Op> {
        Ok(Op(Operation::ReduceScatter { counts: counts.into(), reduce: reduction(py, reduce)? }))
    }

    #[staticmethod]
    fn all_to_all(give: Shares, take: Shares) -> Op {
        Op(Operation::AllToAll { give: give.into(), take: take.into() })
    }

    #[staticmethod]
    fn gather(counts: Shares, root: usize) -> Op {
        Op(Operation::Gather { counts: counts.into(), root })
    }

    #[staticmethod]
    fn scatter(counts: Shares, root: usize) -> Op {
        Op(Operation::Scatter { counts: counts.into(), root })
    }

    #[staticmethod]
    fn barrier() -> Op {
        Op(Operation::Barrier)
    }

    #[staticmethod]
    fn send(count: usize, to: usize, tag: u32) -> Op {
        Op(Operation::Send { count, to, tag })
    }

    #[staticmethod]
    fn recv(count: usize, from_: Option<usize>, tag: u32) -> Op {
        Op(Operation::Recv { count, from: from_, tag })
    }

    /// The operation's name, as it stands in every message.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.kind().name()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

impl From<Shares> for Counts {
    fn from(shares: Shares) -> Counts {
        match shares {
            Shares::Even(count) => Counts::Even(count),
            Shares::Uneven(counts) => Counts::uneven(&counts),
        }
    }
}

/// The reduction with this wire number.
fn reduction(py: Python<'_>, number: u8) -> PyResult<ReduceOp> {
    known(number).map_err(|error| raised(py, &error, 0))
}

pub(crate) fn known(number: u8) -> Result<ReduceOp> {
    let known = usize::from(number).checked_sub(1).and_then(|index| ReduceOp::ALL.get(index));
    known.copied().ok_or_else(|| Error::usage("reduction", "op", number, "must be the number of a reduction"))
}
