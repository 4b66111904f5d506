//! Memory that simulated communicators know, and windows that all their ranks open together. What it gains is not simulated.

use std::sync::Arc;

use super::cuda::SimCuda;
use super::fault::Fault;
use super::nccl::SimNccl;
use crate::api::{Comm, Span, Status, Version};

impl SimNccl {
    /// That the version has what came with this one.
    pub(super) fn since(&self, since: Version) -> Result<(), Status> {
        if self.version < since { Err(Status::ABSENT) } else { Ok(()) }
    }

    pub(super) fn cuda(&self) -> SimCuda {
        SimCuda { stage: Arc::clone(&self.stage), rank: self.rank }
    }

    /// That the library takes memory for a window: its own, from where pages of it begin.
    pub(super) fn may_be_window(&self, span: Span) -> Result<(), Status> {
        let state = self.stage.look();
        let base = state.engine.memory.base_of(span).filter(|base| state.engine.comms.made.contains(base));
        let is_right = base.is_some_and(|base| (span.address() - base).is_multiple_of(PAGE));
        let is_refused = state.engine.script.has(self.rank, Fault::RefusesWindows);
        if is_right && !is_refused { Ok(()) } else { Err(Status::INVALID_ARGUMENT) }
    }

    pub(super) fn learn(&self, comm: Comm, span: Span, (call, is_window): (&'static str, bool)) -> Result<u64, Status> {
        let mut state = self.usable(comm, call)?;
        let is_device = state.engine.memory.is_live(span) && !state.engine.memory.is_host(span);
        if span.is_empty() || !is_device {
            return Err(Status::INVALID_ARGUMENT);
        }
        let comms = &mut state.engine.comms;
        comms.last_known += 1;
        let number = comms.last_known;
        let Some(handle) = comms.handle_mut(comm.number()) else { return Err(Status::INTERNAL) };
        handle.known.insert(number, (span, is_window));
        Ok(number)
    }

    pub(super) fn unlearn(&self, comm: Comm, number: u64, (call, is_window): (&'static str, bool)) -> Status {
        let mut state = match self.usable(comm, call) {
            Ok(state) => state,
            Err(status) => return status,
        };
        let Some(handle) = state.engine.comms.handle_mut(comm.number()) else { return Status::INTERNAL };
        if handle.known.get(&number).is_none_or(|(_, window)| *window != is_window) {
            return Status::INVALID_ARGUMENT;
        }
        handle.known.remove(&number);
        Status::SUCCESS
    }

    /// Comes to the next window of a communicator, which is open once all have. As in the library, the answer does not say that it is not yet.
    pub(super) fn open_window(&self, comm: Comm, byte_len: usize, is_symmetric: bool) -> Status {
        let mut state = self.stage.look();
        let comms = &mut state.engine.comms;
        let Some(handle) = comms.handle_mut(comm.number()) else { return Status::INTERNAL };
        let (Some((ring, member)), nth) = (handle.seat, handle.windows) else { return Status::INTERNAL };
        handle.windows += 1;
        let size = comms.rings[ring].members.len();
        comms.windows.entry((ring, nth)).or_insert_with(|| vec![None; size])[member] = Some((byte_len, is_symmetric));
        Status::SUCCESS
    }
}

/// At multiples of so many bytes windows begin.
const PAGE: u64 = 4096;
/// Since when there is memory that communicators know.
pub(super) const KNOWN_MEMORY: Version = Version::new(2, 19, 0);
/// Since when there are windows.
pub(super) const WINDOWS: Version = Version::new(2, 27, 0);
