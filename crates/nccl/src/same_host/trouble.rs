//! What keeps a communicator from going on: the status it answers with from then on, and the words for it.

use phalanx_core::store::StoreError;

use crate::api::{Cuda, CudaCode, Status};

#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) status: Status,
    pub(super) words: String,
}

impl Trouble {
    pub(super) fn new(status: Status, words: impl Into<String>) -> Trouble {
        Trouble { status, words: words.into() }
    }

    pub(super) fn argument(words: impl Into<String>) -> Trouble {
        Trouble::new(Status::INVALID_ARGUMENT, words)
    }

    /// A call of the driver that failed.
    pub(super) fn of_cuda(cuda: &impl Cuda, call: &str, code: CudaCode) -> Trouble {
        Trouble::new(Status::UNHANDLED_CUDA, format!("{call}: {}", cuda.error_text(code)))
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::new(Status::SYSTEM, format!("the store: {error}"))
    }
}
