//! The CUDA driver as it is installed, opened at run time.

mod calls;
mod exchange;
mod kernels;
mod memory;
mod order;
mod table;

use std::ffi::{CStr, c_int};
use std::fmt;
use std::ptr;
use std::sync::Mutex;

use phalanx_core::Result;
use rustc_hash::FxHashMap;

use self::memory::Memory;
use self::table::{Functions, Opaque};
use super::search::{Search, Wanted};
use super::shared::SharedObject;
use super::table::Foreign;
use crate::api::{CudaCode, Device, KernelId, Span};
use crate::register::{Register, locked};

use self::order::RawEvent;
pub(super) use self::order::RawStream;

/// The CUDA driver as it is installed.
///
/// It is used through the primary context of each device, which is what CUDA's runtime, PyTorch and NCCL use. It is never closed.
/// Memory must outlast what was submitted with it.
pub struct CudaDriver {
    functions: Functions,
    path: String,
    /// The primary context of each device that was used, as an address. They stay for as long as the process runs.
    contexts: Mutex<FxHashMap<Device, usize>>,
    sticky: Mutex<FxHashMap<Device, CudaCode>>,
    streams: Register<RawStream>,
    events: Register<RawEvent>,
    memory: Memory,
    /// What other processes lent: the device and the start of the whole, as often as it was taken in.
    imported: Mutex<FxHashMap<Span, Vec<(Device, u64)>>>,
    kernels: Mutex<FxHashMap<(Device, KernelId), usize>>,
}

impl CudaDriver {
    /// Opens the driver and initialises it.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup): there is none, or no device. Says what was tried, and why it would not do.
    pub fn open(search: &Search) -> Result<CudaDriver> {
        let (functions, path) = search.find(&DRIVER, accept)?;
        Ok(CudaDriver {
            functions,
            path,
            contexts: Mutex::default(),
            sticky: Mutex::default(),
            streams: Register::new(),
            events: Register::new(),
            memory: Memory::default(),
            imported: Mutex::default(),
            kernels: Mutex::default(),
        })
    }

    /// The file that was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Calls a function, if it is there.
    fn call<F: Copy>(&self, function: &Foreign<F>, run: impl FnOnce(F) -> c_int) -> Result<(), CudaCode> {
        match function.call.map(run) {
            None => Err(CudaCode::NOT_SUPPORTED),
            Some(0) => Ok(()),
            Some(code) => Err(CudaCode(code)),
        }
    }

    /// Asks something that is done or not.
    fn is_done<F: Copy>(&self, function: &Foreign<F>, run: impl FnOnce(F) -> c_int) -> Result<bool, CudaCode> {
        match self.call(function, run) {
            Err(NOT_READY) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Does something with the context of a device current, and makes the one current again that was.
    pub(super) fn within<T>(&self, device: Device, run: impl FnOnce() -> T) -> Result<T, CudaCode> {
        let context = self.context(device)?;
        // SAFETY: a context that is there, since they all stay.
        self.call(&self.functions.push_context, |call| unsafe { call(context) })?;
        let value = run();
        let mut popped = ptr::null_mut();
        // SAFETY: room for a context.
        self.call(&self.functions.pop_context, |call| unsafe { call(&mut popped) })?;
        Ok(value)
    }

    /// The same for what may fail, and remembers what the device will not recover from.
    fn on<T>(&self, device: Device, run: impl FnOnce() -> Result<T, CudaCode>) -> Result<T, CudaCode> {
        let done = self.within(device, run).and_then(|done| done);
        done.inspect_err(|code| {
            if code.is_sticky() {
                locked(&self.sticky).entry(device).or_insert(*code);
            }
        })
    }

    /// Makes the context of a device current on this thread for good, and lets it call while other threads capture.
    fn settle_thread(&self, device: Device) -> Result<(), CudaCode> {
        let context = self.context(device)?;
        // SAFETY: a context that is there, since they all stay.
        self.call(&self.functions.set_context, |call| unsafe { call(context) })?;
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: a mode, and room for the one before.
        self.call(&self.functions.exchange_capture_mode, |call| unsafe { call(&mut mode) })
    }

    /// A device whose context is there already, or else the first: for what is everybody's, but needs some context to be current.
    fn any_device(&self) -> Device {
        locked(&self.contexts).keys().copied().min_by_key(|device| device.0).unwrap_or(Device(0))
    }

    fn context(&self, device: Device) -> Result<Opaque, CudaCode> {
        let mut contexts = locked(&self.contexts);
        if let Some(address) = contexts.get(&device) {
            return Ok(ptr::with_exposed_provenance_mut(*address));
        }
        let (mut ordinal, mut context) = (0, ptr::null_mut());
        // SAFETY: room for one number.
        self.call(&self.functions.device, |call| unsafe { call(&mut ordinal, device.0) })?;
        // SAFETY: room for a context.
        self.call(&self.functions.retain_context, |call| unsafe { call(&mut context, ordinal) })?;
        contexts.insert(device, context.expose_provenance());
        Ok(context)
    }
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the CUDA driver at {}", self.path)
    }
}

/// Whether a library is the driver, and whether it has anything to drive.
fn accept(object: SharedObject) -> Result<(Functions, String), String> {
    let functions = Functions::of(&object);
    let name = functions.init.name;
    let Some(init) = functions.init.call else {
        return Err(format!("is no CUDA driver, as it does not export {name}"));
    };
    if let Some((missing, _)) = functions.missing().first() {
        return Err(format!("is too old, as it does not export {missing}"));
    }
    // SAFETY: no flags exist.
    let code = CudaCode(unsafe { init(0) });
    let path = object.path_of(name);
    // Once it has begun it has threads, whatever it answered.
    object.keep();
    if code.0 == 0 { Ok((functions, path)) } else { Err(format!("{name} answers {}", words(&functions, code))) }
}

/// The driver's name of a code, its number, and its words.
fn words(functions: &Functions, code: CudaCode) -> String {
    let ask = |function: &Foreign<unsafe extern "C" fn(c_int, *mut *const std::ffi::c_char) -> c_int>| {
        let mut text = ptr::null();
        // SAFETY: any number may be asked for, and there is room for a pointer.
        let answer = function.call.map(|call| unsafe { call(code.0, &mut text) });
        if answer != Some(0) || text.is_null() {
            return None;
        }
        // SAFETY: the driver's texts end in a zero and stay.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    };
    let name = ask(&functions.error_name).unwrap_or_else(|| code.name().to_owned());
    let text = ask(&functions.error_string).map(|text| format!(": {text}"));
    format!("{name} ({}){}", code.0, text.unwrap_or_default())
}

const DRIVER: Wanted = Wanted { what: "the CUDA driver", names: &["libcuda.so.1", "libcuda.so"], packages: &[] };
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const CAPTURE_RELAXED: c_int = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: CudaCode = CudaCode(600);
