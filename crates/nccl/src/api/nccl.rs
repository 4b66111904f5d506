//! What is asked of NCCL.

use super::{Comm, CommConfig, DataType, Device, RedOp, Registration, Span, Status, Stream, UniqueId, Version, Window};

/// NCCL, real or simulated: one method for each function that is used, with the same meaning.
///
/// *Answers.* A call that can be in progress answers with its [`Status`] as the library gave it; where it makes a communicator, with
/// both. Where the status is neither success nor in progress, there may be one all the same that was begun: all that may be done with it is to
/// [abort](Nccl::abort) it. A method that has a body here is one that a library of 2.18 need not have: it answers [`Status::ABSENT`] unless it is
/// implemented, and so does an implementation whose library lacks the symbol.
///
/// *Threads.* Calls for one communicator come from one thread, but for [`async_error`](Nccl::async_error), [`abort`](Nccl::abort)
/// and [`revoke`](Nccl::revoke), which come from any. [`group_start`](Nccl::group_start) and [`group_end`](Nccl::group_end) embrace calls
/// of their own thread.
///
/// *Handles.* A communicator that this implementation did not give out, or that was destroyed or aborted, is answered with
/// [`Status::INVALID_ARGUMENT`] and never followed.
///
/// # Errors
///
/// The status that the library answers with, where that is neither success nor in progress.
#[expect(clippy::missing_errors_doc, reason = "the trait says it once for all")]
pub trait Nccl: Send + Sync + 'static {
    /// The library's version.
    fn version(&self) -> Result<Version, Status>;

    /// The library's words for a status.
    fn error_text(&self, status: Status) -> String;

    /// The library's words for what last went wrong in a communicator, or anywhere.
    fn last_error(&self, comm: Option<Comm>) -> String;

    /// What the ranks of a new communicator find each other by.
    fn unique_id(&self) -> Result<UniqueId, Status>;

    /// Joins a communicator with a device, as one of so many ranks.
    fn init(&self, device: Device, rank: i32, size: i32, id: &UniqueId, config: &CommConfig) -> (Status, Comm);

    /// As [`init`](Nccl::init) with several ids, each from another rank. Since 2.23.
    fn init_scalable(
        &self,
        _device: Device,
        _rank: i32,
        _size: i32,
        _ids: &[UniqueId],
        _config: &CommConfig,
    ) -> (Status, Comm) {
        (Status::ABSENT, Comm::NONE)
    }

    /// Splits a communicator: ranks of one colour get one, in the order of their keys; without a colour there is none for this
    /// rank. All ranks call it.
    fn split(&self, comm: Comm, colour: Option<i32>, key: i32, config: &CommConfig) -> (Status, Comm);

    /// How many ranks a communicator has.
    fn count(&self, comm: Comm) -> Result<i32, Status>;

    /// This rank's number in it.
    fn rank(&self, comm: Comm) -> Result<i32, Status>;

    /// The device it was made on.
    fn device(&self, comm: Comm) -> Result<Device, Status>;

    /// How a communicator stands: success, in progress, or what it failed of.
    fn async_error(&self, comm: Comm) -> Result<Status, Status>;

    /// Brings a communicator to its end: what was called is finished.
    fn finalize(&self, comm: Comm) -> Status;

    /// Frees a finished communicator. Never after [`abort`](Nccl::abort).
    fn destroy(&self, comm: Comm) -> Status;

    /// Ends what a communicator does and frees it.
    fn abort(&self, comm: Comm) -> Status;

    /// Ends what a communicator does, so that it can be shrunk or aborted. Since 2.28.7.
    fn revoke(&self, _comm: Comm) -> Status {
        Status::ABSENT
    }

    /// A communicator of all ranks but these. Since 2.27.
    fn shrink(&self, _comm: Comm, _without: &[i32], _config: &CommConfig, _after_error: bool) -> (Status, Comm) {
        (Status::ABSENT, Comm::NONE)
    }

    /// A communicator of so many ranks, which are more than before. Since 2.29.2.
    fn grow(&self, _who: Growth<'_>, _size: i32, _config: &CommConfig) -> (Status, Comm) {
        (Status::ABSENT, Comm::NONE)
    }

    /// What new ranks find a communicator by that is to grow. Since 2.29.2.
    fn unique_id_of(&self, _comm: Comm) -> Result<UniqueId, Status> {
        Err(Status::ABSENT)
    }

    /// Begins a group of calls.
    fn group_start(&self) -> Status;

    /// Ends it: now they are on their streams, unless this is in progress.
    fn group_end(&self) -> Status;

    /// As [`group_end`](Nccl::group_end), but only estimates how many microseconds it would take. Since 2.22.
    fn group_simulate_end(&self) -> Result<f32, Status> {
        Err(Status::ABSENT)
    }

    /// See [`Op::AllReduce`](phalanx_core::Op::AllReduce).
    #[track_caller]
    fn all_reduce(&self, what: Transfer, op: RedOp, on: Route) -> Status;

    /// See [`Op::Broadcast`](phalanx_core::Op::Broadcast). What is sent matters on the root only.
    #[track_caller]
    fn broadcast(&self, what: Transfer, root: i32, on: Route) -> Status;

    /// See [`Op::Reduce`](phalanx_core::Op::Reduce). Where it is received matters on the root only.
    #[track_caller]
    fn reduce(&self, what: Transfer, op: RedOp, root: i32, on: Route) -> Status;

    /// See [`Op::AllGather`](phalanx_core::Op::AllGather); the count is what each rank gives.
    #[track_caller]
    fn all_gather(&self, what: Transfer, on: Route) -> Status;

    /// See [`Op::ReduceScatter`](phalanx_core::Op::ReduceScatter); the count is what each rank gets.
    #[track_caller]
    fn reduce_scatter(&self, what: Transfer, op: RedOp, on: Route) -> Status;

    /// Gives elements to a rank: those that are sent.
    #[track_caller]
    fn send(&self, what: Transfer, peer: i32, on: Route) -> Status;

    /// Takes elements from a rank, to where they are received.
    #[track_caller]
    fn recv(&self, what: Transfer, peer: i32, on: Route) -> Status;

    /// See [`Op::AllToAll`](phalanx_core::Op::AllToAll); the count is what each rank gives to each. Since 2.28.3.
    #[track_caller]
    fn all_to_all(&self, _what: Transfer, _on: Route) -> Status {
        Status::ABSENT
    }

    /// See [`Op::Gather`](phalanx_core::Op::Gather). Since 2.28.3.
    #[track_caller]
    fn gather(&self, _what: Transfer, _root: i32, _on: Route) -> Status {
        Status::ABSENT
    }

    /// See [`Op::Scatter`](phalanx_core::Op::Scatter). Since 2.28.3.
    #[track_caller]
    fn scatter(&self, _what: Transfer, _root: i32, _on: Route) -> Status {
        Status::ABSENT
    }

    /// A reduction that multiplies this rank's elements first.
    fn create_pre_mul_sum(&self, scalar: Scalar, dtype: DataType, comm: Comm) -> Result<RedOp, Status>;

    /// Frees a reduction that was created.
    fn destroy_op(&self, op: RedOp, comm: Comm) -> Status;

    /// Memory of a kind that can be registered best. Since 2.19.
    fn allocate(&self, _device: Device, _byte_len: usize) -> Result<Span, Status> {
        Err(Status::ABSENT)
    }

    /// Frees what [`allocate`](Nccl::allocate) gave. Since 2.19.
    fn free(&self, _span: Span) -> Status {
        Status::ABSENT
    }

    /// Makes memory known to a communicator. Since 2.19.
    fn register(&self, _comm: Comm, _span: Span) -> Result<Registration, Status> {
        Err(Status::ABSENT)
    }

    /// Makes it forget that memory. Since 2.19.
    fn deregister(&self, _comm: Comm, _registration: Registration) -> Status {
        Status::ABSENT
    }

    /// Makes memory known to all ranks; all call it. `symmetric` where it has the same offset everywhere. Since 2.27.
    fn register_window(&self, _comm: Comm, _span: Span, _symmetric: bool) -> (Status, Option<Window>) {
        (Status::ABSENT, None)
    }

    /// Whether a window is open, once the communicator is not in progress any more: a library that has none answers success all the same.
    fn is_open(&self, _window: Window) -> bool {
        false
    }

    /// Takes that back. Since 2.27.
    fn deregister_window(&self, _comm: Comm, _window: Window) -> Status {
        Status::ABSENT
    }

    /// Gives a communicator's device memory back until [`resume`](Nccl::resume). Since 2.29.7.
    fn suspend(&self, _comm: Comm) -> Status {
        Status::ABSENT
    }

    /// Takes it again. Since 2.29.7.
    fn resume(&self, _comm: Comm) -> Status {
        Status::ABSENT
    }

    /// A figure about a communicator's memory, in bytes. Since 2.29.7.
    fn memory_stat(&self, _comm: Comm, _stat: MemoryStat) -> Result<u64, Status> {
        Err(Status::ABSENT)
    }
}

/// What a call moves: so many elements of a type, from one place to another. Which ranks have how many of them is the call's to say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// What is sent.
    pub send: Span,
    /// Where what comes is put; the same for a call in place.
    pub recv: Span,
    /// How many elements.
    pub count: usize,
    /// Of which type.
    pub dtype: DataType,
}

impl Transfer {
    /// Elements that are sent and received in the same place, or in one direction alone.
    pub const fn within(span: Span, count: usize, dtype: DataType) -> Transfer {
        Transfer { send: span, recv: span, count, dtype }
    }
}

/// Where a call runs: between the ranks of a communicator, in its turn on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The communicator.
    pub comm: Comm,
    /// The stream.
    pub stream: Stream,
}

/// As whom a rank takes part when a communicator grows.
#[derive(Clone, Copy, Debug)]
pub enum Growth<'a> {
    /// As one of its ranks. The one that asked for the id brings it, and no other.
    Member {
        /// The communicator that grows.
        comm: Comm,
        /// What the new ranks find it by.
        id: Option<&'a UniqueId>,
    },
    /// As a new rank.
    Newcomer {
        /// The device it comes with.
        device: Device,
        /// Its number.
        rank: i32,
        /// What it finds the communicator by.
        id: &'a UniqueId,
    },
}

/// Where the factor of a scaled sum is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// In the call: one element in its first bytes, read before the call returns.
    Host([u8; 8]),
    /// In memory of the device, read when the operation runs.
    Device(Span),
}

/// A figure about a communicator's memory: `ncclCommMemStat_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStat(pub i32);
