//! The calls: what a group asks of NCCL, answered by ranks of one host among themselves.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use phalanx_core::store::Store;

use super::MOST_RANKS;
use super::lot::{Called, Kind};
use super::member::{Member, Phase, Seat};
use super::split::Split;
use super::trouble::Trouble;
use crate::api::{
    Bell, Comm, CommConfig, Cuda, DataType, Device, Nccl, Process, RedOp, Route, Scalar, Span, Status, Transfer,
    UniqueId, Version,
};
use crate::register::{Register, locked};

/// What is asked of NCCL, by processes of one host among themselves. See the [module](super).
#[must_use]
pub struct SameHost<C, P> {
    cuda: Arc<C>,
    process: Arc<P>,
    store: Store,
    piece: usize,
    bell: Arc<dyn Bell>,
    comms: Register<Place<C>>,
    groups: Mutex<HashMap<ThreadId, OpenGroup>>,
    /// Words for what went wrong where there is no communicator to ask.
    words: Mutex<String>,
    kept: AtomicUsize,
}

/// A group of calls that a thread has open: how deep, and what was called.
#[derive(Default)]
struct OpenGroup {
    depth: usize,
    calls: Vec<(Route, Called)>,
}

/// Where a communicator is between calls: whoever does something with it takes it out, so that nobody holds a lock meanwhile.
struct Place<C> {
    member: Mutex<Option<Member<C>>>,
    is_aborted: AtomicBool,
    /// For those who ask while it is out.
    words: Mutex<String>,
}

impl<C: Cuda, P: Process> SameHost<C, P> {
    /// The transport of one rank. The store is the same for all ranks of the job, and nobody else writes there.
    pub fn new(cuda: Arc<C>, process: Arc<P>, store: Store) -> SameHost<C, P> {
        let bell = process.bell();
        let (groups, words) = Default::default();
        let (comms, kept) = (Register::new(), AtomicUsize::new(0));
        SameHost { cuda, process, store, piece: PIECE, bell, comms, groups, words, kept }
    }

    /// How many bytes a round takes at a time: 4 MiB unless told otherwise, and the same on all ranks. A communicator keeps up to four times as
    /// much of its device.
    ///
    /// # Panics
    ///
    /// Below 1 KiB.
    pub fn piece(mut self, byte_len: usize) -> SameHost<C, P> {
        assert!(byte_len >= LEAST_PIECE, "a piece of {byte_len} bytes is less than {LEAST_PIECE}");
        self.piece = byte_len.next_multiple_of(LEAST_PIECE);
        self
    }

    /// How many communicators have ended here whose memory stays taken, because some other rank has never let go of it.
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Does something with a communicator, which nobody else has in hand meanwhile.
    fn with<T>(&self, comm: Comm, run: impl FnOnce(&mut Member<C>) -> Result<T, Trouble>) -> Result<T, Status> {
        let place = self.comms.find(comm.number()).ok_or(Status::INVALID_ARGUMENT)?;
        let mut member = locked(&place.member).take().ok_or(Status::INVALID_USAGE)?;
        let answer = run(&mut member);
        if let Some(trouble) = answer.as_ref().err().or(member.trouble.as_ref()) {
            locked(&place.words).clone_from(&trouble.words);
        }
        *locked(&place.member) = Some(member);
        if place.is_aborted.load(Ordering::Acquire) {
            // Whoever aborted it found it in our hands.
            self.end(&place);
        }
        answer.map_err(|trouble| trouble.status)
    }

    /// A new communicator, once it is whole where calls wait.
    fn enter(&self, joined: Result<Member<C>, Trouble>) -> (Status, Comm) {
        let member = match joined {
            Ok(member) => member,
            Err(trouble) => return (self.refused(trouble), Comm::NONE),
        };
        let (is_aborted, words) = (AtomicBool::new(false), Mutex::default());
        let place = Place { member: Mutex::new(Some(member)), is_aborted, words };
        let comm = Comm::new(self.comms.enter(place));
        let status = self.settle(comm);
        if status.is_success() || status.is_in_progress() {
            return (status, comm);
        }
        // Nobody gets it, so nobody else ends it.
        if let Some(place) = self.comms.take(comm.number()) {
            let words = locked(&place.words).clone();
            *locked(&self.words) = words;
            place.is_aborted.store(true, Ordering::Release);
            self.end(&place);
        }
        (status, Comm::NONE)
    }

    fn refused(&self, trouble: Trouble) -> Status {
        *locked(&self.words) = trouble.words;
        trouble.status
    }

    /// How a communicator stands, after it has gone on; where calls wait, once it is not in progress any more.
    fn settle(&self, comm: Comm) -> Status {
        loop {
            let seen = self.bell.count();
            let asked = self.with(comm, |member| Ok((member.poll(), member.is_blocking)));
            match asked {
                Ok((status, true)) if status.is_in_progress() => {
                    self.bell.wait(seen, Some(self.process.now() + GLANCE));
                }
                Ok((status, _)) => return status,
                Err(status) => return status,
            }
        }
    }

    /// Makes a call, or notes it where the thread has a group open.
    fn call(&self, on: Route, call: Result<Called, Status>) -> Status {
        let call = match call {
            Ok(call) => call,
            Err(status) => return status,
        };
        if let Some(group) = locked(&self.groups).get_mut(&thread::current().id()) {
            group.calls.push((on, call));
            return Status::SUCCESS;
        }
        self.begin(on.comm, vec![(on, call)])
    }

    fn begin(&self, comm: Comm, calls: Vec<(Route, Called)>) -> Status {
        match self.with(comm, |member| member.take_up(calls)) {
            Ok(()) => self.settle(comm),
            Err(status) => status,
        }
    }

    fn checked(&self, on: Route, call: Called) -> Result<Called, Status> {
        self.with(on.comm, |member| call.checked(member.rank, member.size))
    }

    fn joining(&self, on: Route, kind: Kind, what: Transfer, op: RedOp) -> Result<Called, Status> {
        self.with(on.comm, |member| member.joining(kind, what, op))
    }

    /// Ends a communicator that is in nobody's hands, in the time that others need who end theirs too. Its memory stays taken where one does not.
    fn end(&self, place: &Place<C>) {
        let Some(mut member) = locked(&place.member).take() else { return };
        if member.phase == Phase::Left {
            return;
        }
        member.begin_to_leave();
        let until = self.process.now() + PATIENCE;
        while member.poll().is_in_progress() && self.process.now() < until {
            self.bell.wait(self.bell.count(), Some(self.process.now() + GLANCE));
        }
        if member.phase != Phase::Left {
            self.kept.fetch_add(1, Ordering::Relaxed);
            log::debug!("a communicator of rank {} keeps its memory: some rank has not let go of it", member.rank);
        }
    }
}

impl<C: Cuda, P: Process> Nccl for SameHost<C, P> {
    /// Of NCCL, whose functions of this version there are.
    fn version(&self) -> Result<Version, Status> {
        Ok(Version::OLDEST)
    }

    fn error_text(&self, status: Status) -> String {
        format!("{status}, between ranks of one host")
    }

    fn last_error(&self, comm: Option<Comm>) -> String {
        let place = comm.and_then(|comm| self.comms.find(comm.number()));
        place.map_or_else(|| locked(&self.words).clone(), |place| locked(&place.words).clone())
    }

    fn unique_id(&self) -> Result<UniqueId, Status> {
        let number = self.store.add("ids", 1).map_err(|error| self.refused(error.into()))?;
        let mut bytes = [0; 128];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[MAGIC.len()..][..8].copy_from_slice(&number.to_le_bytes());
        Ok(UniqueId(bytes))
    }

    fn init(&self, device: Device, rank: i32, size: i32, id: &UniqueId, config: &CommConfig) -> (Status, Comm) {
        let seat = || {
            let id = id.0.strip_prefix(MAGIC).and_then(|rest| rest.first_chunk());
            let number =
                i64::from_le_bytes(*id.ok_or_else(|| Trouble::argument("the id is none of ranks of one host"))?);
            let ranks = usize::try_from(rank).ok().zip(usize::try_from(size).ok());
            let (rank, size) = ranks.filter(|(rank, size)| rank < size && *size <= MOST_RANKS).ok_or_else(|| {
                Trouble::argument(format!("rank {rank} of {size}: there are 1 to {MOST_RANKS} ranks"))
            })?;
            let store = self.store.scope(&number.to_string());
            Ok(Seat { device, rank, size, is_blocking: config.blocking, store, piece: self.piece })
        };
        self.enter(seat().and_then(|seat| Member::join(&self.cuda, seat)))
    }

    /// Waits for all ranks of the communicator, which call it too, but for those that come to the new one.
    fn split(&self, comm: Comm, colour: Option<i32>, key: i32, config: &CommConfig) -> (Status, Comm) {
        let split = match self.with(comm, |member| Split::begin(member, colour, key)) {
            Ok(split) => split,
            Err(status) => return (status, Comm::NONE),
        };
        let Some(colour) = colour else { return (Status::SUCCESS, Comm::NONE) };
        let seat = split.seat(colour, config, self.piece);
        self.enter(seat.and_then(|seat| Member::join(&self.cuda, seat)))
    }

    fn count(&self, comm: Comm) -> Result<i32, Status> {
        self.with(comm, |member| Ok(member.size as i32))
    }

    fn rank(&self, comm: Comm) -> Result<i32, Status> {
        self.with(comm, |member| Ok(member.rank as i32))
    }

    fn device(&self, comm: Comm) -> Result<Device, Status> {
        self.with(comm, |member| Ok(member.device))
    }

    fn async_error(&self, comm: Comm) -> Result<Status, Status> {
        self.with(comm, |member| Ok(member.poll()))
    }

    fn finalize(&self, comm: Comm) -> Status {
        let begun = self.with(comm, |member| {
            member.is_free()?;
            member.begin_to_leave();
            Ok(())
        });
        begun.map_or_else(|status| status, |()| self.settle(comm))
    }

    fn destroy(&self, comm: Comm) -> Status {
        self.abort(comm)
    }

    fn abort(&self, comm: Comm) -> Status {
        let Some(place) = self.comms.take(comm.number()) else { return Status::INVALID_ARGUMENT };
        place.is_aborted.store(true, Ordering::Release);
        self.end(&place);
        Status::SUCCESS
    }

    fn group_start(&self) -> Status {
        locked(&self.groups).entry(thread::current().id()).or_default().depth += 1;
        Status::SUCCESS
    }

    fn group_end(&self) -> Status {
        let calls = {
            let mut groups = locked(&self.groups);
            let Some(group) = groups.get_mut(&thread::current().id()) else { return Status::INVALID_USAGE };
            group.depth -= 1;
            if group.depth > 0 {
                return Status::SUCCESS;
            }
            groups.remove(&thread::current().id()).unwrap_or_default().calls
        };
        let mut by_comm: BTreeMap<u64, Vec<(Route, Called)>> = BTreeMap::new();
        calls.into_iter().for_each(|call| by_comm.entry(call.0.comm.number()).or_default().push(call));
        let statuses = by_comm.into_iter().map(|(comm, calls)| self.begin(Comm::new(comm), calls));
        let worst = |one: Status, other: Status| match (one, other) {
            (Status::SUCCESS, other) => other,
            (Status::IN_PROGRESS, other) if !other.is_success() => other,
            (one, _) => one,
        };
        statuses.fold(Status::SUCCESS, worst)
    }

    fn all_reduce(&self, what: Transfer, op: RedOp, on: Route) -> Status {
        self.call(on, self.joining(on, Kind::AllReduce, what, op))
    }

    fn broadcast(&self, what: Transfer, root: i32, on: Route) -> Status {
        self.call(on, self.checked(on, Called::Collective(Kind::Broadcast(index(root)), what, None)))
    }

    fn reduce(&self, what: Transfer, op: RedOp, root: i32, on: Route) -> Status {
        self.call(on, self.joining(on, Kind::Reduce(index(root)), what, op))
    }

    fn all_gather(&self, what: Transfer, on: Route) -> Status {
        self.call(on, self.checked(on, Called::Collective(Kind::AllGather, what, None)))
    }

    fn reduce_scatter(&self, what: Transfer, op: RedOp, on: Route) -> Status {
        self.call(on, self.joining(on, Kind::ReduceScatter, what, op))
    }

    fn send(&self, what: Transfer, peer: i32, on: Route) -> Status {
        self.call(on, self.checked(on, Called::Send(what, index(peer))))
    }

    fn recv(&self, what: Transfer, peer: i32, on: Route) -> Status {
        self.call(on, self.checked(on, Called::Recv(what, index(peer))))
    }

    fn create_pre_mul_sum(&self, scalar: Scalar, dtype: DataType, comm: Comm) -> Result<RedOp, Status> {
        self.with(comm, |member| member.create_scaled(scalar, dtype))
    }

    fn destroy_op(&self, op: RedOp, comm: Comm) -> Status {
        self.with(comm, |member| Ok(member.destroy_scaled(op))).unwrap_or_else(|status| status)
    }

    fn free(&self, span: Span) -> Status {
        if span.is_empty() { Status::SUCCESS } else { Status::ABSENT }
    }
}

impl<C, P> fmt::Debug for SameHost<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SameHost with {} communicators, pieces of {} bytes", self.comms.len(), self.piece)
    }
}

/// A rank in our numbers; one that cannot be is refused as one that is too high.
fn index(rank: i32) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}

/// What every id begins with.
const MAGIC: &[u8] = b"phalanx: ranks of one host ";
/// Bytes that a round takes at a time.
const PIECE: usize = 4 << 20;
/// Room for an element of each of all ranks, and more.
const LEAST_PIECE: usize = 1 << 10;
/// How often somebody who waits asks.
const GLANCE: Duration = Duration::from_micros(100);
/// How long a communicator that ends waits for the others to let go of its desk.
const PATIENCE: Duration = Duration::from_secs(1);
