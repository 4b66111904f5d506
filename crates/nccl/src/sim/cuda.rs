//! The simulated CUDA driver of one rank.

use std::panic::Location;
use std::sync::Arc;

use super::engine::{EventState, StreamState, Work};
use super::fault::{Fault, Plant};
use super::finding::Finding;
use super::memory::User;
use super::stage::{Guard, Stage, Standing};
use crate::api::{
    Argument, Cuda, CudaCode, Device, DeviceInfo, Event, EventKind, Grid, HostCall, KernelId, MemoryInfo, Shared, Span,
    Stream,
};

/// The simulated CUDA driver, as one rank sees it: any number of equal devices.
///
/// What it does not do: functions of the host on streams, and graphs. A stream can be [captured](SimCuda::capture), and then takes nothing.
pub struct SimCuda {
    pub(super) stage: Arc<Stage>,
    pub(super) rank: usize,
}

impl SimCuda {
    /// Begins a call, which a dead context refuses.
    fn call(&self) -> Result<Guard<'_>, CudaCode> {
        let mut state = self.stage.enter(self.rank);
        state.engine.ranks[self.rank].calls += 1;
        self.refuse_if_dead(&mut state)?;
        Ok(state)
    }

    /// Refuses a call on a dead context, which the driver knows from then on: what the context died of, nobody tells it before.
    fn refuse_if_dead(&self, state: &mut Guard<'_>) -> Result<(), CudaCode> {
        let Some(code) = state.engine.sticky(self.rank) else { return Ok(()) };
        state.engine.ranks[self.rank].refused.get_or_insert(code);
        Err(code)
    }

    fn stream(&self, state: &Guard<'_>, stream: Stream) -> Result<usize, CudaCode> {
        let index = usize::try_from(stream.number()).unwrap_or(usize::MAX).wrapping_sub(1);
        let known = state.engine.streams.get(index).filter(|known| known.rank == self.rank && known.is_open);
        known.map(|_| index).ok_or(CudaCode::INVALID_HANDLE)
    }

    /// A stream that runs what it is given.
    fn running(&self, state: &Guard<'_>, stream: Stream) -> Result<usize, CudaCode> {
        let index = self.stream(state, stream)?;
        let is_captured = state.engine.streams[index].is_captured;
        if is_captured { Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(index) }
    }

    /// Begins to capture a stream into a graph, or ends it. Nothing can be done on the stream meanwhile: graphs are not simulated. Threads that
    /// have not [entered](Cuda::enter_thread) a device may ask no event and free no memory meanwhile, as with a capture that is global.
    ///
    /// # Errors
    ///
    /// [`CudaCode::INVALID_HANDLE`] for a stream that there is not, and whatever a failed device answers.
    pub fn capture(&self, stream: Stream, begins: bool) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        let index = self.stream(&state, stream)?;
        state.engine.streams[index].is_captured = begins;
        Ok(())
    }

    /// How often pinned memory was asked for or given back, for each of which a driver may wait for all that its device does.
    pub fn pinned_calls(&self) -> usize {
        self.stage.look().engine.ranks.get(self.rank).map_or(0, |rank| rank.pinned)
    }

    /// That a call which a capture forbids to all threads may be made.
    fn uncaptured(&self, state: &mut Guard<'_>) -> Result<(), CudaCode> {
        let is_captured = state.engine.streams.iter().any(|stream| stream.rank == self.rank && stream.is_captured);
        let is_relaxed = state.own().is_none_or(|task| task.is_relaxed);
        if is_captured && !is_relaxed { Err(CudaCode::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    fn submit(&self, stream: Stream, work: Work, site: &'static Location<'static>) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        let index = self.running(&state, stream)?;
        state.submit(index, work, site);
        Ok(())
    }

    /// Uses memory from the host, now.
    fn touch(
        &self,
        state: &mut Guard<'_>,
        span: Span,
        writes: bool,
        (what, site): (&'static str, &'static Location<'static>),
    ) -> Result<(), CudaCode> {
        let mut fits = state.engine.memory.is_live(span);
        if let Some(order) = state.own_order()
            && !state.is_over()
        {
            let actor = state.own().map_or(0, |task| task.actor);
            let moment = order.moment(actor);
            let user = User { rank: self.rank, actor, order: &order, moment, what, site };
            let state = &mut **state;
            fits = state.engine.memory.touch(span, writes, user, &mut state.found);
        }
        if fits { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
    }

    fn release(&self, span: Span, is_host: bool, site: &'static Location<'static>) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        if span.is_empty() {
            return Ok(());
        }
        self.uncaptured(&mut state)?;
        if state.engine.memory.is_host(span) != is_host {
            return Err(CudaCode::INVALID_VALUE);
        }
        if state.engine.comms.made.contains(&span.address()) {
            return Err(CudaCode::INVALID_VALUE);
        }
        if state.engine.script.has(self.rank, Fault::FreesWait) {
            state = self.stage.hold(state, Standing::Streams);
        }
        let Some(mut order) = state.own_order() else { return Ok(()) };
        if state.is_over() {
            return Ok(());
        }
        if state.engine.comms.knows(self.rank, span) {
            state.found.push(Finding::StillKnown { rank: self.rank, freed: site });
        }
        let actor = state.own().map_or(0, |task| task.actor);
        let moment = order.moment(actor);
        // Whoever frees has the last handle, so all threads of the host that had one are done with what they waited for.
        state.tasks.iter().filter(|task| task.rank == self.rank).for_each(|task| order.join(&task.order));
        let user = User { rank: self.rank, actor, order: &order, moment, what: "free", site };
        let state = &mut *state;
        let freed = state.engine.memory.free(span, user, &mut state.found);
        if freed { Ok(()) } else { Err(CudaCode::INVALID_VALUE) }
    }

    /// An event of this rank's.
    fn event<'a>(&self, state: &'a Guard<'_>, event: Event) -> Result<&'a EventState, CudaCode> {
        state.engine.events.get(&event.number()).filter(|known| known.rank == self.rank).ok_or(CudaCode::INVALID_HANDLE)
    }

    /// The number of what an event of this rank's stands for: itself, or another rank's that is still there.
    fn origin_of(&self, state: &Guard<'_>, event: Event) -> Result<u64, CudaCode> {
        let Some(origin) = self.event(state, event)?.origin else { return Ok(event.number()) };
        let is_there = state.engine.events.get(&origin).is_some_and(|known| known.rank != GONE);
        if is_there { Ok(origin) } else { Err(CudaCode::INVALID_HANDLE) }
    }

    fn mark_of(&self, state: &Guard<'_>, event: Event) -> Result<Option<usize>, CudaCode> {
        let origin = self.origin_of(state, event)?;
        Ok(state.engine.events.get(&origin).and_then(|known| known.mark))
    }

    fn enter_event(&self, state: &mut Guard<'_>, device: Device, kind: EventKind, origin: Option<u64>) -> Event {
        let number = state.engine.events.keys().next_back().map_or(1, |last| last + 1);
        let (rank, device) = (self.rank, device.0);
        state.engine.events.insert(number, EventState { rank, device, mark: None, kind, origin });
        Event::new(number)
    }
}

impl Cuda for SimCuda {
    fn driver_version(&self) -> Result<i32, CudaCode> {
        self.call().map(|_| 12_080)
    }

    fn device_count(&self) -> Result<i32, CudaCode> {
        self.call().map(|_| DEVICES)
    }

    fn device_info(&self, device: Device) -> Result<DeviceInfo, CudaCode> {
        check(device)?;
        let bus = format!("{:04x}:{:02x}:00.0", self.rank, device.0);
        Ok(DeviceInfo { name: "simulated".into(), capability: (9, 0), bus, multiprocessors: 1, memory: MEMORY })
    }

    fn error_text(&self, code: CudaCode) -> String {
        format!("{code}, simulated")
    }

    fn sticky_error(&self, _: Device) -> Option<CudaCode> {
        self.stage.look().engine.ranks.get(self.rank)?.refused
    }

    fn enter_thread(&self, device: Device) -> Result<(), CudaCode> {
        check(device)?;
        if let Some(task) = self.stage.look().own() {
            task.is_relaxed = true;
        }
        Ok(())
    }

    fn memory_info(&self, device: Device) -> Result<MemoryInfo, CudaCode> {
        check(device)?;
        let state = self.call()?;
        let used = state.engine.memory.in_use.get(&self.rank).map_or(0, |(device, _)| *device as u64);
        Ok(MemoryInfo { free: MEMORY - used, total: MEMORY })
    }

    fn allocate(&self, device: Device, byte_len: usize) -> Result<Span, CudaCode> {
        check(device)?;
        let mut state = self.call()?;
        let allocation = state.engine.ranks[self.rank].allocations;
        state.engine.ranks[self.rank].allocations += 1;
        if state.engine.script.has(self.rank, Fault::OutOfMemory { allocation }) {
            return Err(CudaCode::OUT_OF_MEMORY);
        }
        Ok(state.engine.memory.allocate(self.rank, true, byte_len))
    }

    fn free(&self, _: Device, span: Span) -> Result<(), CudaCode> {
        self.release(span, false, Location::caller())
    }

    fn allocate_host(&self, byte_len: usize) -> Result<Span, CudaCode> {
        let mut state = self.call()?;
        state.engine.ranks[self.rank].pinned += 1;
        Ok(state.engine.memory.allocate(self.rank, false, byte_len))
    }

    fn free_host(&self, span: Span) -> Result<(), CudaCode> {
        self.stage.look().engine.ranks[self.rank].pinned += 1;
        self.release(span, true, Location::caller())
    }

    fn read_host(&self, from: Span, to: &mut [u8]) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        if from.byte_len() != to.len() || !(from.is_empty() || state.engine.memory.is_host(from)) {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.touch(&mut state, from, false, ("read of the host", Location::caller()))?;
        to.copy_from_slice(state.engine.memory.read(from));
        Ok(())
    }

    fn write_host(&self, to: Span, from: &[u8]) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        if to.byte_len() != from.len() || !(to.is_empty() || state.engine.memory.is_host(to)) {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.touch(&mut state, to, true, ("write of the host", Location::caller()))?;
        state.engine.memory.write(to).copy_from_slice(from);
        Ok(())
    }

    fn copy(&self, to: Span, from: Span, stream: Stream) -> Result<(), CudaCode> {
        if to.byte_len() != from.byte_len() {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.submit(stream, Work::Copy { to, from }, Location::caller())
    }

    fn fill(&self, span: Span, byte: u8, stream: Stream) -> Result<(), CudaCode> {
        self.submit(stream, Work::Fill { span, byte }, Location::caller())
    }

    fn create_stream(&self, device: Device, is_high: bool) -> Result<Stream, CudaCode> {
        check(device)?;
        let mut state = self.call()?;
        let actor = state.actor();
        let weight = state.draw.weight() * if is_high { 4 } else { 1 };
        let (queue, order) = Default::default();
        let (rank, device) = (self.rank, device.0);
        let (is_open, is_captured) = (true, false);
        state.engine.streams.push(StreamState { rank, device, queue, order, actor, weight, is_open, is_captured });
        Ok(Stream::new(state.engine.streams.len() as u64))
    }

    fn destroy_stream(&self, stream: Stream) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        let index = self.stream(&state, stream)?;
        state.engine.streams[index].is_open = false;
        Ok(())
    }

    fn stream_device(&self, stream: Stream) -> Result<Device, CudaCode> {
        let state = self.call()?;
        self.stream(&state, stream).map(|index| Device(state.engine.streams[index].device))
    }

    fn query_stream(&self, stream: Stream) -> Result<bool, CudaCode> {
        let mut state = self.call()?;
        let index = self.running(&state, stream)?;
        let is_idle = state.engine.is_idle(index);
        if is_idle {
            state.learn_of_stream(index);
        }
        Ok(is_idle)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), CudaCode> {
        let state = self.call()?;
        let index = self.running(&state, stream)?;
        let mut state = self.stage.hold(state, Standing::Stream(index));
        self.refuse_if_dead(&mut state)?;
        state.learn_of_stream(index);
        Ok(())
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        let index = self.running(&state, stream)?;
        if state.is_planted(Plant::LaneWaits, false) || state.is_planted(Plant::Fences, true) {
            return Ok(());
        }
        if self.event(&state, event)?.origin.is_some() && state.engine.script.has_plant(Plant::PeerWaits) {
            return Ok(());
        }
        if let Some(mark) = self.mark_of(&state, event)? {
            state.submit(index, Work::Wait(mark), Location::caller());
        }
        Ok(())
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool, CudaCode> {
        let state = self.call()?;
        self.stream(&state, stream).map(|index| state.engine.streams[index].is_captured)
    }

    fn call_host(&self, _: Stream, _: HostCall) -> Result<(), CudaCode> {
        Err(CudaCode::NOT_SUPPORTED)
    }

    fn create_event(&self, device: Device, kind: EventKind) -> Result<Event, CudaCode> {
        check(device)?;
        let mut state = self.call()?;
        Ok(self.enter_event(&mut state, device, kind, None))
    }

    fn destroy_event(&self, event: Event) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        self.event(&state, event)?;
        // The highest number stays taken, so that no handle is given out twice.
        if let Some(known) = state.engine.events.get_mut(&event.number()) {
            known.rank = GONE;
        }
        Ok(())
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<(), CudaCode> {
        let mut state = self.call()?;
        let index = self.running(&state, stream)?;
        // As with the driver: an event stands for what is on streams of its own device.
        if self.event(&state, event)?.device != state.engine.streams[index].device {
            return Err(CudaCode::INVALID_HANDLE);
        }
        let origin = self.origin_of(&state, event)?;
        let mark = state.engine.marks.len();
        state.engine.marks.push(None);
        if let Some(known) = state.engine.events.get_mut(&origin) {
            known.mark = Some(mark);
        }
        let comes_first = state.is_planted(Plant::EndsFirst, false);
        state.submit(index, Work::Mark(mark), Location::caller());
        if comes_first {
            let queue = &mut state.engine.streams[index].queue;
            let last = queue.pop_back();
            last.into_iter().for_each(|mark| queue.push_front(mark));
        }
        Ok(())
    }

    fn query_event(&self, event: Event) -> Result<bool, CudaCode> {
        let mut state = self.call()?;
        self.uncaptured(&mut state)?;
        let Some(mark) = self.mark_of(&state, event)? else { return Ok(true) };
        if state.is_planted(Plant::EndsAtOnce, false) {
            return Ok(true);
        }
        Ok(state.learn_of_mark(mark))
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<f32, CudaCode> {
        let state = self.call()?;
        let when = |event: Event| {
            let keeps_time = self.event(&state, event)?.kind == EventKind::Timing;
            let mark = self.mark_of(&state, event)?.filter(|_| keeps_time).ok_or(CudaCode::INVALID_HANDLE)?;
            state.engine.marks[mark].as_ref().map(|(_, at)| *at).ok_or(CudaCode(600))
        };
        Ok(when(to)?.saturating_sub(when(from)?).as_secs_f32() * 1000.0)
    }

    fn launch(&self, kernel: KernelId, _: Grid, arguments: &[Argument], stream: Stream) -> Result<(), CudaCode> {
        self.submit(stream, Work::Kernel { kernel, arguments: arguments.to_vec() }, Location::caller())
    }

    fn export_memory(&self, span: Span) -> Result<Shared, CudaCode> {
        let state = self.call()?;
        let is_device = state.engine.memory.is_live(span) && !state.engine.memory.is_host(span);
        let bytes = [span.address().to_le_bytes(), (span.byte_len() as u64).to_le_bytes()].concat();
        if is_device { Ok(Shared(bytes)) } else { Err(CudaCode::INVALID_VALUE) }
    }

    fn import_memory(&self, device: Device, shared: &Shared) -> Result<Span, CudaCode> {
        check(device)?;
        let state = self.call()?;
        let [address, byte_len] = words(shared).ok_or(CudaCode::INVALID_VALUE)?;
        let span = Span::new(address, usize::try_from(byte_len).map_err(|_| CudaCode::INVALID_VALUE)?);
        let is_other = state.engine.memory.owner(span).is_some_and(|owner| owner != self.rank);
        if is_other && state.engine.memory.is_live(span) { Ok(span) } else { Err(CudaCode::INVALID_VALUE) }
    }

    fn close_memory(&self, _: Span) -> Result<(), CudaCode> {
        self.call().map(drop)
    }

    fn export_event(&self, event: Event) -> Result<Shared, CudaCode> {
        let state = self.call()?;
        let known = self.event(&state, event)?;
        let is_lendable = known.origin.is_none() && known.kind == EventKind::Interprocess;
        let bytes = [event.number().to_le_bytes(), [0; 8]].concat();
        if is_lendable { Ok(Shared(bytes)) } else { Err(CudaCode::INVALID_HANDLE) }
    }

    fn import_event(&self, device: Device, shared: &Shared) -> Result<Event, CudaCode> {
        check(device)?;
        let mut state = self.call()?;
        let [origin, _] = words(shared).ok_or(CudaCode::INVALID_VALUE)?;
        let known = state.engine.events.get(&origin).ok_or(CudaCode::INVALID_VALUE)?;
        // As with the driver: what a process has exported it does not import.
        if known.kind != EventKind::Interprocess || [GONE, self.rank].contains(&known.rank) {
            return Err(CudaCode::INVALID_VALUE);
        }
        Ok(self.enter_event(&mut state, device, EventKind::Interprocess, Some(origin)))
    }
}

fn check(device: Device) -> Result<(), CudaCode> {
    if (0..DEVICES).contains(&device.0) { Ok(()) } else { Err(CudaCode::INVALID_DEVICE) }
}

fn words(shared: &Shared) -> Option<[u64; 2]> {
    let word = |at: usize| shared.0.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    Some([word(0)?, word(8)?])
}

/// The rank of what was destroyed.
const GONE: usize = usize::MAX;
/// Devices that a rank has.
const DEVICES: i32 = 2;
/// Memory of a device.
const MEMORY: u64 = 64 << 30;
