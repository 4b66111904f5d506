//! The group over NCCL as a backend of core's: memory of the host goes through pinned memory to the device and back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use phalanx_core::backend::{Backend, Buffers, Number, Pending};
use phalanx_core::player::Data;
use phalanx_core::reduce::Factor;
use phalanx_core::store::Store;
use phalanx_core::{Call, DType, Error, Layout, Op, OpKind, Result};
use phalanx_mem::Buffer;

use super::flight::{Refused, Waiting};
use super::hall::{Hall, is_set};
use super::job::{Errand, Held, Job};
use super::lane::{Line, left};
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::nan::Check;
use super::options::NcclOptions;
use super::plan::{Step, Task, check, plan};
use super::stack::Stack;
use super::staging::Staging;
use crate::api::{Cuda, Event, Nccl, Process, Span};

/// One rank's part of a group over NCCL. When it is dropped, the group is left: what is under way goes on to its end, for which nobody waits.
pub struct NcclBackend<N: Nccl, C: Cuda, P: Process> {
    pub(super) hall: Arc<Hall<N, C, P>>,
}

impl<N: Nccl, C: Cuda, P: Process> NcclBackend<N, C, P> {
    /// This rank's part of a new group, whose ranks meet in the store under keys that are theirs alone. Communicators are made when they
    /// are first needed.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup) where NCCL is too old or its communicators would block, or no thread is to be had.
    pub fn new(
        stack: Stack<N, C, P>,
        layout: Layout,
        store: Store,
        options: NcclOptions,
    ) -> Result<NcclBackend<N, C, P>> {
        NcclBackend::with(Hall::new(stack, layout, store, options)?)
    }

    /// The same with a hall that is ready.
    pub(super) fn with(hall: Arc<Hall<N, C, P>>) -> Result<NcclBackend<N, C, P>> {
        let (watch, name) = (Arc::clone(&hall), format!("nccl-watch-{}", hall.layout.rank()));
        let (ended, bell) = (Arc::clone(&hall.has_ended), Arc::clone(&hall.bell));
        let work = move || {
            watch.watch();
            ended.store(true, Ordering::Release);
            bell.ring();
        };
        if !hall.stack.process.spawn(name, Box::new(work)) {
            return Err(Error::setup("NCCL", "no thread is to be had for the watch"));
        }
        Ok(NcclBackend { hall })
    }

    /// Leaves the group, as a drop does, and waits until its threads have ended and its communicators with them: a program that returns from
    /// `main` before kills what is still under way. Communicators end once the other ranks of the host come to the end of theirs, for which they
    /// have this time too.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup) where that takes longer than `timeout`, or a communicator was abandoned. What the group failed
    /// of was told by its operations.
    pub fn leave(&self, timeout: Duration) -> Result<()> {
        self.hall.leave(timeout)
    }

    /// How many communicators could not be ended in time. Their threads and memory stay taken until the library comes back, if it does.
    pub fn abandoned(&self) -> usize {
        self.hall.abandoned()
    }

    /// Begins operations over memory of the device as one, after what the event stands for.
    pub(super) fn launch(
        &self,
        line: Line,
        calls: Vec<(Call, Vec<Step>)>,
        held: Held<C>,
        ready: Option<Event>,
    ) -> Result<Waiting> {
        let hall = &self.hall;
        let collectives = calls.iter().map(|(call, _)| call).filter(|call| !call.op.is_message());
        let prints = collectives.map(|call| call.fingerprint).collect();
        let (mut only, mut steps, mut batch) = (Vec::new(), Vec::new(), Vec::new());
        for (call, own) in calls {
            hall.note(&call);
            if line == Line::Whole {
                batch.extend(hall.note_message(&call));
            }
            only.push(call);
            steps.extend(own);
        }
        let flight = hall.depart(only, ready)?;
        let _ = flight.batch.set(batch);
        let waiting = hall.waiting(Arc::clone(&flight));
        hall.give(line, Job { flight, steps, held, errand: None, prints, pushed: 0 })?;
        Ok(waiting)
    }

    /// Asks something of the communicator of all, which needs this memory meanwhile.
    pub(super) fn send(&self, call: Call, errand: Errand, memory: Vec<DeviceBuffer<C>>) -> Result<Waiting> {
        let hall = &self.hall;
        hall.note(&call);
        let prints = vec![call.fingerprint];
        let flight = hall.depart(vec![call], None)?;
        let waiting = hall.waiting(Arc::clone(&flight));
        let (steps, held, errand) = (Vec::new(), Held::device(memory), Some(errand));
        hall.give(Line::Whole, Job { flight, steps, held, errand, prints, pushed: 0 })?;
        Ok(waiting)
    }

    /// What NCCL is asked for an operation, over this memory.
    pub(super) fn plan(&self, call: &Call, input: Option<Span>, output: Span) -> Result<Vec<Step>> {
        let (rank, size) = (self.hall.layout.rank(), self.hall.layout.size());
        let Call { op, dtype, factor, .. } = call;
        plan(&Task { op, dtype: *dtype, factor: *factor, input, output, rank, size }, self.hall.version)
    }

    /// Whose communicator serves an operation that goes alone. Those of a batch must not wait for each other, so they go together, through
    /// the one of all ranks, however many they are: the others' parts of it may be more or fewer.
    pub(super) fn line_of(&self, op: &Op) -> Line {
        let rank = self.hall.layout.rank();
        match op {
            Op::Send { to: peer, .. } | Op::Recv { from: Some(peer), .. } => {
                Line::Pair(rank.min(*peer), rank.max(*peer))
            }
            _ => Line::Whole,
        }
    }

    /// Memory of the device and pinned memory for an operation over the host's, and what is done.
    pub(super) fn stage(&self, call: &Call, buffers: Buffers) -> Result<(Vec<Step>, Held<C>)> {
        let staging = &self.hall.staging;
        let mut steps = Vec::new();
        let (mut on_device, mut on_host) = (Vec::new(), Vec::new());
        let mut input = None;
        if let Some(given) = &buffers.input {
            let (host, memory) = uploaded(staging, given.as_bytes())?;
            steps.push(Step::Copy { to: memory.span(), from: host.span() });
            input = Some(memory.span());
            on_device.push(memory);
            on_host.push(host);
        }
        let byte_len = buffers.output.byte_len();
        let (host, memory) = if call.in_place && !buffers.output.is_empty() {
            let staged = uploaded(staging, buffers.output.as_bytes())?;
            steps.push(Step::Copy { to: staged.1.span(), from: staged.0.span() });
            staged
        } else {
            let byte_len = if call.op.kind() == OpKind::Barrier { BARRIER } else { byte_len };
            // The device's first: pinned memory goes through a context that is there.
            let memory = staging.device(byte_len)?;
            (staging.host(byte_len)?, memory)
        };
        let output = memory.span();
        steps.extend(self.plan(call, input, output)?);
        let checks = Check::of(&self.hall, call, input, output)?.into_iter().collect();
        if byte_len > 0 {
            steps.push(Step::Copy { to: host.span(), from: output });
        }
        on_device.push(memory);
        on_host.push(host);
        let steps = steps.into_iter().filter(|step| !is_nothing(step)).collect();
        Ok((steps, Held { host: on_host, staged: Some(buffers), checks, ..Held::device(on_device) }))
    }

    /// Passes over a call that was numbered and does not begin.
    pub(super) fn drop_call(&self, call: &Call, error: &Error) {
        call.end(|| self.hall.now(), Some(error));
        self.hall.skip(call);
        // The others have called it too and wait for this rank: they are told.
        if !matches!(error, Error::Usage(_)) {
            self.hall.fail(error.clone(), None);
        }
    }

    /// An operation that does not begin.
    pub(super) fn refused(&self, call: &Call, error: Error) -> Box<dyn Pending> {
        self.drop_call(call, &error);
        Box::new(Refused(Some(error)))
    }

    fn begin(&self, call: Call, buffers: Buffers) -> Box<dyn Pending> {
        if let Err(error) = self.hall.check() {
            return self.refused(&call, error);
        }
        let spare = call.clone();
        let line = self.line_of(&call.op);
        match self.stage(&call, buffers).and_then(|(steps, held)| self.launch(line, vec![(call, steps)], held, None)) {
            Ok(waiting) => Box::new(waiting),
            Err(error) => self.refused(&spare, error),
        }
    }
}

impl<N: Nccl, C: Cuda, P: Process> Backend for NcclBackend<N, C, P> {
    fn number(&self, op: OpKind, _: Duration) -> Result<Number> {
        self.hall.check()?;
        if is_set(&self.hall.is_closing) {
            return Err(left());
        }
        self.hall.check_adding(op)?;
        Ok(self.hall.numbers.next(op))
    }

    fn accepts(&self, op: &Op, dtype: DType, factor: Option<Factor>) -> Result<()> {
        check(op, dtype, factor, self.hall.version)
    }

    fn upcoming(&self) -> u32 {
        self.hall.numbers.upcoming()
    }

    fn submit(&self, call: Call, buffers: Buffers) -> Box<dyn Pending> {
        call.open(self.hall.now());
        self.begin(call, buffers)
    }

    fn submit_all(&self, messages: Vec<(Call, Buffers)>) -> Vec<Box<dyn Pending>> {
        self.exchange(messages)
    }

    fn run(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>> {
        call.open(self.hall.now());
        let input = (!call.in_place).then(|| Buffer::copied_from(data.input));
        let buffers = Buffers { input, output: Buffer::copied_from(data.output) };
        let ended = self.begin(call.clone(), buffers).wait(None);
        let finished = ended.unwrap_or_else(|| Err(Error::aborted("the operation has no end")))?;
        data.output.copy_from_slice(finished.buffers.output.as_bytes());
        Ok(match call.op {
            Op::Recv { from, .. } => from,
            _ => finished.source,
        })
    }

    fn abort(&self, cause: Error) {
        self.hall.fail(cause, None);
    }

    fn now(&self) -> Duration {
        self.hall.now()
    }
}

impl<N: Nccl, C: Cuda, P: Process> Drop for NcclBackend<N, C, P> {
    fn drop(&mut self) {
        self.hall.close();
    }
}

/// Bytes in pinned memory, and memory of the device for them.
fn uploaded<C: Cuda>(staging: &Arc<Staging<C>>, bytes: &[u8]) -> Result<(PinnedBuffer<C>, DeviceBuffer<C>)> {
    let memory = staging.device(bytes.len())?;
    let host = staging.host(bytes.len())?;
    if !bytes.is_empty() {
        host.write(bytes)?;
    }
    Ok((host, memory))
}

fn is_nothing(step: &Step) -> bool {
    matches!(step, Step::Copy { to, from } if from.is_empty() || to == from)
}

/// Bytes of what a barrier adds up.
pub(super) const BARRIER: usize = 4;
