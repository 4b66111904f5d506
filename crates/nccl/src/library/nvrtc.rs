//! NVIDIA's run-time compiler, opened at run time: from CUDA C++ to PTX, with no GPU needed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr;

use phalanx_core::{Error, Result};

use self::table::Functions;
use super::search::{Search, Wanted};
use super::shared::SharedObject;

mod table {
    //! The functions that are called, with the signatures of the compiler's header.

    use std::ffi::{c_char, c_int, c_void};

    use crate::api::Version;
    use crate::library::table::table;

    type Program = *mut c_void;

    const SINCE: Version = Version::new(11, 0, 0);

    table! {
        /// Results are plain numbers.
        Functions {
            version = "nvrtcVersion", SINCE, (*mut c_int, *mut c_int) -> c_int;
            error_string = "nvrtcGetErrorString", SINCE, (c_int) -> *const c_char;
            create = "nvrtcCreateProgram", SINCE, (
                *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
            ) -> c_int;
            destroy = "nvrtcDestroyProgram", SINCE, (*mut Program) -> c_int;
            compile = "nvrtcCompileProgram", SINCE, (Program, c_int, *const *const c_char) -> c_int;
            log_len = "nvrtcGetProgramLogSize", SINCE, (Program, *mut usize) -> c_int;
            log = "nvrtcGetProgramLog", SINCE, (Program, *mut c_char) -> c_int;
            ptx_len = "nvrtcGetPTXSize", SINCE, (Program, *mut usize) -> c_int;
            ptx = "nvrtcGetPTX", SINCE, (Program, *mut c_char) -> c_int;
        }
    }
}

/// The compiler as it is installed. It is never closed.
pub struct Nvrtc {
    functions: Functions,
    version: (i32, i32),
    path: String,
}

type TextOf = Option<unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int>;
type LengthOf = Option<unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int>;

impl Nvrtc {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup): there is none that will do. Says what was tried, and why it would not.
    pub fn open(search: &Search) -> Result<Nvrtc> {
        let (functions, version, path) = search.find(&NVRTC, accept)?;
        Ok(Nvrtc { functions, version, path })
    }

    /// The file that was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its version: (12, 8).
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles CUDA C++ to PTX. The options are those of the compiler's command line, such as `--gpu-architecture=compute_80`.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), with the compiler's own words.
    pub fn compile(&self, name: &str, source: &str, options: &[&str]) -> Result<Vec<u8>> {
        let refused = |why: String| Error::setup(format!("compiling {name} for the device"), why);
        let text = |text: &str| CString::new(text).map_err(|_| refused("there is a zero in it".into()));
        let options: Vec<CString> = options.iter().map(|option| text(option)).collect::<Result<_>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let program = self.program(&text(source)?, &text(name)?).map_err(|code| refused(self.words(code)))?;
        let Some(compile) = self.functions.compile.call else { return Err(refused(self.words(MISSING))) };
        let count = c_int::try_from(options.len()).unwrap_or(c_int::MAX);
        // SAFETY: a program that is there, and as many options as are said, each of which ends in a zero.
        let code = unsafe { compile(program.0, count, options.as_ptr()) };
        if code != 0 {
            let log = text_of(&program, self.functions.log_len.call, self.functions.log.call).unwrap_or_default();
            return Err(refused(format!("{}: {}", self.words(code), String::from_utf8_lossy(&log).trim())));
        }
        text_of(&program, self.functions.ptx_len.call, self.functions.ptx.call)
            .map_err(|code| refused(self.words(code)))
    }

    fn program(&self, source: &CStr, name: &CStr) -> Result<Program<'_>, c_int> {
        let create = self.functions.create.call.ok_or(MISSING)?;
        let mut program = ptr::null_mut();
        // SAFETY: room for a program, texts that end in a zero, and no headers.
        let code = unsafe { create(&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
        if code == 0 { Ok(Program(program, self)) } else { Err(code) }
    }

    fn words(&self, code: c_int) -> String {
        let Some(ask) = self.functions.error_string.call.filter(|_| code != MISSING) else {
            return "the compiler lacks a function that is needed".into();
        };
        // SAFETY: any number may be asked for.
        let text = unsafe { ask(code) };
        if text.is_null() {
            return format!("result {code}");
        }
        // SAFETY: the compiler's texts end in a zero and stay.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({code})", text.to_string_lossy())
    }
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVRTC {}.{} at {}", self.version.0, self.version.1, self.path)
    }
}

/// A program in the compiler, for as long as it is used.
struct Program<'a>(*mut c_void, &'a Nvrtc);

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if let Some(destroy) = self.1.functions.destroy.call {
            // SAFETY: a program that was there until now.
            unsafe { destroy(&mut self.0) };
        }
    }
}

/// A text of a program's, without the zero at its end.
fn text_of(program: &Program<'_>, length: LengthOf, fill: TextOf) -> Result<Vec<u8>, c_int> {
    let (Some(length), Some(fill)) = (length, fill) else { return Err(MISSING) };
    let mut byte_len = 0;
    // SAFETY: a program that is there, and room for one number.
    let code = unsafe { length(program.0, &mut byte_len) };
    let mut text = vec![0_u8; byte_len];
    if code != 0 || byte_len == 0 {
        return if code == 0 { Ok(text) } else { Err(code) };
    }
    // SAFETY: a program that is there, and room for as many bytes as it said.
    let code = unsafe { fill(program.0, text.as_mut_ptr().cast()) };
    text.pop();
    if code == 0 { Ok(text) } else { Err(code) }
}

fn accept(object: SharedObject) -> Result<(Functions, (i32, i32), String), String> {
    let functions = Functions::of(&object);
    let name = functions.version.name;
    let Some(tell) = functions.version.call else {
        return Err(format!("is no NVRTC, as it does not export {name}"));
    };
    if let Some((missing, _)) = functions.missing().first() {
        return Err(format!("does not export {missing}"));
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: room for two numbers.
    let code = unsafe { tell(&mut major, &mut minor) };
    if code != 0 {
        return Err(format!("{name} answers {code}"));
    }
    let path = object.path_of(name);
    object.keep();
    keep_builtins(&path, major, minor);
    Ok((functions, (major, minor), path))
}

/// Opens the library that the compiler opens itself, by its name alone: in the packages of CUDA 13 it does not look beside itself. What
/// is open already is found. Where there is none beside it, or it will not do, the compiler says so.
fn keep_builtins(path: &str, major: i32, minor: i32) {
    let beside = Path::new(path).with_file_name(format!("libnvrtc-builtins.so.{major}.{minor}"));
    if beside.is_file() {
        SharedObject::open(&beside).map(SharedObject::keep).unwrap_or_default();
    }
}

const NVRTC: Wanted = Wanted {
    what: "NVRTC",
    names: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"],
    packages: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
};
/// Stands for a function that is not there.
const MISSING: c_int = c_int::MIN;
