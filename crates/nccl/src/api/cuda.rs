//! What is asked of the CUDA driver.

use super::{CudaCode, Device, Event, Span, Stream};

/// The CUDA driver, real or simulated.
///
/// *Handles* that this implementation did not give out, or that are gone, are answered with [`CudaCode::INVALID_HANDLE`] and never
/// followed. *Memory* is a [`Span`] of its own making, on a device or pinned on the host; copies find out which.
///
/// *Contexts.* Each call makes current what it needs, and any thread may call. Nothing of another thread's choice is changed for longer
/// than the call, but by [`enter_thread`](Cuda::enter_thread).
///
/// # Errors
///
/// The code that the driver answers with.
#[expect(clippy::missing_errors_doc, reason = "the trait says it once for all")]
pub trait Cuda: Send + Sync + 'static {
    /// The driver's version: 12080 is 12.8.
    fn driver_version(&self) -> Result<i32, CudaCode>;

    /// How many devices there are.
    fn device_count(&self) -> Result<i32, CudaCode>;

    /// What a device is. It gets no context for that, which would take some of its memory.
    fn device_info(&self, device: Device) -> Result<DeviceInfo, CudaCode>;

    /// The driver's words for a code.
    fn error_text(&self, code: CudaCode) -> String;

    /// What a device's context died of, as far as a call of this implementation was refused for it: another library may have seen it first.
    fn sticky_error(&self, device: Device) -> Option<CudaCode>;

    /// Makes a device the calling thread's for good, which must be a thread of our own: what else it calls, as NCCL, finds its context current
    /// and makes none on another device. Nor do its calls of the driver disturb what other threads capture into graphs.
    fn enter_thread(&self, device: Device) -> Result<(), CudaCode>;

    /// How much memory a device has, and how much of it is free.
    fn memory_info(&self, device: Device) -> Result<MemoryInfo, CudaCode>;

    /// Memory of a device. Its content has no meaning.
    #[track_caller]
    fn allocate(&self, device: Device, byte_len: usize) -> Result<Span, CudaCode>;

    /// Frees it. Nothing that was submitted may still use it.
    #[track_caller]
    fn free(&self, device: Device, span: Span) -> Result<(), CudaCode>;

    /// Memory of the host that devices copy from and to while the host goes on. Its content has no meaning.
    #[track_caller]
    fn allocate_host(&self, byte_len: usize) -> Result<Span, CudaCode>;

    /// Frees it. Nothing that was submitted may still use it.
    #[track_caller]
    fn free_host(&self, span: Span) -> Result<(), CudaCode>;

    /// Copies from pinned memory of the host, at once.
    #[track_caller]
    fn read_host(&self, from: Span, to: &mut [u8]) -> Result<(), CudaCode>;

    /// Copies to pinned memory of the host, at once.
    #[track_caller]
    fn write_host(&self, to: Span, from: &[u8]) -> Result<(), CudaCode>;

    /// Copies, in the order of a stream. Both have the same length.
    #[track_caller]
    fn copy(&self, to: Span, from: Span, stream: Stream) -> Result<(), CudaCode>;

    /// Sets every byte, in the order of a stream.
    #[track_caller]
    fn fill(&self, span: Span, byte: u8, stream: Stream) -> Result<(), CudaCode>;

    /// A stream that waits for no other. High ones go first where the device must choose.
    fn create_stream(&self, device: Device, is_high: bool) -> Result<Stream, CudaCode>;

    /// Gives a stream back; what is on it still runs.
    fn destroy_stream(&self, stream: Stream) -> Result<(), CudaCode>;

    /// The device of a stream.
    fn stream_device(&self, stream: Stream) -> Result<Device, CudaCode>;

    /// Whether all that was submitted to it is done.
    fn query_stream(&self, stream: Stream) -> Result<bool, CudaCode>;

    /// Waits until it is. Never bounded: for tests and tools.
    fn synchronize_stream(&self, stream: Stream) -> Result<(), CudaCode>;

    /// What follows on the stream waits for what the event was last recorded after; for nothing if it never was.
    fn wait_event(&self, stream: Stream, event: Event) -> Result<(), CudaCode>;

    /// Whether what is submitted to a stream is captured into a graph rather than run.
    fn is_capturing(&self, stream: Stream) -> Result<bool, CudaCode>;

    /// Calls a function of the host in the order of a stream. It may not call CUDA.
    fn call_host(&self, stream: Stream, call: HostCall) -> Result<(), CudaCode>;

    /// A new event.
    fn create_event(&self, device: Device, kind: EventKind) -> Result<Event, CudaCode>;

    /// Gives an event back; those that wait for it still do.
    fn destroy_event(&self, event: Event) -> Result<(), CudaCode>;

    /// Records an event: it stands for all that was submitted to the stream so far.
    fn record_event(&self, event: Event, stream: Stream) -> Result<(), CudaCode>;

    /// Whether all that it stands for is done; so it is where it was never recorded.
    fn query_event(&self, event: Event) -> Result<bool, CudaCode>;

    /// Milliseconds between two events that are done and keep time.
    fn elapsed(&self, from: Event, to: Event) -> Result<f32, CudaCode>;

    /// Runs a kernel in the order of a stream.
    #[track_caller]
    fn launch(&self, kernel: KernelId, grid: Grid, arguments: &[Argument], stream: Stream) -> Result<(), CudaCode>;

    /// Makes memory of a device one that other processes of this host can import.
    fn export_memory(&self, span: Span) -> Result<Shared, CudaCode>;

    /// Memory of another process.
    fn import_memory(&self, device: Device, shared: &Shared) -> Result<Span, CudaCode>;

    /// Gives imported memory back.
    fn close_memory(&self, span: Span) -> Result<(), CudaCode>;

    /// Makes an event one that other processes of this host can import.
    fn export_event(&self, event: Event) -> Result<Shared, CudaCode>;

    /// An event of another process.
    fn import_event(&self, device: Device, shared: &Shared) -> Result<Event, CudaCode>;
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Its compute capability: (9, 0) is that of an H100.
    pub capability: (i32, i32),
    /// Where it is on the bus, as in `0000:3b:00.0`: two processes use one card where this is the same.
    pub bus: String,
    /// Its multiprocessors.
    pub multiprocessors: i32,
    /// Its memory, in bytes.
    pub memory: u64,
}

/// A device's memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What is free.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// What an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// Order alone.
    Order,
    /// Order, and how long something took.
    Timing,
    /// Order between processes.
    Interprocess,
}

/// A function of the host, called once.
pub type HostCall = Box<dyn FnOnce() + Send>;

/// A kernel, by its number in the list of those this crate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId(pub u32);

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Thread blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// Memory that it reads.
    Read(Span),
    /// Memory that it reads and writes.
    Write(Span),
    /// A number.
    Number(u64),
    /// A factor.
    Real(f32),
}

/// Memory or an event as another process takes it in: bytes that mean something to the driver alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Shared(pub Vec<u8>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} bytes)", self.0.len())
    }
}
