//! What the libraries answer, as errors that say what was called, which code came, and the library's own words.

use phalanx_core::{Device, Error};

use crate::api::{Comm, Cuda, CudaCode, Nccl, Status};

/// The error of a call of NCCL that did not succeed.
pub(super) fn of_nccl(nccl: &impl Nccl, call: &str, status: Status, comm: Option<Comm>) -> Error {
    let words = [nccl.error_text(status), nccl.last_error(comm)].join("; ");
    let (code, name) = (i64::from(status.0), status.name().to_owned());
    Error::Device(Box::new(Device { code, name, text: format!("{call}: {words}"), sticky: false }))
}

/// The error of a call of CUDA that failed.
pub(super) fn of_cuda(cuda: &impl Cuda, call: &str, code: CudaCode) -> Error {
    let text = format!("{call}: {}", cuda.error_text(code));
    let (number, name) = (i64::from(code.0), code.name().to_owned());
    Error::Device(Box::new(Device { code: number, name, text, sticky: code.is_sticky() }))
}
