//! The functions of the CUDA driver that are called, by the names that they have in the library.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::api::Version;
use crate::library::table::table;

/// A context, a stream, an event, a module, a function: what they point at is the driver's own.
pub(super) type Opaque = *mut c_void;

/// Memory or an event as another process opens it, by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Exported(pub(super) [u8; 64]);

/// A function of the host on a stream.
pub(super) type OnHost = unsafe extern "C" fn(*mut c_void);

const SINCE: Version = Version::new(11, 0, 0);

table! {
    /// Results are plain numbers: a driver that is newer than any header of ours may answer with others.
    Functions {
        init = "cuInit", SINCE, (c_uint) -> c_int;
        driver_version = "cuDriverGetVersion", SINCE, (*mut c_int) -> c_int;
        error_name = "cuGetErrorName", SINCE, (c_int, *mut *const c_char) -> c_int;
        error_string = "cuGetErrorString", SINCE, (c_int, *mut *const c_char) -> c_int;
        device_count = "cuDeviceGetCount", SINCE, (*mut c_int) -> c_int;
        device = "cuDeviceGet", SINCE, (*mut c_int, c_int) -> c_int;
        device_name = "cuDeviceGetName", SINCE, (*mut c_char, c_int, c_int) -> c_int;
        device_memory = "cuDeviceTotalMem_v2", SINCE, (*mut usize, c_int) -> c_int;
        device_attribute = "cuDeviceGetAttribute", SINCE, (*mut c_int, c_int, c_int) -> c_int;
        device_bus = "cuDeviceGetPCIBusId", SINCE, (*mut c_char, c_int, c_int) -> c_int;
        retain_context = "cuDevicePrimaryCtxRetain", SINCE, (*mut Opaque, c_int) -> c_int;
        push_context = "cuCtxPushCurrent_v2", SINCE, (Opaque) -> c_int;
        pop_context = "cuCtxPopCurrent_v2", SINCE, (*mut Opaque) -> c_int;
        set_context = "cuCtxSetCurrent", SINCE, (Opaque) -> c_int;
        exchange_capture_mode = "cuThreadExchangeStreamCaptureMode", SINCE, (*mut c_int) -> c_int;
        priorities = "cuCtxGetStreamPriorityRange", SINCE, (*mut c_int, *mut c_int) -> c_int;
        memory_info = "cuMemGetInfo_v2", SINCE, (*mut usize, *mut usize) -> c_int;
        allocate = "cuMemAlloc_v2", SINCE, (*mut u64, usize) -> c_int;
        free = "cuMemFree_v2", SINCE, (u64) -> c_int;
        allocate_host = "cuMemHostAlloc", SINCE, (*mut Opaque, usize, c_uint) -> c_int;
        free_host = "cuMemFreeHost", SINCE, (Opaque) -> c_int;
        address_range = "cuMemGetAddressRange_v2", SINCE, (*mut u64, *mut usize, u64) -> c_int;
        copy = "cuMemcpyAsync", SINCE, (u64, u64, usize, Opaque) -> c_int;
        fill = "cuMemsetD8Async", SINCE, (u64, u8, usize, Opaque) -> c_int;
        create_stream = "cuStreamCreateWithPriority", SINCE, (*mut Opaque, c_uint, c_int) -> c_int;
        destroy_stream = "cuStreamDestroy_v2", SINCE, (Opaque) -> c_int;
        query_stream = "cuStreamQuery", SINCE, (Opaque) -> c_int;
        synchronize_stream = "cuStreamSynchronize", SINCE, (Opaque) -> c_int;
        wait_event = "cuStreamWaitEvent", SINCE, (Opaque, Opaque, c_uint) -> c_int;
        is_capturing = "cuStreamIsCapturing", SINCE, (Opaque, *mut c_int) -> c_int;
        call_host = "cuLaunchHostFunc", SINCE, (Opaque, OnHost, *mut c_void) -> c_int;
        create_event = "cuEventCreate", SINCE, (*mut Opaque, c_uint) -> c_int;
        destroy_event = "cuEventDestroy_v2", SINCE, (Opaque) -> c_int;
        record_event = "cuEventRecord", SINCE, (Opaque, Opaque) -> c_int;
        query_event = "cuEventQuery", SINCE, (Opaque) -> c_int;
        elapsed = "cuEventElapsedTime", SINCE, (*mut f32, Opaque, Opaque) -> c_int;
        load_module = "cuModuleLoadData", SINCE, (*mut Opaque, *const c_void) -> c_int;
        function_of = "cuModuleGetFunction", SINCE, (*mut Opaque, Opaque, *const c_char) -> c_int;
        launch = "cuLaunchKernel", SINCE, (
            Opaque, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Opaque, *mut *mut c_void, *mut *mut c_void,
        ) -> c_int;
        export_memory = "cuIpcGetMemHandle", SINCE, (*mut Exported, u64) -> c_int;
        import_memory = "cuIpcOpenMemHandle_v2", SINCE, (*mut u64, Exported, c_uint) -> c_int;
        close_memory = "cuIpcCloseMemHandle", SINCE, (u64) -> c_int;
        export_event = "cuIpcGetEventHandle", SINCE, (*mut Exported, Opaque) -> c_int;
        import_event = "cuIpcOpenEventHandle", SINCE, (*mut Opaque, Exported) -> c_int;
    }
}
