//! What a program calls: operations over memory of its device, in order with its own streams.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use phalanx_core::backend::Pending;
use phalanx_core::reduce::Factor;
use phalanx_core::store::Store;
use phalanx_core::{Call, DType, Error, Group, GroupOptions, Layout, Op, OpKind, Result};

use super::adding::Adding;
use super::backend::{BARRIER, NcclBackend};
use super::flight::{Stage, Waiting};
use super::hall::Hall;
use super::job::Held;
use super::lane::Line;
use super::memory::DeviceBuffer;
use super::nan::Check;
use super::options::NcclOptions;
use super::plan::Step;
use super::stack::Stack;
use crate::api::{Cuda, Nccl, Process, Stream};

/// A group whose operations are over memory of a device.
///
/// Each begins after what was submitted to a stream of the program's before, and ends without that stream: the program makes a stream
/// wait for its end with [`DeviceWork::fence`], or waits itself. What a thread begins in several groups comes to the device in that order, so
/// that ranks whose programs do the same never wait for each other in a circle; whoever goes on on another thread fences what the first has
/// begun. Numbers, the flight recorder, hooks and alarms are those of
/// [`group`](DeviceGroup::group), which has the same operations over memory of the host.
pub struct DeviceGroup<N: Nccl, C: Cuda, P: Process> {
    group: Group,
    backend: Arc<NcclBackend<N, C, P>>,
}

/// An operation over memory of a device that is under way. Dropping it lets it go on; its memory stays until its end was observed.
#[must_use = "an operation's errors are only seen by waiting for it"]
pub struct DeviceWork<N: Nccl, C: Cuda, P: Process> {
    waiting: Waiting,
    hall: Arc<Hall<N, C, P>>,
    group: Group,
}

/// Operations that are to begin together.
pub struct Batch<'a, N: Nccl, C: Cuda, P: Process> {
    of: &'a DeviceGroup<N, C, P>,
    calls: Vec<(Call, Vec<Step>)>,
    buffers: Vec<DeviceBuffer<C>>,
    checks: Vec<Check<C>>,
    refused: Option<Error>,
    /// Once it has collectives.
    adding: Option<Adding<'a>>,
}

impl<N: Nccl, C: Cuda, P: Process> DeviceGroup<N, C, P> {
    /// A group of these ranks, which meet in the store under keys that are theirs alone.
    ///
    /// # Errors
    ///
    /// See [`NcclBackend::new`].
    pub fn new(
        stack: Stack<N, C, P>,
        layout: Layout,
        store: Store,
        options: NcclOptions,
        group: GroupOptions,
    ) -> Result<DeviceGroup<N, C, P>> {
        let options = group.chosen_members().cloned().into_iter().fold(options, NcclOptions::members);
        let options = group.chosen_name().into_iter().fold(options, NcclOptions::name);
        let backend = Arc::new(NcclBackend::new(stack, layout.clone(), store, options)?);
        Ok(DeviceGroup { group: Group::new(layout, Arc::clone(&backend) as _, group), backend })
    }

    /// A group that is there already.
    pub(super) fn over(group: Group, backend: Arc<NcclBackend<N, C, P>>) -> DeviceGroup<N, C, P> {
        DeviceGroup { group, backend }
    }

    pub(super) fn backend(&self) -> &NcclBackend<N, C, P> {
        &self.backend
    }

    /// The same group, over memory of the host.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// How many communicators could not be ended in time.
    pub fn abandoned(&self) -> usize {
        self.backend.abandoned()
    }

    /// Leaves the group and waits for its end, which nobody waits for when it is dropped. See [`NcclBackend::leave`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn leave(self, timeout: Duration) -> Result<()> {
        self.await_end(timeout)
    }

    /// The same for whoever cannot give the group away.
    pub(crate) fn await_end(&self, timeout: Duration) -> Result<()> {
        self.backend.leave(timeout)
    }

    /// Begins an operation after all that was submitted to `stream`. The input is absent where it works in place.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for what may not be called like this, or NCCL has not, and for a stream that is another
    /// device's or is being captured into a graph; of what the group failed.
    #[track_caller]
    pub fn submit(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        (input, output): (Option<&DeviceBuffer<C>>, &DeviceBuffer<C>),
        stream: Stream,
    ) -> Result<DeviceWork<N, C, P>> {
        self.check_stream(op.kind(), stream)?;
        let (call, mut steps, check) = self.call(op, dtype, factor, (input, output))?;
        let device: Vec<DeviceBuffer<C>> = input.into_iter().chain([output]).cloned().collect();
        let mut held = Held { checks: check.into_iter().collect(), ..Held::device(device) };
        if self.backend.hall.options.compares_results && gives_all_alike(&call.op) && output.byte_len() > 0 {
            let copy = self.backend.hall.staging.host(output.byte_len());
            let copy = copy.map_err(|error| self.dropped(&call, error))?;
            steps.push(Step::Copy { to: copy.span(), from: output.span() });
            held.copy = Some(copy);
        }
        self.begin(self.backend.line_of(&call.op), vec![(call, steps)], held, stream)
    }

    /// Waits, on its own stream alone, until all ranks have come to their calls of this.
    ///
    /// # Errors
    ///
    /// Those of any operation of the group, with [`Usage`](phalanx_core::ErrorKind::Usage) for a stream of another device.
    #[track_caller]
    pub fn barrier(&self, stream: Stream) -> Result<DeviceWork<N, C, P>> {
        self.check_stream(OpKind::Barrier, stream)?;
        let hall = &self.backend.hall;
        let one = hall.staging.device(BARRIER)?;
        let call = self.group.call_elsewhere(Op::Barrier, DType::F32, None, Some(0), 0)?;
        let steps = self.backend.plan(&call, None, one.span()).map_err(|error| self.dropped(&call, error))?;
        self.begin(Line::Whole, vec![(call, steps)], Held::device(vec![one]), stream)
    }

    /// Begins the operations that `add` adds as one: all collectives, or all messages. Nothing begins when one of them is refused. They come
    /// after what `add` begins in other groups; once it has added a collective, other collectives of this group are refused until it ends.
    ///
    /// # Errors
    ///
    /// Those of [`submit`](DeviceGroup::submit), and [`Usage`](phalanx_core::ErrorKind::Usage) for an empty batch.
    #[track_caller]
    pub fn coalesce(&self, stream: Stream, add: impl FnOnce(&mut Batch<'_, N, C, P>)) -> Result<DeviceWork<N, C, P>> {
        let (calls, buffers, checks) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = Batch { of: self, calls, buffers, checks, refused: None, adding: None };
        add(&mut batch);
        let Batch { calls, buffers, checks, refused, adding, .. } = batch;
        drop(adding);
        if let Some(error) = refused {
            calls.iter().for_each(|(call, _)| drop(self.dropped(call, error.clone())));
            return Err(error);
        }
        let Some((first, _)) = calls.first() else {
            return Err(Error::usage(OpKind::Barrier, "batch", "empty", "must have operations"));
        };
        if let Err(error) = self.check_stream(first.op.kind(), stream) {
            calls.iter().for_each(|(call, _)| drop(self.dropped(call, error.clone())));
            return Err(error);
        }
        let held = Held { checks, ..Held::device(buffers) };
        self.begin(Line::Whole, together(calls), held, stream)
    }

    /// That an operation can begin after what is on a stream. One of another device takes none of the group's events. A graph would run the
    /// operation again and again, but nobody would number it, compare it with the other ranks' or see that it hangs.
    fn check_stream(&self, op: OpKind, stream: Stream) -> Result<()> {
        let hall = &self.backend.hall;
        let (device, own) = (hall.cuda("stream_device", hall.stack.cuda.stream_device(stream))?, hall.stack.device);
        if device != own {
            return Err(Error::usage(op, "stream", format!("one of {device}"), format!("must be one of {own}")));
        }
        if hall.cuda("is_capturing", hall.stack.cuda.is_capturing(stream))? {
            let expected = "must run what it is given: operations cannot be captured into graphs";
            return Err(Error::usage(op, "stream", "being captured", expected));
        }
        Ok(())
    }

    #[track_caller]
    fn call(
        &self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        (input, output): (Option<&DeviceBuffer<C>>, &DeviceBuffer<C>),
    ) -> Result<(Call, Vec<Step>, Option<Check<C>>)> {
        let kind = op.kind();
        let given = input.map(|input| input.len(kind, "input", dtype)).transpose()?;
        let taken = output.len(kind, "output", dtype)?;
        let call = self.group.call_elsewhere(op, dtype, factor, given, taken)?;
        let (input, output) = (input.map(DeviceBuffer::span), output.span());
        let steps = self.backend.plan(&call, input, output).map_err(|error| self.dropped(&call, error))?;
        let check = Check::of(&self.backend.hall, &call, input, output);
        let check = check.map_err(|error| self.dropped(&call, error))?;
        Ok((call, steps, check))
    }

    /// A call that was numbered and does not begin.
    fn dropped(&self, call: &Call, error: Error) -> Error {
        self.backend.drop_call(call, &error);
        error
    }

    /// What the backend says, with the world's numbers of the ranks that a failure names.
    pub(super) fn in_world<T>(&self, said: Result<T>) -> Result<T> {
        said.map_err(|error| error.in_world(self.group.members()))
    }

    fn begin(
        &self,
        line: Line,
        calls: Vec<(Call, Vec<Step>)>,
        held: Held<C>,
        stream: Stream,
    ) -> Result<DeviceWork<N, C, P>> {
        let hall = &self.backend.hall;
        self.in_world(hall.check())?;
        let spare: Vec<Call> = calls.iter().map(|(call, _)| call.clone()).collect();
        let begun = hall.event().and_then(|ready| {
            hall.cuda("record_event", hall.stack.cuda.record_event(ready, stream))?;
            self.backend.launch(line, calls, held, Some(ready))
        });
        match begun {
            Ok(waiting) => Ok(DeviceWork { waiting, hall: Arc::clone(hall), group: self.group.clone() }),
            Err(error) => {
                spare.iter().for_each(|call| call.end(|| hall.now(), Some(&error)));
                hall.fail(error.clone(), None);
                self.in_world(Err(error))
            }
        }
    }
}

impl<N: Nccl, C: Cuda, P: Process> Batch<'_, N, C, P> {
    /// Adds an operation.
    #[track_caller]
    pub fn add(
        &mut self,
        op: Op,
        dtype: DType,
        factor: Option<Factor>,
        (input, output): (Option<&DeviceBuffer<C>>, &DeviceBuffer<C>),
    ) {
        if self.refused.is_some() {
            return;
        }
        let is_message = op.is_message();
        if self.calls.first().is_some_and(|(first, _)| first.op.is_message() != is_message) {
            let expected = "must be all collectives or all messages";
            self.refused = Some(Error::usage(op.kind(), "batch", "of both", expected));
            return;
        }
        // What keeps others out lets the batch's own in.
        self.adding = None;
        let of = self.of;
        match of.call(op, dtype, factor, (input, output)) {
            Ok((call, steps, check)) => {
                self.calls.push((call, steps));
                self.checks.extend(check);
                self.buffers.extend(input.into_iter().chain([output]).cloned());
            }
            Err(error) => self.refused = Some(error),
        }
        if !is_message && !self.calls.is_empty() {
            self.adding = Some(of.backend.hall.begin_adding());
        }
    }
}

impl<N: Nccl, C: Cuda, P: Process> DeviceWork<N, C, P> {
    /// Makes a stream wait for the end; what is submitted to it from now on sees what the operation gave. Returns once the operation is
    /// on its own stream, which it is at once but for the first one of a communicator, and what its thread has begun after that elsewhere.
    ///
    /// # Errors
    ///
    /// Those of the operation, if it has failed by now.
    pub fn fence(&self, stream: Stream) -> Result<()> {
        self.waiting.until(|stage| stage != Stage::Queued, None);
        if let Some(error) = self.waiting.flight.error() {
            return Err(error.in_world(self.group.members()));
        }
        let cuda = &self.hall.stack.cuda;
        self.hall.cuda("wait_event", cuda.wait_event(stream, self.waiting.flight.events.end))
    }

    /// Waits for the end; the operation's own timeout bounds it.
    ///
    /// # Errors
    ///
    /// Those of the operation.
    pub fn wait(mut self) -> Result<()> {
        let ended = self.waiting.wait(None).unwrap_or_else(|| Err(Error::aborted("the operation has no end")));
        ended.map(drop).map_err(|error| self.group.failed_elsewhere(error))
    }

    /// Whether the end has come.
    pub fn is_done(&self) -> bool {
        self.waiting.is_done()
    }

    /// How long the device took, once the end has come and where time is kept.
    pub fn duration(&self) -> Option<Duration> {
        let events = self.waiting.flight.events;
        let start = events.start.filter(|_| self.is_done())?;
        let millis = self.hall.stack.cuda.elapsed(start, events.end).ok()?;
        Some(Duration::from_secs_f32((millis / 1000.0).max(0.0)))
    }
}

impl<N: Nccl, C: Cuda, P: Process> fmt::Debug for DeviceGroup<N, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceGroup({})", self.group.name())
    }
}

impl<N: Nccl, C: Cuda, P: Process> fmt::Debug for DeviceWork<N, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceWork")
    }
}

/// The calls of several operations as one group of calls, after all copies. Messages of a batch go through the communicator of all.
fn together(calls: Vec<(Call, Vec<Step>)>) -> Vec<(Call, Vec<Step>)> {
    let (mut copies, mut joined) = (Vec::new(), Vec::new());
    let mut only = Vec::new();
    for (call, steps) in calls {
        for step in steps {
            match step {
                Step::Calls(calls) => joined.extend(calls),
                copy => copies.push(copy),
            }
        }
        only.push((call, Vec::new()));
    }
    if !joined.is_empty() {
        copies.push(Step::Calls(joined));
    }
    if let Some((_, steps)) = only.first_mut() {
        *steps = copies;
    }
    only
}

/// Whether all ranks get the same bytes.
fn gives_all_alike(op: &Op) -> bool {
    matches!(op, Op::AllReduce { .. } | Op::AllGather { .. } | Op::Broadcast { .. })
}
