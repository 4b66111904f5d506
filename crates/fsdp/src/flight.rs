//! Operations under way with the engine's buffers. Where there is one rank, nothing travels.

use phalanx_core::backend::{Buffers, Pending};
use phalanx_core::{DType, Group, Op, Result};
use phalanx_mem::Buffer;

use crate::trace::Trace;

/// An operation that was begun, and its buffers.
#[derive(Debug)]
pub(crate) enum Flight {
    /// It travels.
    Pending(Box<dyn Pending>),
    /// There is nobody to exchange with.
    Done(Buffers),
}

impl Flight {
    /// Begins `op` for a unit, by its number, over one buffer.
    #[track_caller]
    pub(crate) fn begin(group: &Group, unit: usize, (op, dtype): (Op, DType), buffer: Buffer) -> Result<Flight> {
        Flight::begin_with(group, unit, (op, dtype), Buffers { input: None, output: buffer })
    }

    /// Begins `op` from one buffer, where there are two, to another of the same length.
    #[track_caller]
    pub(crate) fn begin_with(
        group: &Group,
        unit: usize,
        (op, dtype): (Op, DType),
        mut buffers: Buffers,
    ) -> Result<Flight> {
        if group.size() > 1 {
            return group.submit_for(unit, op, dtype, buffers).map(Flight::Pending);
        }
        if let Some(input) = &buffers.input {
            buffers.output.as_bytes_mut().copy_from_slice(input.as_bytes());
        }
        Ok(Flight::Done(buffers))
    }

    /// Waits for the end, which the group's own timeout bounds.
    pub(crate) fn end(self, trace: &mut Trace) -> Result<Buffer> {
        self.end_with(trace).map(|buffers| buffers.output)
    }

    /// The same, and gives both buffers back.
    pub(crate) fn end_with(self, trace: &mut Trace) -> Result<Buffers> {
        match self {
            Flight::Done(buffers) => Ok(buffers),
            Flight::Pending(mut pending) => trace.wait(|| {
                loop {
                    if let Some(end) = pending.wait(None) {
                        return end.map(|finished| finished.buffers);
                    }
                }
            }),
        }
    }
}
