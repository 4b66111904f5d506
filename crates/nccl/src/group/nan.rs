//! The check for NaN of what a rank gives: a kernel before the operation, whose answer is awaited, so that nothing of it reaches the others.

use phalanx_core::{Call, DType, Error, Op, OpKind, Result};

use super::hall::Hall;
use super::lane::Lane;
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::pause::Pause;
use crate::api::{Cuda, Event, Nccl, Process, Span, Stream};
use crate::kernels::nan::{NONE, Pattern};

/// Memory that is to be looked at, and where what is found is put.
pub(super) struct Check<C: Cuda> {
    op: OpKind,
    argument: &'static str,
    dtype: DType,
    pattern: Pattern,
    /// What is given.
    data: Span,
    /// How many elements of the argument lie before it.
    before: usize,
    first: DeviceBuffer<C>,
    told: PinnedBuffer<C>,
}

impl<C: Cuda> Check<C> {
    /// The check of what a rank gives to an operation; none where it gives nothing that can be a NaN.
    pub(super) fn of<N: Nccl, P: Process>(
        hall: &Hall<N, C, P>,
        call: &Call,
        input: Option<Span>,
        output: Span,
    ) -> Result<Option<Check<C>>> {
        let (dtype, op) = (call.dtype, call.op.kind());
        let Some(pattern) = Pattern::of(dtype).filter(|_| hall.options.checks_nan) else { return Ok(None) };
        let given = given(&call.op, hall.layout.rank(), dtype.byte_len(), (input, output));
        let Some((data, before)) = given.filter(|(data, _)| !data.is_empty()) else { return Ok(None) };
        let (first, told) = (hall.staging.device(8)?, hall.staging.host(8)?);
        let argument = if input.is_some() { "input" } else { "data" };
        Ok(Some(Check { op, argument, dtype, pattern, data, before, first, told }))
    }
}

impl<N: Nccl, C: Cuda, P: Process> Lane<N, C, P> {
    /// Looks for NaN on the stream and waits until that is done; the event stands for it meanwhile.
    pub(super) fn check_nan(&self, checks: &[Check<C>], stream: Stream, event: Event) -> Result<()> {
        let (hall, cuda) = (&self.hall, &self.hall.stack.cuda);
        if checks.is_empty() {
            return Ok(());
        }
        for check in checks {
            let (first, pattern) = (check.first.span(), check.pattern);
            hall.cuda("fill", cuda.fill(first, 0xFF, stream))?;
            let arguments = pattern.arguments(check.data, first);
            let grid = pattern.grid(check.data.byte_len());
            hall.cuda("launch of the check for NaN", cuda.launch(pattern.kernel(), grid, &arguments, stream))?;
            hall.cuda("copy", cuda.copy(check.told.span(), first, stream))?;
        }
        hall.cuda("record_event", cuda.record_event(event, stream))?;
        let pause = Pause::begun(hall.now());
        while !hall.cuda("query_event", cuda.query_event(event))? {
            let seen = self.bell.count();
            hall.check()?;
            pause.wait(&*hall.stack.process, &*self.bell, seen);
        }
        checks.iter().try_for_each(|check| check.judge(hall.world_rank(hall.layout.rank())))
    }
}

impl<C: Cuda> Check<C> {
    fn judge(&self, rank: usize) -> Result<()> {
        let mut bytes = [0; 8];
        self.told.read(&mut bytes)?;
        let first = u64::from_le_bytes(bytes);
        if first == NONE {
            return Ok(());
        }
        let parts = if matches!(self.dtype, DType::Complex64 | DType::Complex128) { 2 } else { 1 };
        let value = format!("NaN at element {} on rank {rank}", first / parts + self.before as u64);
        Err(Error::usage(self.op, self.argument, value, "must be numbers, as this group checks"))
    }
}

/// The part of the memory that a rank gives, and how many elements lie before it.
fn given(op: &Op, rank: usize, unit: usize, (input, output): (Option<Span>, Span)) -> Option<(Span, usize)> {
    let whole = Some((input.unwrap_or(output), 0));
    match op {
        Op::Barrier | Op::Recv { .. } => None,
        Op::Broadcast { root, .. } | Op::Scatter { root, .. } if *root != rank => None,
        Op::AllGather { counts } | Op::Gather { counts, .. } if input.is_none() => {
            let before: usize = (0..rank).map(|rank| counts.of(rank)).sum();
            Some((output.part(before * unit, counts.of(rank) * unit)?, before))
        }
        Op::Gather { .. } | Op::Send { .. } => Some((input?, 0)),
        _ => whole,
    }
}
