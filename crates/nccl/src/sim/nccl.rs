//! Simulated NCCL of one rank: what its functions answer. It calls itself 2.28.9 unless told otherwise.

use std::panic::Location;
use std::sync::Arc;
use std::thread;

use super::collective::FIRST_CREATED;
use super::comm::{End, Fused, Kind, Part, Ring};
use super::engine::Work;
use super::fault::Fault;
use super::finding::Finding;
use super::known::{KNOWN_MEMORY, WINDOWS};
use super::stage::{Guard, Stage, Standing};
use crate::api::{
    Comm, CommConfig, Cuda, DataType, Device, Nccl, RedOp, Registration, Route, Scalar, Span, Status, Transfer,
    UniqueId, Version, Window,
};

/// Simulated NCCL, as one rank sees it.
pub struct SimNccl {
    pub(super) stage: Arc<Stage>,
    pub(super) rank: usize,
    pub(super) version: Version,
}

impl SimNccl {
    fn enter(&self) -> Guard<'_> {
        let mut state = self.stage.enter(self.rank);
        state.engine.ranks[self.rank].calls += 1;
        state
    }

    /// The state, for a call on a communicator that may be used; else what the call answers.
    pub(super) fn usable(&self, comm: Comm, call: &'static str) -> Result<Guard<'_>, Status> {
        let mut state = self.enter();
        self.alive(&mut state, comm, call)?;
        let Some(handle) = state.engine.comms.handle(comm.number()) else { return Err(Status::INVALID_ARGUMENT) };
        let comms = &state.engine.comms;
        let is_ready = comms.has_formed(handle) && comms.is_idle(handle);
        if !is_ready && !handle.is_blocking {
            state.found.push(Finding::InProgress { rank: self.rank, call });
            return Err(Status::INVALID_ARGUMENT);
        }
        if state.engine.sticky(self.rank).is_some() {
            return Err(Status::UNHANDLED_CUDA);
        }
        Ok(state)
    }

    fn alive(&self, state: &mut Guard<'_>, comm: Comm, call: &'static str) -> Result<(), Status> {
        let handle = state.engine.comms.handle(comm.number()).filter(|handle| handle.rank == self.rank);
        match handle.map(|handle| handle.end) {
            None => Err(Status::INVALID_ARGUMENT),
            Some(None) => Ok(()),
            Some(Some(_)) => {
                if !state.is_over() {
                    state.found.push(Finding::Gone { rank: self.rank, call });
                }
                Err(Status::INVALID_ARGUMENT)
            }
        }
    }

    /// A call that belongs to a group, or is one alone.
    fn call(&self, on: Route, part: Part) -> Status {
        let comm = on.comm;
        let state = match self.usable(comm, part.kind.name()) {
            Ok(state) => state,
            Err(status) => return status,
        };
        let Some((ring, member)) = state.engine.comms.handle(comm.number()).and_then(|handle| handle.seat) else {
            return Status::INVALID_ARGUMENT;
        };
        let size = state.engine.comms.rings[ring].members.len();
        let (reads, writes) = part.spans(member, size);
        if part.other >= size || !state.engine.memory.is_live(reads) || !state.engine.memory.is_live(writes) {
            return Status::INVALID_ARGUMENT;
        }
        let depth = self.stage.groups(thread::current().id());
        match depth {
            Some(mut group) => {
                group.push((on, part));
                Status::SUCCESS
            }
            None => self.begin(state, vec![(on, part)]),
        }
    }

    /// Puts calls on their streams: those of one communicator and stream as one piece of work.
    fn begin(&self, mut state: Guard<'_>, calls: Vec<(Route, Part)>) -> Status {
        let mut lots: Vec<(Route, Vec<Part>)> = Vec::new();
        for (on, part) in calls {
            match lots.iter_mut().find(|(of, _)| *of == on) {
                Some((_, lot)) => lot.push(part),
                None => lots.push((on, vec![part])),
            }
        }
        let mut status = Status::SUCCESS;
        for (on, parts) in lots {
            let one = self.fuse(&mut state, on, parts);
            if !one.is_success() && (status.is_success() || status.is_in_progress()) {
                status = one;
            }
        }
        status
    }

    fn fuse(&self, state: &mut Guard<'_>, on: Route, parts: Vec<Part>) -> Status {
        let Route { comm, stream } = on;
        let index = (stream.number() as usize).wrapping_sub(1);
        if state.engine.streams.get(index).is_none_or(|stream| stream.rank != self.rank || !stream.is_open) {
            return Status::INVALID_ARGUMENT;
        }
        let launch = state.engine.ranks[self.rank].launches;
        state.engine.ranks[self.rank].launches += 1;
        let waits = state.engine.script.has(self.rank, Fault::LaunchWaitsForAbort { launch });
        let lasts = state.draw.below(2) == 0 || waits;
        let polls = if waits { u32::MAX } else { 1 + state.draw.below(3) };
        let order = state.own_order().unwrap_or_default();
        let comms = &mut state.engine.comms;
        let Some((ring, member)) = comms.handle(comm.number()).and_then(|handle| handle.seat) else {
            return Status::INVALID_ARGUMENT;
        };
        let id = comms.fused.len();
        for (at, _) in parts.iter().enumerate().filter(|(_, part)| !part.kind.is_message()) {
            comms.rings[ring].enlist(member, (id, at));
        }
        let site = parts[0].site;
        let (rank, handle) = (self.rank, comm.number());
        let (has_arrived, is_killed, moment) = (false, false, 0);
        comms.fused.push(Fused { rank, handle, stream: index, launch, parts, has_arrived, is_killed, moment });
        let Some(known) = comms.handle_mut(comm.number()) else { return Status::INVALID_ARGUMENT };
        if lasts && !known.is_blocking {
            known.polls = polls;
            known.launch.push((id, index, order));
            return Status::IN_PROGRESS;
        }
        state.submit(index, Work::Fused(id), site);
        Status::SUCCESS
    }

    /// Waits until a communicator has formed, where its calls wait.
    fn settle<'a>(&'a self, state: Guard<'a>, number: u64) -> (Status, Comm) {
        let comm = Comm::new(number);
        let Some(handle) = state.engine.comms.handle(number) else { return (Status::INTERNAL, Comm::NONE) };
        let (is_blocking, which) = (handle.is_blocking, handle.number);
        if state.engine.script.has(self.rank, Fault::InitNeverEnds { comm: which }) {
            drop(self.stage.hold(state, Standing::Never));
            return (Status::INTERNAL, Comm::NONE);
        }
        if !is_blocking {
            return (Status::IN_PROGRESS, comm);
        }
        drop(self.stage.hold(state, Standing::Comm(number)));
        (Status::SUCCESS, comm)
    }
}

impl Ring {
    /// Notes a member's next collective.
    fn enlist(&mut self, member: usize, entry: (usize, usize)) {
        let size = self.members.len();
        self.called.resize(size, 0);
        let number = self.called[member];
        self.called[member] += 1;
        if self.calls.len() <= number {
            self.calls.resize(number + 1, vec![None; size]);
        }
        self.calls[number][member] = Some(entry);
    }
}

impl Nccl for SimNccl {
    fn version(&self) -> Result<Version, Status> {
        Ok(self.version)
    }

    fn error_text(&self, status: Status) -> String {
        format!("{status}, simulated")
    }

    fn last_error(&self, _: Option<Comm>) -> String {
        "simulated".to_owned()
    }

    fn unique_id(&self) -> Result<UniqueId, Status> {
        let mut state = self.enter();
        let ring = state.engine.comms.rings.len();
        state.engine.comms.rings.push(Ring::default());
        let number = ring as u64 + 1;
        state.engine.comms.ids.insert(number, ring);
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Ok(UniqueId(bytes))
    }

    fn init(&self, device: Device, rank: i32, size: i32, id: &UniqueId, config: &CommConfig) -> (Status, Comm) {
        let mut state = self.enter();
        let none = |status| (status, Comm::NONE);
        let (Ok(rank), Ok(size)) = (usize::try_from(rank), usize::try_from(size)) else {
            return none(Status::INVALID_ARGUMENT);
        };
        if state.engine.sticky(self.rank).is_some() {
            return none(Status::UNHANDLED_CUDA);
        }
        let mut number = [0; 8];
        number.copy_from_slice(&id.0[..8]);
        let Some(&ring) = state.engine.comms.ids.get(&u64::from_le_bytes(number)) else {
            return none(Status::INVALID_ARGUMENT);
        };
        let members = &mut state.engine.comms.rings[ring].members;
        if members.is_empty() {
            members.resize(size, None);
        }
        if members.len() != size || members.get(rank).is_none_or(Option::is_some) {
            return none(Status::INVALID_ARGUMENT);
        }
        let handle = state.new_handle(self.rank, device.0, config.blocking, None);
        state.engine.comms.rings[ring].members[rank] = Some(handle);
        if let Some(known) = state.engine.comms.handle_mut(handle) {
            known.seat = Some((ring, rank));
        }
        self.settle(state, handle)
    }

    fn split(&self, comm: Comm, colour: Option<i32>, key: i32, config: &CommConfig) -> (Status, Comm) {
        let mut state = match self.usable(comm, "ncclCommSplit") {
            Ok(state) => state,
            Err(status) => return (status, Comm::NONE),
        };
        let Some(parent) = state.engine.comms.handle_mut(comm.number()) else {
            return (Status::INVALID_ARGUMENT, Comm::NONE);
        };
        let (Some((ring, member)), nth, device) = (parent.seat, parent.splits, parent.device) else {
            return (Status::INVALID_ARGUMENT, Comm::NONE);
        };
        parent.splits += 1;
        let is_open = |fused: &Fused| fused.handle == comm.number() && !fused.parts.iter().all(|part| part.is_done);
        let is_blocking = parent.is_blocking;
        if state.engine.comms.fused.iter().any(is_open) {
            state.found.push(Finding::Outstanding { rank: self.rank });
        }
        let handle = match colour {
            Some(_) => state.new_handle(self.rank, device, config.blocking, Some(comm.number())),
            None => 0,
        };
        let size = state.engine.comms.rings[ring].members.len();
        let entries = state.engine.comms.splits.entry((ring, nth)).or_insert_with(|| vec![None; size]);
        entries[member] = Some((colour, key, handle));
        if entries.iter().all(Option::is_some) {
            state.engine.comms.divide(ring, nth);
        }
        let polls = state.draw.below(3);
        if let Some(parent) = state.engine.comms.handle_mut(comm.number()).filter(|_| !is_blocking) {
            parent.polls = polls;
        }
        if colour.is_none() {
            return (Status::SUCCESS, Comm::NONE);
        }
        // As in the library: where the parent does not block, it has only begun, and the answer does not say so.
        match self.settle(state, handle) {
            (Status::IN_PROGRESS, child) if !is_blocking => (Status::SUCCESS, child),
            settled => settled,
        }
    }

    fn count(&self, comm: Comm) -> Result<i32, Status> {
        let state = self.usable(comm, "ncclCommCount")?;
        let seat = state.engine.comms.handle(comm.number()).and_then(|handle| handle.seat);
        seat.map(|(ring, _)| state.engine.comms.rings[ring].members.len() as i32).ok_or(Status::INTERNAL)
    }

    fn rank(&self, comm: Comm) -> Result<i32, Status> {
        let state = self.usable(comm, "ncclCommUserRank")?;
        let seat = state.engine.comms.handle(comm.number()).and_then(|handle| handle.seat);
        seat.map(|(_, member)| member as i32).ok_or(Status::INTERNAL)
    }

    fn device(&self, comm: Comm) -> Result<Device, Status> {
        let state = self.usable(comm, "ncclCommCuDevice")?;
        state.engine.comms.handle(comm.number()).map(|handle| Device(handle.device)).ok_or(Status::INTERNAL)
    }

    fn async_error(&self, comm: Comm) -> Result<Status, Status> {
        let mut state = self.enter();
        self.alive(&mut state, comm, "ncclCommGetAsyncError")?;
        Ok(state.ask(comm.number()))
    }

    fn finalize(&self, comm: Comm) -> Status {
        self.usable(comm, "ncclCommFinalize").map_or_else(|status| status, |_| Status::SUCCESS)
    }

    fn destroy(&self, comm: Comm) -> Status {
        let mut state = self.enter();
        let handle = state.engine.comms.handle(comm.number()).filter(|handle| handle.rank == self.rank);
        let was_aborted = handle.is_some_and(|handle| handle.end == Some(End::Aborted));
        if let Err(status) = self.alive(&mut state, comm, "ncclCommDestroy") {
            if was_aborted && state.engine.script.has(self.rank, Fault::DestroyHangsAfterAbort) {
                drop(self.stage.hold(state, Standing::Never));
            }
            return status;
        }
        let which = state.engine.comms.handle(comm.number()).map_or(0, |handle| handle.number);
        if state.engine.script.has(self.rank, Fault::DestroyBlocks { comm: which }) {
            drop(self.stage.hold(state, Standing::Never));
            return Status::INTERNAL;
        }
        if let Some(handle) = state.engine.comms.handle_mut(comm.number()) {
            handle.end = Some(End::Destroyed);
        }
        // As in the library, whose threads serve the other ranks of the host until those have ended theirs.
        drop(self.stage.hold(state, Standing::Ends(comm.number())));
        Status::SUCCESS
    }

    fn abort(&self, comm: Comm) -> Status {
        let mut state = self.enter();
        if let Err(status) = self.alive(&mut state, comm, "ncclCommAbort") {
            return status;
        }
        let which = state.engine.comms.handle(comm.number()).map_or(0, |handle| handle.number);
        if state.engine.script.has(self.rank, Fault::AbortBlocks { comm: which }) {
            drop(self.stage.hold(state, Standing::Never));
            return Status::INTERNAL;
        }
        let takes = state.engine.script.find(self.rank, |fault| match fault {
            Fault::AbortTakes { comm, time } if comm == which => Some(time),
            _ => None,
        });
        if let Some(time) = takes {
            let until = state.now + time;
            state = self.stage.hold(state, Standing::Until(until));
        }
        let reaches_children = !state.engine.script.has(self.rank, Fault::AbortMissesChildren);
        // As in the library, which joins the thread that puts on streams what was called: that one has done so by then.
        state.launch(comm.number());
        let comms = &mut state.engine.comms;
        if let Some(handle) = comms.handle_mut(comm.number()) {
            handle.end = Some(End::Aborted);
        }
        let count = comms.handles.len() as u64;
        let is_child = |number: &u64| comms.handle(*number).is_some_and(|handle| handle.parent == Some(comm.number()));
        let children: Vec<u64> = (1..=count).filter(is_child).filter(|_| reaches_children).collect();
        children.into_iter().chain([comm.number()]).for_each(|number| comms.kill(number));
        Status::SUCCESS
    }

    fn group_start(&self) -> Status {
        drop(self.enter());
        self.stage.open_group(thread::current().id());
        Status::SUCCESS
    }

    fn group_end(&self) -> Status {
        let state = self.enter();
        match self.stage.close_group(thread::current().id()) {
            None => Status::INVALID_USAGE,
            Some(calls) if state.engine.sticky(self.rank).is_none() => self.begin(state, calls),
            Some(_) => Status::UNHANDLED_CUDA,
        }
    }

    fn all_reduce(&self, what: Transfer, op: RedOp, on: Route) -> Status {
        self.call(on, part(Kind::AllReduce, what, op, 0))
    }

    fn broadcast(&self, what: Transfer, root: i32, on: Route) -> Status {
        self.call(on, part(Kind::Broadcast, what, RedOp::SUM, root))
    }

    fn reduce(&self, what: Transfer, op: RedOp, root: i32, on: Route) -> Status {
        self.call(on, part(Kind::Reduce, what, op, root))
    }

    fn all_gather(&self, what: Transfer, on: Route) -> Status {
        self.call(on, part(Kind::AllGather, what, RedOp::SUM, 0))
    }

    fn reduce_scatter(&self, what: Transfer, op: RedOp, on: Route) -> Status {
        self.call(on, part(Kind::ReduceScatter, what, op, 0))
    }

    fn send(&self, what: Transfer, peer: i32, on: Route) -> Status {
        self.call(on, part(Kind::Send, Transfer { recv: Span::EMPTY, ..what }, RedOp::SUM, peer))
    }

    fn recv(&self, what: Transfer, peer: i32, on: Route) -> Status {
        self.call(on, part(Kind::Recv, Transfer { send: Span::EMPTY, ..what }, RedOp::SUM, peer))
    }

    fn create_pre_mul_sum(&self, scalar: Scalar, dtype: DataType, comm: Comm) -> Result<RedOp, Status> {
        let mut state = self.usable(comm, "ncclRedOpCreatePreMulSum")?;
        let Some(handle) = state.engine.comms.handle_mut(comm.number()) else { return Err(Status::INTERNAL) };
        handle.ops.push(Some((scalar, dtype)));
        Ok(RedOp((FIRST_CREATED + handle.ops.len() - 1) as i32))
    }

    fn destroy_op(&self, op: RedOp, comm: Comm) -> Status {
        // What was called with it keeps it, as in the library.
        let known = self.usable(comm, "ncclRedOpDestroy").map(|state| {
            let handle = state.engine.comms.handle(comm.number());
            handle.is_some_and(|handle| (op.0 as usize).wrapping_sub(FIRST_CREATED) < handle.ops.len())
        });
        match known {
            Ok(true) => Status::SUCCESS,
            Ok(false) => Status::INVALID_ARGUMENT,
            Err(status) => status,
        }
    }

    fn allocate(&self, device: Device, byte_len: usize) -> Result<Span, Status> {
        self.since(KNOWN_MEMORY)?;
        let span = self.cuda().allocate(device, byte_len).map_err(|_| Status::UNHANDLED_CUDA)?;
        self.stage.look().engine.comms.made.insert(span.address());
        Ok(span)
    }

    fn free(&self, span: Span) -> Status {
        if !self.stage.look().engine.comms.made.remove(&span.address()) {
            return Status::INVALID_ARGUMENT;
        }
        self.cuda().free(Device(0), span).map_or(Status::INVALID_ARGUMENT, |()| Status::SUCCESS)
    }

    fn register(&self, comm: Comm, span: Span) -> Result<Registration, Status> {
        self.since(KNOWN_MEMORY)?;
        self.learn(comm, span, ("ncclCommRegister", false)).map(Registration::new)
    }

    fn deregister(&self, comm: Comm, registration: Registration) -> Status {
        self.unlearn(comm, registration.number(), ("ncclCommDeregister", false))
    }

    fn register_window(&self, comm: Comm, span: Span, symmetric: bool) -> (Status, Option<Window>) {
        if let Err(status) = self.since(WINDOWS).and_then(|()| self.may_be_window(span)) {
            return (status, None);
        }
        match self.learn(comm, span, ("ncclCommWindowRegister", true)) {
            Ok(number) => (self.open_window(comm, span.byte_len(), symmetric), Some(Window::new(number))),
            Err(status) => (status, None),
        }
    }

    fn is_open(&self, _: Window) -> bool {
        !self.stage.look().engine.script.has(self.rank, Fault::OpensNoWindows)
    }

    fn deregister_window(&self, comm: Comm, window: Window) -> Status {
        self.unlearn(comm, window.number(), ("ncclCommWindowDeregister", true))
    }
}

#[track_caller]
fn part(kind: Kind, what: Transfer, op: RedOp, other: i32) -> Part {
    let other = usize::try_from(other).unwrap_or(usize::MAX);
    Part { kind, what, op, other, is_done: false, site: Location::caller() }
}
