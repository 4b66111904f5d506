//! Streams and events behind their numbers. What is being used is destroyed when its last user is done with it.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::CudaDriver;
use super::table::Opaque;
use crate::api::{CudaCode, Device, Event, EventKind, HostCall, Stream};

type Destroy = unsafe extern "C" fn(Opaque) -> c_int;

/// A stream of the driver's.
#[derive(Debug)]
pub(in crate::library) struct RawStream(Raw);

/// An event of the driver's.
#[derive(Debug)]
pub(super) struct RawEvent(Raw);

impl RawStream {
    pub(in crate::library) fn pointer(&self) -> Opaque {
        self.0.pointer()
    }
}

/// Something of a device that is destroyed when nobody holds it.
#[derive(Debug)]
struct Raw {
    device: Device,
    pointer: AtomicPtr<c_void>,
    /// Absent where somebody else destroys it.
    destroy: Option<Destroy>,
}

impl Raw {
    fn pointer(&self) -> Opaque {
        self.pointer.load(Ordering::Relaxed)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: nobody can name it any more, and nobody is using it. It needs no current context.
            unsafe { destroy(self.pointer()) };
        }
    }
}

impl CudaDriver {
    /// A stream that somebody else made, such as PyTorch's current one, under a number of ours. Giving it back does not destroy it.
    ///
    /// # Safety
    ///
    /// It is a stream of the device's primary context, and outlasts the number.
    pub unsafe fn adopt_stream(&self, device: Device, stream: usize) -> Stream {
        let pointer = AtomicPtr::new(ptr::with_exposed_provenance_mut(stream));
        Stream::new(self.streams.enter(RawStream(Raw { device, pointer, destroy: None })))
    }

    pub(in crate::library) fn raw_stream(&self, stream: Stream) -> Option<Arc<RawStream>> {
        self.streams.find(stream.number())
    }

    /// Does something with a stream, in its context.
    pub(super) fn with_stream<T>(
        &self,
        stream: Stream,
        run: impl FnOnce(Opaque) -> Result<T, CudaCode>,
    ) -> Result<T, CudaCode> {
        let raw = self.raw_stream(stream).ok_or(CudaCode::INVALID_HANDLE)?;
        self.on(raw.0.device, || run(raw.pointer()))
    }

    /// Does something with an event, in its context.
    pub(super) fn with_event<T>(
        &self,
        event: Event,
        run: impl FnOnce(Opaque) -> Result<T, CudaCode>,
    ) -> Result<T, CudaCode> {
        let raw = self.events.find(event.number()).ok_or(CudaCode::INVALID_HANDLE)?;
        self.on(raw.0.device, || run(raw.0.pointer()))
    }

    pub(super) fn device_of(&self, stream: Stream) -> Result<Device, CudaCode> {
        Ok(self.raw_stream(stream).ok_or(CudaCode::INVALID_HANDLE)?.0.device)
    }

    pub(super) fn new_stream(&self, device: Device, is_high: bool) -> Result<Stream, CudaCode> {
        let mut pointer = ptr::null_mut();
        self.on(device, || {
            let (mut least, mut greatest) = (0, 0);
            // SAFETY: room for two numbers.
            self.call(&self.functions.priorities, |call| unsafe { call(&mut least, &mut greatest) })?;
            let priority = if is_high { greatest } else { least };
            // SAFETY: room for a stream.
            self.call(&self.functions.create_stream, |call| unsafe { call(&mut pointer, NON_BLOCKING, priority) })
        })?;
        let (pointer, destroy) = (AtomicPtr::new(pointer), self.functions.destroy_stream.call);
        Ok(Stream::new(self.streams.enter(RawStream(Raw { device, pointer, destroy }))))
    }

    pub(super) fn new_event(&self, device: Device, kind: EventKind) -> Result<Event, CudaCode> {
        let flags = match kind {
            EventKind::Timing => 0,
            EventKind::Order => DISABLE_TIMING,
            EventKind::Interprocess => DISABLE_TIMING | INTERPROCESS,
        };
        let mut pointer = ptr::null_mut();
        self.on(device, || {
            // SAFETY: room for an event.
            self.call(&self.functions.create_event, |call| unsafe { call(&mut pointer, flags) })
        })?;
        Ok(self.enter_event(device, pointer))
    }

    /// A number for an event of ours.
    pub(super) fn enter_event(&self, device: Device, pointer: Opaque) -> Event {
        let (pointer, destroy) = (AtomicPtr::new(pointer), self.functions.destroy_event.call);
        Event::new(self.events.enter(RawEvent(Raw { device, pointer, destroy })))
    }

    pub(super) fn forget_stream(&self, stream: Stream) -> Result<(), CudaCode> {
        self.streams.take(stream.number()).map(drop).ok_or(CudaCode::INVALID_HANDLE)
    }

    pub(super) fn forget_event(&self, event: Event) -> Result<(), CudaCode> {
        self.events.take(event.number()).map(drop).ok_or(CudaCode::INVALID_HANDLE)
    }

    /// Has the driver call a function of ours. It is not called where the context fails first, and is lost then.
    pub(super) fn submit_host_call(&self, stream: Stream, call: HostCall) -> Result<(), CudaCode> {
        self.with_stream(stream, |pointer| {
            let call = Box::into_raw(Box::new(call));
            // SAFETY: a stream that is there, and a function with what it is called with.
            let submitted =
                self.call(&self.functions.call_host, |submit| unsafe { submit(pointer, run_host_call, call.cast()) });
            if submitted.is_err() {
                // SAFETY: it was not taken, so it is ours again.
                drop(unsafe { Box::from_raw(call) });
            }
            submitted
        })
    }
}

unsafe extern "C" fn run_host_call(call: *mut c_void) {
    // SAFETY: what `submit_host_call` gave, and the driver calls once.
    let call = unsafe { Box::from_raw(call.cast::<HostCall>()) };
    // A panic must not run into the driver. It has been told where panics are told.
    let _told = catch_unwind(AssertUnwindSafe(call));
}

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;
