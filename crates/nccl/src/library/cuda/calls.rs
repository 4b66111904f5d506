//! Every call that is asked of the CUDA driver, as the installed one is called.

use std::ffi::{CStr, c_char, c_int};

use super::{CudaDriver, locked, words};
use crate::api::{
    Argument, Cuda, CudaCode, Device, DeviceInfo, Event, EventKind, Grid, HostCall, KernelId, MemoryInfo, Shared, Span,
    Stream,
};

impl Cuda for CudaDriver {
    fn driver_version(&self) -> Result<i32, CudaCode> {
        let mut version = 0;
        // SAFETY: room for one number.
        self.call(&self.functions.driver_version, |call| unsafe { call(&mut version) }).map(|()| version)
    }

    fn device_count(&self) -> Result<i32, CudaCode> {
        let mut count = 0;
        // SAFETY: room for one number.
        self.call(&self.functions.device_count, |call| unsafe { call(&mut count) }).map(|()| count)
    }

    fn device_info(&self, device: Device) -> Result<DeviceInfo, CudaCode> {
        let mut ordinal = 0;
        // SAFETY: room for one number.
        self.call(&self.functions.device, |call| unsafe { call(&mut ordinal, device.0) })?;
        let attribute = |attribute: c_int| {
            let mut value = 0;
            let asked = self.call(&self.functions.device_attribute, |call| {
                // SAFETY: room for one number.
                unsafe { call(&mut value, attribute, ordinal) }
            });
            asked.map(|()| value)
        };
        let text = |function| self.device_text(function, ordinal);
        let mut memory = 0;
        // SAFETY: room for one number.
        self.call(&self.functions.device_memory, |call| unsafe { call(&mut memory, ordinal) })?;
        Ok(DeviceInfo {
            name: text(&self.functions.device_name)?,
            capability: (attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?),
            bus: text(&self.functions.device_bus)?.to_lowercase(),
            multiprocessors: attribute(MULTIPROCESSORS)?,
            memory: memory as u64,
        })
    }

    fn error_text(&self, code: CudaCode) -> String {
        words(&self.functions, code)
    }

    fn sticky_error(&self, device: Device) -> Option<CudaCode> {
        locked(&self.sticky).get(&device).copied()
    }

    fn enter_thread(&self, device: Device) -> Result<(), CudaCode> {
        self.settle_thread(device)
    }

    fn memory_info(&self, device: Device) -> Result<MemoryInfo, CudaCode> {
        let (mut free, mut total) = (0, 0);
        self.on(device, || {
            // SAFETY: room for two numbers.
            self.call(&self.functions.memory_info, |call| unsafe { call(&mut free, &mut total) })
        })?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn allocate(&self, device: Device, byte_len: usize) -> Result<Span, CudaCode> {
        self.take_device_memory(device, byte_len)
    }

    fn free(&self, device: Device, span: Span) -> Result<(), CudaCode> {
        self.give_device_memory(device, span)
    }

    fn allocate_host(&self, byte_len: usize) -> Result<Span, CudaCode> {
        self.take_host_memory(byte_len)
    }

    fn free_host(&self, span: Span) -> Result<(), CudaCode> {
        self.give_host_memory(span)
    }

    fn read_host(&self, from: Span, to: &mut [u8]) -> Result<(), CudaCode> {
        self.read_pinned(from, to)
    }

    fn write_host(&self, to: Span, from: &[u8]) -> Result<(), CudaCode> {
        self.write_pinned(to, from)
    }

    fn copy(&self, to: Span, from: Span, stream: Stream) -> Result<(), CudaCode> {
        if to.byte_len() != from.byte_len() {
            return Err(CudaCode::INVALID_VALUE);
        }
        self.with_stream(stream, |stream| {
            let (to, from, byte_len) = (to.address(), from.address(), to.byte_len());
            if byte_len == 0 {
                return Ok(());
            }
            // SAFETY: memory of that length on both sides, and a stream that is there.
            self.call(&self.functions.copy, |call| unsafe { call(to, from, byte_len, stream) })
        })
    }

    fn fill(&self, span: Span, byte: u8, stream: Stream) -> Result<(), CudaCode> {
        self.with_stream(stream, |stream| {
            if span.is_empty() {
                return Ok(());
            }
            // SAFETY: memory of that length, and a stream that is there.
            self.call(&self.functions.fill, |call| unsafe { call(span.address(), byte, span.byte_len(), stream) })
        })
    }

    fn create_stream(&self, device: Device, is_high: bool) -> Result<Stream, CudaCode> {
        self.new_stream(device, is_high)
    }

    fn destroy_stream(&self, stream: Stream) -> Result<(), CudaCode> {
        self.forget_stream(stream)
    }

    fn stream_device(&self, stream: Stream) -> Result<Device, CudaCode> {
        self.device_of(stream)
    }

    fn query_stream(&self, stream: Stream) -> Result<bool, CudaCode> {
        self.with_stream(stream, |stream| {
            // SAFETY: a stream that is there.
            self.is_done(&self.functions.query_stream, |call| unsafe { call(stream) })
        })
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<(), CudaCode> {
        self.with_stream(stream, |stream| {
            // SAFETY: a stream that is there.
            self.call(&self.functions.synchronize_stream, |call| unsafe { call(stream) })
        })
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<(), CudaCode> {
        self.with_event(event, |event| {
            self.with_stream(stream, |stream| {
                // SAFETY: a stream and an event that are there; no flags.
                self.call(&self.functions.wait_event, |call| unsafe { call(stream, event, 0) })
            })
        })
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool, CudaCode> {
        self.with_stream(stream, |stream| {
            let mut state = 0;
            // SAFETY: a stream that is there, and room for one number.
            self.call(&self.functions.is_capturing, |call| unsafe { call(stream, &mut state) })?;
            Ok(state != 0)
        })
    }

    fn call_host(&self, stream: Stream, call: HostCall) -> Result<(), CudaCode> {
        self.submit_host_call(stream, call)
    }

    fn create_event(&self, device: Device, kind: EventKind) -> Result<Event, CudaCode> {
        self.new_event(device, kind)
    }

    fn destroy_event(&self, event: Event) -> Result<(), CudaCode> {
        self.forget_event(event)
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<(), CudaCode> {
        self.with_event(event, |event| {
            self.with_stream(stream, |stream| {
                // SAFETY: an event and a stream that are there.
                self.call(&self.functions.record_event, |call| unsafe { call(event, stream) })
            })
        })
    }

    fn query_event(&self, event: Event) -> Result<bool, CudaCode> {
        self.with_event(event, |event| {
            // SAFETY: an event that is there.
            self.is_done(&self.functions.query_event, |call| unsafe { call(event) })
        })
    }

    fn elapsed(&self, from: Event, to: Event) -> Result<f32, CudaCode> {
        let mut milliseconds = 0.0;
        self.with_event(from, |from| {
            self.with_event(to, |to| {
                // SAFETY: room for one number, and events that are there.
                self.call(&self.functions.elapsed, |call| unsafe { call(&mut milliseconds, from, to) })
            })
        })?;
        Ok(milliseconds)
    }

    fn launch(&self, kernel: KernelId, grid: Grid, arguments: &[Argument], stream: Stream) -> Result<(), CudaCode> {
        self.submit_kernel(kernel, grid, arguments, stream)
    }

    fn export_memory(&self, span: Span) -> Result<Shared, CudaCode> {
        self.give_memory(self.device_with(span)?, span)
    }

    fn import_memory(&self, device: Device, shared: &Shared) -> Result<Span, CudaCode> {
        self.take_memory(device, shared)
    }

    fn close_memory(&self, span: Span) -> Result<(), CudaCode> {
        self.forget_memory(span)
    }

    fn export_event(&self, event: Event) -> Result<Shared, CudaCode> {
        self.give_event(event)
    }

    fn import_event(&self, device: Device, shared: &Shared) -> Result<Event, CudaCode> {
        self.take_event(device, shared)
    }
}

impl CudaDriver {
    /// A text about a device.
    fn device_text(
        &self,
        function: &crate::library::table::Foreign<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>,
        ordinal: c_int,
    ) -> Result<String, CudaCode> {
        let mut bytes = [0_u8; 256];
        // SAFETY: room for so many bytes less one, so that it ends in a zero.
        self.call(function, |call| unsafe { call(bytes.as_mut_ptr().cast(), 255, ordinal) })?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }
}

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
const CAPABILITY_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
const CAPABILITY_MINOR: c_int = 76;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: c_int = 16;
