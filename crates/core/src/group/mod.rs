//! A group: the ranks that work together, and every operation they have. It checks, numbers, records and submits.

mod asynchronous;
mod blocking;
mod check;
mod messages;
#[cfg(test)]
mod tests;

pub use messages::{Delivered, Message};

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use check::Lens;
use phalanx_mem::Buffer;

use crate::backend::{Backend, Buffers, Pending};
use crate::call::Call;
use crate::fingerprint::Fingerprint;
use crate::player::Data;
use crate::recorder::{Record, Recorder};
use crate::reduce::Factor;
use crate::schedule::Profile;
use crate::{DType, Element, Error, Layout, Op, Result};

/// A group of ranks and this process's place in it.
///
/// All methods take `&self`: a group may be used from several threads. Collectives must be called in the same order by
/// every rank; messages are matched by sender and tag.
#[derive(Debug)]
pub struct Group {
    layout: Layout,
    backend: Arc<dyn Backend>,
    options: GroupOptions,
    /// Numbers the collectives, alike on every rank.
    collectives: AtomicU32,
    /// Numbers the messages, each rank its own.
    messages: AtomicU32,
    recorder: Arc<Recorder>,
}

/// How a group behaves. Ranks must agree on all but the timeout.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    name: String,
    timeout: Duration,
    epoch: u32,
    compare_sites: bool,
    remembered: usize,
    profile: Option<Profile>,
}

impl Default for GroupOptions {
    /// Named "world", 30 minutes for an operation, epoch 0, call sites not compared, 2,048 operations remembered.
    fn default() -> GroupOptions {
        let timeout = Duration::from_secs(30 * 60);
        let name = "world".to_owned();
        GroupOptions { name, timeout, epoch: 0, compare_sites: false, remembered: 2048, profile: None }
    }
}

impl GroupOptions {
    /// What the group is called in messages.
    pub fn name(mut self, name: impl Into<String>) -> GroupOptions {
        self.name = name.into();
        self
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
    pub fn current_epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether ranks must call from the same line of the program. It tells two operations of the same shape apart; leave
    /// it off where ranks run different code.
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
    pub fn chosen_profile(&self) -> Option<Profile> {
        self.profile
    }

    /// How many operations the flight recorder remembers, about 150 bytes each.
    pub fn remembered(mut self, operations: usize) -> GroupOptions {
        self.remembered = operations;
        self
    }
}

impl Group {
    /// A group at `layout`, whose operations `backend` carries out.
    pub fn new(layout: Layout, backend: Arc<dyn Backend>, options: GroupOptions) -> Group {
        let recorder = Arc::new(Recorder::new(options.remembered));
        Group { layout, backend, options, collectives: AtomicU32::new(0), messages: AtomicU32::new(0), recorder }
    }

    /// This process's number in the group.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// How many ranks the group has.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Who shares a host with whom.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What the group is called.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The last operations of the group on this rank, the oldest first.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Ends the group on this rank: what is under way and to come fails with [`Error::Aborted`], and the peers notice.
    pub fn abort(&self, why: impl Into<String>) {
        self.backend.abort(Error::aborted(format!("rank {}: {}", self.rank(), why.into())));
    }

    /// A buffer of `byte_len` zeroed bytes for this group's operations, of the fastest kind there is: on one host the peers
    /// read it where it is. Use its [elements](Buffer::as_mut_slice) as those of any other memory, and keep it from one
    /// operation to the next: to make one costs more than an operation gains.
    ///
    /// # Errors
    ///
    /// [`Setup`](crate::ErrorKind::Setup) when memory is out.
    pub fn buffer(&self, byte_len: usize) -> Result<Buffer> {
        self.backend.allocate(byte_len)
    }

    /// Runs `op` over untyped elements: every blocking operation is this. `input` is absent for operations in place.
    #[track_caller]
    pub fn run_bytes(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        input: Option<&[u8]>,
        output: &mut [u8],
    ) -> Result<Option<usize>> {
        let call = self.call(op, dtype, factor, input.map(<[u8]>::len), output.len(), Location::caller())?;
        self.backend.run(&call, &mut Data { input: input.unwrap_or_default(), output })
    }

    /// Submits `op` with its untyped buffers: every asynchronous operation is this.
    #[track_caller]
    pub fn submit_bytes(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        buffers: Buffers,
    ) -> Result<Box<dyn Pending>> {
        self.submit_from(op, dtype, factor, buffers, Location::caller())
    }

    fn submit_from(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        buffers: Buffers,
        site: &'static Location<'static>,
    ) -> Result<Box<dyn Pending>> {
        let input = buffers.input.as_ref().map(Buffer::byte_len);
        let call = self.call(op, dtype, factor, input, buffers.output.byte_len(), site)?;
        Ok(self.backend.submit(call, buffers))
    }

    /// Checks, numbers and records an operation.
    fn call(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        input: Option<usize>,
        output: usize,
        site: &'static Location<'static>,
    ) -> Result<Call> {
        let kind = op.kind();
        let input = input.map(|byte_len| check::whole_elements(kind, "input", byte_len, dtype)).transpose()?;
        let output = check::whole_elements(kind, "output", output, dtype)?;
        check::check(&op, dtype, factor, &self.layout, Lens { input, output })?;
        let counter = if op.is_message() { &self.messages } else { &self.collectives };
        let sequence = counter.fetch_add(1, Ordering::Relaxed);
        let fingerprint = Fingerprint::of(&op, dtype, self.size(), self.options.epoch, sequence);
        let fingerprint = if self.options.compare_sites { fingerprint.at(site) } else { fingerprint };
        let created = self.backend.now();
        let record = Record { sequence, created, ..Record::of(&op, dtype, self.rank(), self.size(), site) };
        let flight = self.recorder.create(|number| Record { number, ..record });
        let (timeout, in_place) = (self.options.timeout, input.is_none());
        Ok(Call { op, dtype, factor, in_place, sequence, fingerprint, created, timeout, site, flight })
    }
}

/// Slices of elements as the bytes they are.
fn bytes<T: Element>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

fn bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}
