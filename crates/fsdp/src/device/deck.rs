//! The streams of a device and what orders them. What is done on them is decided elsewhere.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{DType, Error, Op, Result};
use phalanx_nccl::api::{Argument, Cuda, Event, EventKind, KernelId, Nccl, Process, Span, Stream};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, DeviceWork, PinnedBuffer, Stack};
use phalanx_nccl::kernels::Plan;

use super::edge::Edge;
#[cfg(feature = "mistakes")]
use super::edge::Mistake;
use super::host::Kept;

/// The streams: the program's, on which the model is computed, and the engine's own.
pub(super) struct Deck<N: Nccl, C: Cuda, P: Process> {
    pub(super) stack: Stack<N, C, P>,
    pub(super) compute: Stream,
    /// Shards go from here to gathers.
    pub(super) copy_in: Stream,
    /// What was reduced goes from here to the gradients of shards.
    pub(super) take: Stream,
    multiprocessors: i32,
    timeout: Duration,
    /// How often the host waited.
    pub(super) waits: usize,
    /// How often memory was asked of the device.
    pub(super) made: usize,
    /// Operations whose streams go on without the host: it waits for them where it must see their end, or errors.
    under_way: Vec<DeviceWork<N, C, P>>,
    /// All memory that the engine made: whoever drops the rest of it, after a mistake of the group too, it is freed with the deck.
    owned: Vec<Memory<C>>,
    /// What is kept until a stream is past it.
    pub(super) kept: VecDeque<(Mark<C>, Kept<C>)>,
    /// Pinned memory that bytes go through, and that nobody uses now.
    pub(super) shelf: Vec<PinnedBuffer<C>>,
    #[cfg(feature = "mistakes")]
    pub(super) mistake: Option<Mistake>,
    /// Nothing is ever on it.
    #[cfg(feature = "mistakes")]
    stray: Stream,
}

/// Memory of the device or of the host.
enum Memory<C: Cuda> {
    Device(DeviceBuffer<C>),
    #[expect(dead_code, reason = "it is held, not looked at")]
    Host(PinnedBuffer<C>),
}

/// A place on a stream that others can wait for.
pub(super) struct Mark<C: Cuda> {
    cuda: Arc<C>,
    event: Event,
}

impl<C: Cuda> Drop for Mark<C> {
    fn drop(&mut self) {
        let _ = self.cuda.destroy_event(self.event);
    }
}

impl<N: Nccl, C: Cuda, P: Process> Deck<N, C, P> {
    pub(super) fn new(stack: Stack<N, C, P>, compute: Stream, timeout: Duration) -> Result<Deck<N, C, P>> {
        // What others wait for goes first.
        let stream = || stack.answer("create_stream", stack.cuda().create_stream(stack.device(), true));
        let info = stack.answer("device_info", stack.cuda().device_info(stack.device()))?;
        Ok(Deck {
            compute,
            copy_in: stream()?,
            take: stream()?,
            multiprocessors: info.multiprocessors,
            timeout,
            waits: 0,
            made: 0,
            under_way: Vec::new(),
            owned: Vec::new(),
            kept: VecDeque::new(),
            shelf: Vec::new(),
            #[cfg(feature = "mistakes")]
            mistake: None,
            #[cfg(feature = "mistakes")]
            stray: stream()?,
            stack,
        })
    }

    fn cuda(&self) -> &C {
        self.stack.cuda()
    }

    /// New memory of the device, which is freed with the deck.
    pub(super) fn memory(&mut self, byte_len: usize) -> Result<DeviceBuffer<C>> {
        let memory = DeviceBuffer::new(self.stack.cuda(), self.stack.device(), byte_len)?;
        self.owned.push(Memory::Device(memory.clone()));
        self.made += 1;
        Ok(memory)
    }

    /// New pinned memory of the host, which is freed with the deck.
    pub(super) fn host_memory(&mut self, byte_len: usize) -> Result<PinnedBuffer<C>> {
        let memory = PinnedBuffer::new(self.stack.cuda(), byte_len)?;
        self.owned.push(Memory::Host(memory.clone()));
        Ok(memory)
    }

    /// Frees memory of the device once nobody has it any more.
    pub(super) fn give_up(&mut self, memory: &DeviceBuffer<C>) {
        self.owned.retain(|owned| !matches!(owned, Memory::Device(owned) if owned.span() == memory.span()));
    }

    /// A new mark, which stands for nothing yet.
    pub(super) fn mark(&self) -> Result<Mark<C>> {
        let event = self.cuda().create_event(self.stack.device(), EventKind::Order);
        let event = self.stack.answer("create_event", event)?;
        Ok(Mark { cuda: Arc::clone(self.stack.cuda()), event })
    }

    /// The mark stands for all that is on the stream by now.
    pub(super) fn record(&self, mark: &Mark<C>, stream: Stream) -> Result<()> {
        self.stack.answer("record_event", self.cuda().record_event(mark.event, stream))
    }

    /// A stream waits for a mark.
    pub(super) fn order(&self, edge: Edge, stream: Stream, mark: &Mark<C>) -> Result<()> {
        if self.lacks(edge) {
            return Ok(());
        }
        self.stack.answer("wait_event", self.cuda().wait_event(stream, mark.event))
    }

    /// A stream waits for all that is on another by now.
    pub(super) fn join(&self, edge: Edge, stream: Stream, other: Stream) -> Result<()> {
        let mark = self.mark()?;
        self.record(&mark, other)?;
        self.order(edge, stream, &mark)
    }

    /// A stream waits for the end of an operation, whose errors come to whoever asks for the next one.
    pub(super) fn fence(&mut self, edge: Edge, stream: Stream, work: DeviceWork<N, C, P>) -> Result<()> {
        if !self.lacks(edge) {
            work.fence(stream)?;
        }
        self.under_way.push(work);
        self.sweep()
    }

    /// Begins an operation in place, after what is on a stream.
    #[track_caller]
    pub(super) fn submit(
        &self,
        group: &DeviceGroup<N, C, P>,
        (op, dtype): (Op, DType),
        buffer: &DeviceBuffer<C>,
        (edge, after): (Edge, Stream),
    ) -> Result<DeviceWork<N, C, P>> {
        group.submit(op, dtype, None, (None, buffer), self.unless_left_out(edge, after))
    }

    #[track_caller]
    pub(super) fn copy(&self, to: Span, from: Span, stream: Stream) -> Result<()> {
        self.stack.answer("copy", self.cuda().copy(to, from, stream))
    }

    #[track_caller]
    pub(super) fn fill_zero(&self, span: Span, stream: Stream) -> Result<()> {
        if span.is_empty() {
            return Ok(());
        }
        self.stack.answer("fill", self.cuda().fill(span, 0, stream))
    }

    #[track_caller]
    pub(super) fn launch(&self, kernel: KernelId, tiles: u64, arguments: &[Argument], stream: Stream) -> Result<()> {
        let grid = Plan::grid(tiles, self.multiprocessors);
        self.stack.answer("launch", self.cuda().launch(kernel, grid, arguments, stream))
    }

    /// Waits on the host for a mark, and for the ends of operations, whose errors it tells.
    pub(super) fn reach(&mut self, mark: &Mark<C>) -> Result<()> {
        self.waits += 1;
        let last = self.stack.process().now() + self.timeout;
        self.pass(mark, last, Deck::sweep)?;
        // Streams run on past an operation that was ended: what it should have brought is not there.
        self.sweep()
    }

    /// Waits until a mark is reached, at most until a moment, and looks at something else meanwhile.
    fn pass(
        &mut self,
        mark: &Mark<C>,
        last: Duration,
        mut meanwhile: impl FnMut(&mut Deck<N, C, P>) -> Result<()>,
    ) -> Result<()> {
        let process = Arc::clone(self.stack.process());
        let bell = process.bell();
        let mut pause = GLANCE;
        while !self.is_reached(mark)? {
            meanwhile(self)?;
            let now = process.now();
            if now >= last {
                return Err(Error::aborted("the streams of the device did not come to an end in time"));
            }
            bell.wait(bell.count(), Some(last.min(now + pause)));
            pause = LONGEST.min(2 * pause);
        }
        Ok(())
    }

    /// Waits until the streams are past all that is on them, whatever came of it.
    fn run_out(&mut self) -> Result<()> {
        let last = self.stack.process().now() + self.timeout + ABORT;
        for stream in [self.copy_in, self.compute, self.take] {
            let mark = self.mark()?;
            self.record(&mark, stream)?;
            self.pass(&mark, last, |_| Ok(()))?;
        }
        self.kept.clear();
        Ok(())
    }

    /// The same where an edge says so.
    pub(super) fn reach_by(&mut self, edge: Edge, mark: &Mark<C>) -> Result<()> {
        if self.lacks(edge) { Ok(()) } else { self.reach(mark) }
    }

    /// Waits until all is done that is on any of the streams.
    pub(super) fn settle(&mut self) -> Result<()> {
        for stream in [self.copy_in, self.compute, self.take] {
            let mark = self.mark()?;
            self.record(&mark, stream)?;
            self.reach(&mark)?;
        }
        self.under_way.drain(..).try_for_each(DeviceWork::wait)?;
        self.let_go_of_all();
        Ok(())
    }

    /// Forgets the operations that have ended; the error of one that failed.
    fn sweep(&mut self) -> Result<()> {
        while let Some(at) = self.under_way.iter().position(|work| work.is_done()) {
            self.under_way.swap_remove(at).wait()?;
        }
        Ok(())
    }

    pub(super) fn is_reached(&self, mark: &Mark<C>) -> Result<bool> {
        self.stack.answer("query_event", self.cuda().query_event(mark.event))
    }

    /// The stream, or one that waits for nothing where a mistake was planted.
    fn unless_left_out(&self, edge: Edge, stream: Stream) -> Stream {
        #[cfg(feature = "mistakes")]
        if self.lacks(edge) {
            return self.stray;
        }
        let _ = edge;
        stream
    }

    /// Whether a mistake was planted: nothing waits where this edge is.
    fn lacks(&self, edge: Edge) -> bool {
        #[cfg(feature = "mistakes")]
        return self.mistake == Some(Mistake::Without(edge));
        #[cfg(not(feature = "mistakes"))]
        {
            let _ = edge;
            false
        }
    }

    /// The stream that full parameters are copied out on: the program's, which reads them.
    pub(super) fn copy_out_stream(&self) -> Stream {
        #[cfg(feature = "mistakes")]
        if self.mistake == Some(Mistake::CopyOutOnCopyIn) {
            return self.copy_in;
        }
        self.compute
    }
}

impl<N: Nccl, C: Cuda, P: Process> Drop for Deck<N, C, P> {
    fn drop(&mut self) {
        // What became of them was told, or nobody asks any more; what they use, they keep themselves.
        self.under_way.clear();
        if let Err(error) = self.run_out() {
            log::warn!("memory of a sharded model is never freed, because the device may still use it: {error}");
            self.owned.drain(..).for_each(std::mem::forget);
            self.kept.drain(..).for_each(std::mem::forget);
            // Not even what nobody uses: to free it, the driver would wait.
            self.shelf.drain(..).for_each(std::mem::forget);
        }
        for stream in [self.copy_in, self.take] {
            let _ = self.cuda().destroy_stream(stream);
        }
        #[cfg(feature = "mistakes")]
        let _ = self.cuda().destroy_stream(self.stray);
    }
}

/// How soon the host looks after what it waits for, and how seldom in the end.
const GLANCE: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(5);
/// How long streams may still be held up once an operation is past its time: until its group has aborted it.
const ABORT: Duration = Duration::from_secs(5);
