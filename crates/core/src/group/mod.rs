//! A group: the ranks that work together, and every operation they have. It checks, numbers, records and submits.

mod asynchronous;
mod blocking;
mod bounds;
mod check;
mod coalesce;
mod elsewhere;
mod failing;
mod lists;
mod members;
mod messages;
mod monitored;
mod nan;
mod objects;
#[cfg(test)]
mod tests;

pub use coalesce::Coalesced;
pub use failing::WeakGroup;
pub use messages::{Delivered, Message};

use std::sync::Arc;
use std::time::Duration;

use check::Lens;
use objects::Parcels;
use phalanx_mem::Buffer;

use crate::backend::{Backend, Buffers, Number, Pending};
use crate::call::Call;
use crate::fingerprint::Fingerprint;
use crate::hook::{Alarm, Hook, Watch};
use crate::player::Data;
use crate::recorder::{Flight, Recorder};
use crate::reduce::Factor;
use crate::schedule::Profile;
use crate::work::Underway;
use crate::{DType, Element, Error, Layout, Op, OpKind, Result, Scope, Site};

/// A group of ranks and this process's place in it.
///
/// All methods take `&self`: a group may be used from several threads. Collectives must be called in the same order by
/// every rank; messages are matched by sender and tag.
///
/// This is a handle: a clone is the same group, and the group is left when the last handle is dropped.
///
/// ```
/// # use phalanx_core::{Group, ReduceOp, Result};
/// /// One step of training: the mean of all ranks' gradients, and the loss of them all for whoever prints it.
/// fn step(group: &Group, gradients: &mut [f32], loss: f32) -> Result<f32> {
///     group.all_reduce(gradients, ReduceOp::Avg)?;
///     let mut sum = [loss];
///     group.reduce(&mut sum, ReduceOp::Sum, 0)?;
///     Ok(sum[0] / group.size() as f32)
/// }
/// ```
///
/// # Errors
///
/// What every operation returns that fails. Ranks that are named are the world's, and [`Error::scope`] says what is left:
///
/// - [`Usage`](Error::Usage): an argument is refused, which is named. Nothing was sent, and the group goes on; other ranks wait for this one.
/// - [`Desync`](Error::Desync): the two ranks that are named do not call the same. Every rank is told once, by this call or its next one. With
///   their calls after that they connect anew, where the backend can, and the group goes on.
/// - [`Peer`](Error::Peer): the ranks that are named are dead, silent or gone, or sent what is corrupt. The group is finished on every rank.
/// - [`Timeout`](Error::Timeout): the call took too long; whom it waited for is named. The group is finished on every rank.
/// - [`Aborted`](Error::Aborted): somebody ended the group, or a first failure did, which is the cause and names who is at fault.
/// - [`Setup`](Error::Setup): this rank lacks something, or others do not connect anew; [`Device`](Error::Device): its device failed.
#[derive(Clone, Debug)]
pub struct Group {
    shared: Arc<Shared>,
    /// How long a call of this handle may take.
    timeout: Duration,
    /// Where the program calls by this handle, where that is not where Rust does.
    site: Option<Site>,
}

/// What all handles of one group have in common.
#[derive(Debug)]
struct Shared {
    layout: Layout,
    members: Arc<[usize]>,
    backend: Arc<dyn Backend>,
    options: GroupOptions,
    recorder: Arc<Recorder>,
    parcels: Parcels,
}

/// How a group behaves. Ranks have to say the same epoch, profile, name and members, and whether lines are compared; the rest is each rank's own.
///
/// ```
/// # use std::time::Duration;
/// # use phalanx_core::GroupOptions;
/// let options = GroupOptions::default().name("data").timeout(Duration::from_secs(60)).check_nan(true);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct GroupOptions {
    name: Option<String>,
    members: Option<Arc<[usize]>>,
    timeout: Duration,
    epoch: u32,
    compare_sites: bool,
    remembered: usize,
    profile: Option<Profile>,
    largest_object: usize,
    check_nan: bool,
    is_bare: bool,
    hooks: Arc<Vec<Arc<dyn Hook>>>,
    alarms: Arc<Vec<Arc<dyn Alarm>>>,
}

impl Default for GroupOptions {
    /// No hooks, no check for NaN, sites not compared; "world", 30 minutes an operation, epoch 0, 2,048 operations remembered, objects up to 256 MiB.
    fn default() -> GroupOptions {
        let timeout = Duration::from_secs(30 * 60);
        let (largest_object, hooks, alarms) = (256 << 20, Arc::default(), Arc::default());
        GroupOptions {
            name: None,
            members: None,
            timeout,
            epoch: 0,
            compare_sites: false,
            remembered: 2048,
            profile: None,
            largest_object,
            check_nan: false,
            is_bare: false,
            hooks,
            alarms,
        }
    }
}

impl GroupOptions {
    /// What the group is called in messages.
    pub fn name(mut self, name: impl Into<String>) -> GroupOptions {
        self.name = Some(name.into());
        self
    }

    /// The name that was set.
    #[doc(hidden)]
    pub fn chosen_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Which ranks of a world are the group's, in its order, one for each. Unless set, rank `i` is the world's rank `i`.
    pub fn members(mut self, members: impl Into<Arc<[usize]>>) -> GroupOptions {
        self.members = Some(members.into());
        self
    }

    /// The members that were set, for backends.
    #[doc(hidden)]
    pub fn chosen_members(&self) -> Option<&Arc<[usize]>> {
        self.members.as_ref()
    }

    /// The members of a group of so many ranks, one for each.
    #[doc(hidden)]
    pub fn members_of(&self, size: usize) -> Arc<[usize]> {
        match &self.members {
            Some(members) if members.len() == size => Arc::clone(members),
            Some(members) => (0..size).map(|rank| members.get(rank).copied().unwrap_or(rank)).collect(),
            None => (0..size).collect(),
        }
    }

    /// How long an operation may take before it ends in [`Error::Timeout`].
    pub fn timeout(mut self, timeout: Duration) -> GroupOptions {
        self.timeout = timeout;
        self
    }

    /// Which life of the group this is: frames of another one are refused.
    pub fn epoch(mut self, epoch: u32) -> GroupOptions {
        self.epoch = epoch;
        self
    }

    /// The epoch, for backends, whose messages carry it too.
    #[doc(hidden)]
    pub fn current_epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether ranks must call from the same line of the program, which tells operations of one shape apart. Not where ranks run different code.
    pub fn compare_call_sites(mut self, compare: bool) -> GroupOptions {
        self.compare_sites = compare;
        self
    }

    /// From how many bytes on other algorithms are chosen. Unless set, as where this was developed.
    pub fn profile(mut self, profile: Profile) -> GroupOptions {
        self.profile = Some(profile);
        self
    }

    /// The profile, for backends, which choose by it; none where it was not set.
    #[doc(hidden)]
    pub fn chosen_profile(&self) -> Option<Profile> {
        self.profile
    }

    /// How many operations the flight recorder remembers, about 150 bytes each.
    pub fn remembered(mut self, operations: usize) -> GroupOptions {
        self.remembered = operations;
        self
    }

    /// Whether what goes into an operation is searched for NaN, which is then refused with [`Error::Usage`] on the rank that
    /// gave it. Its peers wait for it until it comes with something else or their time is up.
    pub fn check_nan(mut self, check: bool) -> GroupOptions {
        self.check_nan = check;
        self
    }

    /// Leaves out what tells of mistakes and failures: operations are neither recorded nor compared with those of the other ranks,
    /// hooks see none, and none has a deadline. Only to measure what that costs: a mistake gives wrong data or hangs.
    #[doc(hidden)]
    pub fn bare(mut self, is_bare: bool) -> GroupOptions {
        self.is_bare = is_bare;
        self
    }

    /// Has `hook` told of every operation, after those that are told already.
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> GroupOptions {
        Arc::make_mut(&mut self.hooks).push(hook);
        self
    }

    /// Something that is told when calls fail, but for those whose arguments are wrong.
    pub fn alarm(mut self, alarm: Arc<dyn Alarm>) -> GroupOptions {
        Arc::make_mut(&mut self.alarms).push(alarm);
        self
    }

    /// How many bytes an object or blob of a rank may have. Ranks take the least of what all of them say.
    pub fn largest_object(mut self, byte_len: usize) -> GroupOptions {
        self.largest_object = byte_len;
        self
    }
}

impl Group {
    /// A group at `layout`, whose operations `backend` carries out.
    pub fn new(layout: Layout, backend: Arc<dyn Backend>, options: GroupOptions) -> Group {
        let (timeout, recorder) = (options.timeout, Arc::new(Recorder::new(options.remembered)));
        let members = options.members_of(layout.size());
        let parcels = Parcels::default();
        let shared = Arc::new(Shared { layout, members, backend, options, recorder, parcels });
        Group { shared, timeout, site: None }
    }

    /// Who carries its operations out, for a backend that adds to another.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// This process's number in the group.
    pub fn rank(&self) -> usize {
        self.shared.layout.rank()
    }

    /// How many ranks the group has.
    pub fn size(&self) -> usize {
        self.shared.layout.size()
    }

    /// Who shares a host with whom.
    pub fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    /// What the group is called.
    pub fn name(&self) -> &str {
        self.shared.options.chosen_name().unwrap_or("world")
    }

    /// Which life of the group this is.
    pub fn epoch(&self) -> u32 {
        self.shared.options.epoch
    }

    /// The time now, by the clock of what the [recorder](Group::recorder) writes down.
    #[doc(hidden)]
    pub fn now(&self) -> Duration {
        self.shared.backend.now()
    }

    /// The last operations of the group on this rank, the oldest first.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.shared.recorder
    }

    /// Ends the group on this rank: what is under way and to come fails with [`Error::Aborted`], and the peers notice.
    pub fn abort(&self, why: impl Into<String>) {
        self.shared.backend.abort(Error::aborted(format!("rank {}: {}", self.own_world_rank(), why.into())));
    }

    /// A buffer of `byte_len` zeroed bytes for this group's operations, of the fastest kind there is: on one host the peers
    /// read it where it is. Use its [elements](Buffer::as_mut_slice) as those of any other memory, and keep it from one
    /// operation to the next: to make one costs more than an operation gains. A process that is forked has the same memory, not a copy of it.
    ///
    /// # Errors
    ///
    /// [`Setup`](crate::ErrorKind::Setup) when memory is out.
    pub fn buffer(&self, byte_len: usize) -> Result<Buffer> {
        self.shared.backend.allocate(byte_len)
    }

    /// Runs `op` over untyped elements: every blocking operation is this. `input` is absent for operations in place.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are also bytes that are no whole elements, and no `input` where there is no form in place.
    #[track_caller]
    pub fn run_bytes(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<Option<usize>> {
        let number = self.admit(&op, dtype, factor, input, output)?;
        let call = self.numbered(op, dtype, (factor, input.is_none()), number, Site::caller());
        self.play(&call, input, output)
    }

    /// Submits `op` with its untyped buffers: every asynchronous operation is this.
    ///
    /// # Errors
    ///
    /// As [`run_bytes`](Group::run_bytes); what fails after it was submitted is told by what is returned.
    #[track_caller]
    pub fn submit_bytes(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        buffers: Buffers,
    ) -> Result<Box<dyn Pending>> {
        self.submit_from(op, dtype, factor, buffers, Site::caller()).map(|underway| underway.pending)
    }

    /// The same for a unit of a model, by its number: ranks that are in the same operation for different units disagree.
    ///
    /// # Errors
    ///
    /// As [`submit_bytes`](Group::submit_bytes), and for an operation that has a root, or is not of all ranks alike.
    #[doc(hidden)]
    #[track_caller]
    pub fn submit_for(&self, unit: usize, op: Op, dtype: DType, buffers: Buffers) -> Result<Box<dyn Pending>> {
        if op.root().is_some() || op.is_message() {
            return Err(Error::usage("submit_for", "op", op.kind(), "must be one of all ranks alike, without a root"));
        }
        let input = buffers.input.as_ref().map(Buffer::as_bytes);
        let mut call = self.call(op, dtype, None, input, buffers.output.as_bytes(), Site::caller())?;
        call.fingerprint = call.fingerprint.marked(unit);
        Ok(self.submit(call, buffers).pending)
    }

    fn submit_from(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        buffers: Buffers,
        site: Site,
    ) -> Result<Underway> {
        let input = buffers.input.as_ref().map(Buffer::as_bytes);
        let call = self.call(op, dtype, factor, input, buffers.output.as_bytes(), site)?;
        Ok(self.submit(call, buffers))
    }

    fn submit(&self, call: Call, buffers: Buffers) -> Underway {
        call.open(self.shared.backend.now());
        let flight = call.flight.clone();
        Underway { pending: self.alarmed(self.shared.backend.submit(call, buffers), flight.clone()), flight }
    }

    /// Plays a call on this thread. Returns the sender of a message that was received.
    fn play(&self, call: &Call, input: Option<&[u8]>, output: &mut [u8]) -> Result<Option<usize>> {
        let end = self.shared.backend.run(call, &mut Data { input: input.unwrap_or_default(), output: &mut *output });
        if cfg!(debug_assertions) && matches!(&end, Err(error) if error.scope() == Scope::Group) {
            // What has no meaning is not to be taken for something that has.
            output.fill(POISON);
        }
        self.told_of(call, end)
    }

    /// That an operation may be called with these buffers.
    fn fits(&self, op: &Op, dtype: DType, factor: Option<Factor>, input: Option<&[u8]>, output: &[u8]) -> Result<()> {
        let len = |argument, bytes: &[u8]| check::whole_elements(op.kind(), argument, bytes.len(), dtype);
        let lens = Lens { input: input.map(|input| len("input", input)).transpose()?, output: len("output", output)? };
        check::check(op, dtype, factor, &self.shared.layout, lens)
    }

    /// Checks, numbers and records an operation.
    fn call(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        input: Option<&[u8]>,
        output: &[u8],
        site: Site,
    ) -> Result<Call> {
        let number = self.admit(&op, dtype, factor, input, output)?;
        Ok(self.numbered(op, dtype, (factor, input.is_none()), number, site))
    }

    /// Checks an operation, and gives it its number.
    fn admit(
        &self,
        op: &Op,
        dtype: DType,
        factor: Option<Factor>,
        input: Option<&[u8]>,
        output: &[u8],
    ) -> Result<Number> {
        self.check_bytes(op, dtype, factor, input, output)?;
        self.next_number(op.kind())
    }

    /// The number of the next operation, which may be called.
    fn next_number(&self, kind: OpKind) -> Result<Number> {
        self.told(self.shared.backend.number(kind, self.timeout))
    }

    /// Numbers an operation that may be called like this, and writes it down unless that can wait.
    fn number(&self, op: Op, dtype: DType, factor: Option<Factor>, in_place: bool, site: Site) -> Result<Call> {
        self.shared.backend.accepts(&op, dtype, factor)?;
        let number = self.next_number(op.kind())?;
        Ok(self.numbered(op, dtype, (factor, in_place), number, site))
    }

    /// The operation that has this number. It is made where it stays: what a small operation costs is to a good part that its pieces, just
    /// written, are read again to be moved.
    fn numbered(
        &self,
        op: Op,
        dtype: DType,
        (factor, in_place): (Option<Factor>, bool),
        number: Number,
        site: Site,
    ) -> Call {
        let (shared, size) = (&*self.shared, self.size());
        let (options, is_bare) = (&shared.options, shared.options.is_bare);
        // Of an operation of which nothing is told, nothing is compared either.
        let told = if is_bare { (&Op::Barrier, DType::U8) } else { (&op, dtype) };
        let mut call = Call {
            fingerprint: Fingerprint::of(told.0, told.1, size, options.epoch, number.sequence),
            need: op.need(self.rank(), size),
            flight: if is_bare { Flight::unrecorded() } else { Flight::new(&shared.recorder) },
            timeout: if is_bare { Duration::MAX } else { self.timeout.saturating_sub(number.waited) },
            site: self.site.unwrap_or(site),
            sequence: number.sequence,
            round: number.round,
            op,
            dtype,
            factor,
            in_place,
            watch: None,
        };
        if options.compare_sites && !is_bare {
            call.fingerprint = call.fingerprint.at(call.site);
        }
        let is_long = call.need.input.max(call.need.output) * dtype.byte_len() > WRITTEN_LATER;
        if (is_long || !options.hooks.is_empty()) && !is_bare {
            let now = shared.backend.now();
            call.open(now);
            let record = || call.record(call.flight.number().unwrap_or_default(), now);
            call.watch = Watch::begin(&options.hooks, &shared.members, record);
        }
        call
    }
}

/// Slices of elements as the bytes they are.
fn bytes<T: Element>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

fn bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

/// Up to so many bytes an operation is through with what it can do alone in less than a microsecond, and is written down after that.
const WRITTEN_LATER: usize = 4096;
/// In every byte of a floating number: not a number.
const POISON: u8 = 0xff;
