//! From an operation to what is asked of NCCL for it: pure, one step after the other on one stream.

use phalanx_core::reduce::Factor;
use phalanx_core::{Counts, DType, Error, Op, OpKind, Result};

use crate::api::{DataType, Encoding, RedOp, Reducer, Scalar, Span, Transfer, Version};

/// One thing to do on the stream of a communicator.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Bytes from one place to another on the same device, or between it and the host.
    Copy { to: Span, from: Span },
    /// Calls of NCCL that begin together.
    Calls(Vec<NcclCall>),
}

/// One call of NCCL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NcclCall {
    pub(super) kind: CallKind,
    pub(super) what: Transfer,
}

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CallKind {
    AllReduce(Join),
    Reduce(Join, i32),
    ReduceScatter(Join),
    Broadcast(i32),
    AllGather,
    Send(i32),
    Recv(i32),
}

/// How elements are joined: by a reduction of NCCL's, or by one that is created for this call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Join {
    Own(RedOp),
    Scaled(Scalar),
}

/// An operation and its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) op: &'a Op,
    pub(super) dtype: DType,
    pub(super) factor: Option<Factor>,
    /// Absent where the operation works in place.
    pub(super) input: Option<Span>,
    pub(super) output: Span,
    pub(super) rank: usize,
    pub(super) size: usize,
}

/// That NCCL of this version has an operation like this, whatever its memory.
///
/// # Errors
///
/// [`Usage`](phalanx_core::ErrorKind::Usage), naming what it has not.
pub(super) fn check(op: &Op, dtype: DType, factor: Option<Factor>, version: Version) -> Result<()> {
    match op {
        Op::Send { tag, .. } | Op::Recv { tag, .. } if *tag != 0 => {
            let expected = "must be 0: NCCL matches messages by their order alone";
            return Err(Error::usage(op.kind(), "tag", tag, expected));
        }
        Op::Recv { from: None, .. } => {
            let expected = "must be a rank: NCCL does not receive from whichever sends";
            return Err(Error::usage(op.kind(), "from", "any", expected));
        }
        _ => {}
    }
    Task { op, dtype, factor, input: None, output: Span::EMPTY, rank: 0, size: 1 }.join(version).map(drop)
}

/// What is to be done for an operation, in order.
///
/// # Errors
///
/// [`Usage`](phalanx_core::ErrorKind::Usage) for what NCCL of this version cannot.
pub(super) fn plan(task: &Task<'_>, version: Version) -> Result<Vec<Step>> {
    let join = task.join(version)?;
    let steps = match (task.op, join) {
        (Op::AllReduce { count, .. }, Some(join)) => {
            task.one(CallKind::AllReduce(join), task.given(), task.output, *count)?
        }
        (Op::Reduce { count, root, .. }, Some(join)) => {
            // Where the root's alone is written, the others' memory is named but not touched.
            let recv = if task.output.is_empty() { task.given() } else { task.output };
            task.one(CallKind::Reduce(join, number(*root)), task.given(), recv, *count)?
        }
        (Op::Broadcast { count, root }, _) => {
            let send = task.input.filter(|span| !span.is_empty()).unwrap_or(task.output);
            task.one(CallKind::Broadcast(number(*root)), send, task.output, *count)?
        }
        (Op::AllGather { counts: Counts::Even(count) }, _) => {
            let own = task.own_part(task.output, task.rank * count, *count)?;
            task.one(CallKind::AllGather, task.input.unwrap_or(own), task.output, *count)?
        }
        (Op::AllGather { counts }, _) => task.gather_uneven(counts)?,
        (Op::ReduceScatter { counts: Counts::Even(count), .. }, Some(join)) => {
            let recv = match task.input {
                Some(_) => task.output,
                None => task.own_part(task.output, task.rank * count, *count)?,
            };
            task.one(CallKind::ReduceScatter(join), task.given(), recv, *count)?
        }
        (Op::ReduceScatter { counts, .. }, Some(join)) => task.scatter_uneven(counts, join)?,
        (Op::AllToAll { give, take }, _) => task.exchange(give, take)?,
        (Op::Gather { counts, root }, _) => task.gather(counts, *root)?,
        (Op::Scatter { counts, root }, _) => task.scatter(counts, *root)?,
        (Op::Barrier, _) => task.one(CallKind::AllReduce(Join::Own(RedOp::SUM)), task.output, task.output, 1)?,
        (Op::Send { count, to, .. }, _) => task.one(CallKind::Send(number(*to)), task.given(), Span::EMPTY, *count)?,
        (Op::Recv { count, from: Some(from), .. }, _) => {
            task.one(CallKind::Recv(number(*from)), Span::EMPTY, task.output, *count)?
        }
        (op, _) => return Err(Error::usage(op.kind(), "op", op.kind(), "which NCCL has not")),
    };
    Ok(steps)
}

impl Task<'_> {
    /// The input, which stands in the output where the operation works in place.
    fn given(&self) -> Span {
        self.input.unwrap_or(self.output)
    }

    fn encoding(&self) -> Encoding {
        Encoding::moved(self.dtype)
    }

    fn join(&self, version: Version) -> Result<Option<Join>> {
        let Some(op) = self.op.reduce() else { return Ok(None) };
        match Reducer::of(self.op.kind(), op, self.dtype, version)? {
            Reducer::Own(op) => Ok(Some(Join::Own(op))),
            Reducer::Scaled => scalar(self.op.kind(), self.dtype, self.factor).map(|scalar| Some(Join::Scaled(scalar))),
        }
    }

    /// A part of memory by elements.
    fn own_part(&self, span: Span, offset: usize, count: usize) -> Result<Span> {
        let size = self.dtype.byte_len();
        let part = offset.checked_mul(size).zip(count.checked_mul(size)).and_then(|(at, len)| span.part(at, len));
        part.ok_or_else(|| {
            let value = format!("{count} elements at {offset} of {} bytes", span.byte_len());
            Error::usage(self.op.kind(), "output", value, "must lie within its memory")
        })
    }

    fn call(&self, kind: CallKind, send: Span, recv: Span, count: usize) -> Result<NcclCall> {
        let Encoding { dtype, .. } = self.encoding();
        let count = self.encoding().count(count).ok_or_else(|| {
            Error::usage(self.op.kind(), "count", count, "must be of a length that fits the address space")
        })?;
        Ok(NcclCall { kind, what: Transfer { send, recv, count, dtype } })
    }

    /// One call, or none where there is nothing to move.
    fn one(&self, kind: CallKind, send: Span, recv: Span, count: usize) -> Result<Vec<Step>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        Ok(vec![Step::Calls(vec![self.call(kind, send, recv, count)?])])
    }

    /// Each rank's part by a broadcast of its own.
    fn gather_uneven(&self, counts: &Counts) -> Result<Vec<Step>> {
        let mut calls = Vec::new();
        for (root, offset, count) in parts(counts, self.size) {
            let recv = self.own_part(self.output, offset, count)?;
            let send = self.input.filter(|_| root == self.rank).unwrap_or(recv);
            calls.push(self.call(CallKind::Broadcast(number(root)), send, recv, count)?);
        }
        Ok(together(calls))
    }

    /// Each rank's part by a reduction of its own.
    fn scatter_uneven(&self, counts: &Counts, join: Join) -> Result<Vec<Step>> {
        let mut calls = Vec::new();
        for (root, offset, count) in parts(counts, self.size) {
            let send = self.own_part(self.given(), offset, count)?;
            let recv = if root == self.rank && self.input.is_some() { self.output } else { send };
            calls.push(self.call(CallKind::Reduce(join, number(root)), send, recv, count)?);
        }
        Ok(together(calls))
    }

    fn exchange(&self, give: &Counts, take: &Counts) -> Result<Vec<Step>> {
        let mut calls = Vec::new();
        for (peer, offset, count) in parts(give, self.size) {
            let send = self.own_part(self.given(), offset, count)?;
            calls.push(self.call(CallKind::Send(number(peer)), send, Span::EMPTY, count)?);
        }
        for (peer, offset, count) in parts(take, self.size) {
            let recv = self.own_part(self.output, offset, count)?;
            calls.push(self.call(CallKind::Recv(number(peer)), Span::EMPTY, recv, count)?);
        }
        Ok(together(calls))
    }

    fn gather(&self, counts: &Counts, root: usize) -> Result<Vec<Step>> {
        if self.rank != root {
            return self.one(CallKind::Send(number(root)), self.given(), Span::EMPTY, counts.of(self.rank));
        }
        let mut calls = Vec::new();
        let mut steps = Vec::new();
        for (peer, offset, count) in parts(counts, self.size) {
            let to = self.own_part(self.output, offset, count)?;
            if peer == root {
                steps.push(Step::Copy { to, from: self.given() });
            } else {
                calls.push(self.call(CallKind::Recv(number(peer)), Span::EMPTY, to, count)?);
            }
        }
        steps.extend(together(calls));
        Ok(steps)
    }

    fn scatter(&self, counts: &Counts, root: usize) -> Result<Vec<Step>> {
        if self.rank != root {
            return self.one(CallKind::Recv(number(root)), Span::EMPTY, self.output, counts.of(self.rank));
        }
        let mut calls = Vec::new();
        let mut steps = Vec::new();
        for (peer, offset, count) in parts(counts, self.size) {
            let from = self.own_part(self.given(), offset, count)?;
            if peer == root {
                steps.push(Step::Copy { to: self.output, from });
            } else {
                calls.push(self.call(CallKind::Send(number(peer)), from, Span::EMPTY, count)?);
            }
        }
        steps.extend(together(calls));
        Ok(steps)
    }
}

/// Calls as one step; none where there are none.
fn together(calls: Vec<NcclCall>) -> Vec<Step> {
    if calls.is_empty() { Vec::new() } else { vec![Step::Calls(calls)] }
}

/// The ranks that have a part, where it begins and how long it is.
fn parts(counts: &Counts, size: usize) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
    let places = (0..size).scan(0, move |offset, rank| {
        let (at, count) = (*offset, counts.of(rank));
        *offset += count;
        Some((rank, at, count))
    });
    places.filter(|(_, _, count)| *count > 0)
}

/// A factor as one element of what NCCL scales.
fn scalar(kind: OpKind, dtype: DType, factor: Option<Factor>) -> Result<Scalar> {
    let Some(Factor::Real(value)) = factor else {
        return Err(Error::usage(kind, "factor", "complex or absent", "must be a real number for NCCL"));
    };
    let mut bytes = [0; 8];
    let mut put = |element: &[u8]| bytes[..element.len()].copy_from_slice(element);
    match Encoding::moved(dtype).dtype {
        DataType::F64 => put(&value.to_le_bytes()),
        DataType::F32 => put(&(value as f32).to_le_bytes()),
        DataType::F16 => put(&half::f16::from_f64(value).to_le_bytes()),
        DataType::BF16 => put(&half::bf16::from_f64(value).to_le_bytes()),
        _ => return Err(Error::usage(kind, "op", "premul_sum", format!("which NCCL has not for {dtype}"))),
    }
    Ok(Scalar::Host(bytes))
}

/// A rank in NCCL's numbers. Groups are far smaller than that.
fn number(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_core::ReduceOp;

    const VERSION: Version = Version::new(2, 28, 9);

    fn task(op: &Op, input: usize, output: usize) -> Task<'_> {
        let spans = (Span::new(0x1000, input * 4), Span::new(0x9000, output * 4));
        Task { op, dtype: DType::F32, factor: None, input: Some(spans.0), output: spans.1, rank: 1, size: 3 }
    }

    fn calls(steps: &[Step]) -> Vec<(CallKind, u64, u64, usize)> {
        let lists = steps.iter().map(|step| match step {
            Step::Calls(calls) => &calls[..],
            Step::Copy { .. } => &[],
        });
        let told = |call: &NcclCall| {
            let Transfer { send, recv, count, .. } = call.what;
            (call.kind, send.address(), recv.address(), count)
        };
        lists.flatten().map(told).collect()
    }

    #[test]
    fn uneven_gathers_are_broadcasts_of_those_who_have_something() {
        let op = Op::AllGather { counts: Counts::uneven(&[2, 1, 0]) };
        let steps = plan(&task(&op, 1, 3), VERSION).expect("a plan");
        let expected = [(CallKind::Broadcast(0), 0x9000, 0x9000, 2), (CallKind::Broadcast(1), 0x1000, 0x9008, 1)];
        assert_eq!((steps.len(), calls(&steps)), (1, expected.to_vec()));
    }

    #[test]
    fn uneven_scatters_are_reductions() {
        let op = Op::ReduceScatter { counts: Counts::uneven(&[2, 1, 0]), reduce: ReduceOp::Sum };
        let steps = plan(&task(&op, 3, 1), VERSION).expect("a plan");
        let join = Join::Own(RedOp::SUM);
        let expected = [(CallKind::Reduce(join, 0), 0x1000, 0x1000, 2), (CallKind::Reduce(join, 1), 0x1008, 0x9000, 1)];
        assert_eq!(calls(&steps), expected);
    }

    #[test]
    fn a_part_of_nothing_is_no_call() {
        let op = Op::AllReduce { count: 0, reduce: ReduceOp::Sum };
        assert_eq!(plan(&task(&op, 0, 0), VERSION).expect("a plan"), []);
        let op = Op::Scatter { counts: Counts::uneven(&[0, 2, 1]), root: 1 };
        let steps = plan(&task(&op, 3, 2), VERSION).expect("a plan");
        assert_eq!(calls(&steps), [(CallKind::Send(2), 0x1008, 0, 1)]);
        assert!(matches!(steps[0], Step::Copy { to, from } if from.address() == 0x1000 && to.byte_len() == 8));
    }

    #[test]
    fn complex_numbers_are_pairs_and_factors_one_element() {
        let op = Op::AllReduce { count: 2, reduce: ReduceOp::PreMulSum };
        let factor = Some(Factor::Real(0.5));
        let half = Task { dtype: DType::Complex64, factor, ..task(&op, 4, 4) };
        let steps = plan(&half, VERSION).expect("a plan");
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&0.5_f32.to_le_bytes());
        let kind = CallKind::AllReduce(Join::Scaled(Scalar::Host(bytes)));
        assert_eq!(calls(&steps), [(kind, 0x1000, 0x9000, 4)]);
    }
}
