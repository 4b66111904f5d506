//! How a lane makes the calls of NCCL that an operation consists of, and waits until they are what they were to be.

use phalanx_core::{Error, Result};

use super::failure;
use super::lane::Lane;
use super::pause::Pause;
use super::plan::{CallKind, Join, NcclCall};
use crate::api::{Comm, Cuda, CudaCode, Nccl, Process, RedOp, Route, Status, Stream};

impl<N: Nccl, C: Cuda, P: Process> Lane<N, C, P> {
    /// Makes calls of NCCL, as one group where they are several, and waits until they are on their stream.
    pub(super) fn call(&self, comm: Comm, calls: &[NcclCall], stream: Stream) -> Result<()> {
        let calls: Vec<NcclCall> = calls.iter().map(|call| self.line.seen_by(call)).collect();
        let calls = &calls[..];
        let ops: Vec<RedOp> = calls.iter().map(|call| self.reduction(comm, call)).collect::<Result<_>>()?;
        let (name, status) = self.inside(comm, |nccl| issue_all(nccl, calls, &ops, Route { comm, stream }))?;
        self.settle(comm, name, status)?;
        for (call, op) in calls.iter().zip(ops) {
            if matches!(call.join(), Some(Join::Scaled(_))) {
                let status = self.inside(comm, |nccl| nccl.destroy_op(op, comm))?;
                self.settle(comm, "ncclRedOpDestroy", status)?;
            }
        }
        Ok(())
    }

    fn reduction(&self, comm: Comm, call: &NcclCall) -> Result<RedOp> {
        match call.join() {
            None => Ok(RedOp::SUM),
            Some(Join::Own(op)) => Ok(op),
            Some(Join::Scaled(scalar)) => self
                .inside(comm, |nccl| nccl.create_pre_mul_sum(scalar, call.what.dtype, comm))?
                .map_err(|status| self.failed(comm, "ncclRedOpCreatePreMulSum", status)),
        }
    }

    /// Waits while a communicator is in progress: the watch ends that in time.
    pub(super) fn settle(&self, comm: Comm, call: &str, status: Status) -> Result<()> {
        let (hall, mut status) = (&self.hall, status);
        let pause = Pause::begun(hall.now());
        while status.is_in_progress() {
            let seen = self.bell.count();
            hall.check()?;
            status = self.inside(comm, |nccl| nccl.async_error(comm))?.unwrap_or_else(|status| status);
            if status.is_in_progress() {
                pause.wait(&*hall.stack.process, &*self.bell, seen);
            }
        }
        if status.is_success() {
            return Ok(());
        }
        // What was aborted meanwhile answers with errors of its own, which are not the cause.
        hall.check()?;
        let error = self.failed(comm, call, status);
        if self.is_anothers(status) { Err(self.traced(error)) } else { Err(error) }
    }

    /// The same after a call that answers success also where it has only begun: the communicator itself is asked.
    pub(super) fn settle_begun(&self, comm: Comm, call: &str, status: Status) -> Result<()> {
        self.settle(comm, call, if status.is_success() { Status::IN_PROGRESS } else { status })
    }

    /// Whether a call failed because of another rank.
    pub(super) fn is_anothers(&self, status: Status) -> bool {
        status == Status::REMOTE && self.death().is_none()
    }

    /// What the device died of, if it has. The driver knows once a call of its own was refused, and the library may have seen it first: so it is
    /// asked something.
    fn death(&self) -> Option<CudaCode> {
        let (cuda, device) = (&self.hall.stack.cuda, self.hall.stack.device);
        let refused = cuda.memory_info(device).err().filter(|code| code.is_sticky());
        cuda.sticky_error(device).or(refused)
    }

    /// The error of a call that failed because of another rank, once the watch has found out which, or has not.
    fn traced(&self, error: Error) -> Error {
        let hall = &self.hall;
        hall.suspect(error.clone());
        loop {
            let seen = self.bell.count();
            match hall.check() {
                Ok(()) => self.bell.wait(seen, Some(hall.now() + hall.options.heartbeat)),
                // It was found to be nobody else's.
                Err(_) if hall.fate().is_some_and(|fate| fate.error == error) => return error,
                Err(cause) => return cause,
            }
        }
    }

    /// The error of a call, which is that of the device where it is dead.
    pub(super) fn failed(&self, comm: Comm, call: &str, status: Status) -> Error {
        let stack = &self.hall.stack;
        match self.death() {
            Some(code) => failure::of_cuda(&*stack.cuda, call, code),
            None => failure::of_nccl(&*stack.nccl, call, status, Some(comm)),
        }
    }
}

impl NcclCall {
    fn join(&self) -> Option<Join> {
        match self.kind {
            CallKind::AllReduce(join) | CallKind::Reduce(join, _) | CallKind::ReduceScatter(join) => Some(join),
            _ => None,
        }
    }
}

/// Makes calls, as one group where they are several; the first that did not succeed, or the last, and what it answered.
fn issue_all(nccl: &impl Nccl, calls: &[NcclCall], ops: &[RedOp], on: Route) -> (&'static str, Status) {
    if let ([call], [op]) = (calls, ops) {
        return issue(nccl, call, *op, on);
    }
    let started = nccl.group_start();
    if !started.is_success() {
        return ("ncclGroupStart", started);
    }
    let issued = calls.iter().zip(ops).map(|(call, op)| issue(nccl, call, *op, on));
    let failed = issued.filter(|(_, status)| !status.is_success()).fold(None, |first, next| first.or(Some(next)));
    let ended = ("ncclGroupEnd", nccl.group_end());
    failed.unwrap_or(ended)
}

/// Makes one call; its name and what it answered.
fn issue(nccl: &impl Nccl, call: &NcclCall, op: RedOp, on: Route) -> (&'static str, Status) {
    let what = call.what;
    match call.kind {
        CallKind::AllReduce(_) => ("ncclAllReduce", nccl.all_reduce(what, op, on)),
        CallKind::Reduce(_, root) => ("ncclReduce", nccl.reduce(what, op, root, on)),
        CallKind::ReduceScatter(_) => ("ncclReduceScatter", nccl.reduce_scatter(what, op, on)),
        CallKind::Broadcast(root) => ("ncclBroadcast", nccl.broadcast(what, root, on)),
        CallKind::AllGather => ("ncclAllGather", nccl.all_gather(what, on)),
        CallKind::Send(peer) => ("ncclSend", nccl.send(what, peer, on)),
        CallKind::Recv(peer) => ("ncclRecv", nccl.recv(what, peer, on)),
    }
}
