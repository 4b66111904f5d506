//! What is refused before the library is asked, and the words for it: a thread that was refused finds them where the library's own
//! would be.

use std::cell::Cell;

use crate::api::{CudaCode, Device, Status, Version};
use crate::library::table::Absent;

/// Why the library was not asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// It has no such function.
    Absent { function: &'static str, since: Version },
    /// A handle that is not known, or no longer.
    Unknown(&'static str),
    /// A communicator that its parent is still making.
    Unmade,
    /// Memory that is shorter than what would be read or written.
    Short { needed: usize, byte_len: usize },
    /// Elements of a type whose size is not known here.
    Type(i32),
    /// There is no CUDA driver, so there are no streams.
    NoDriver,
    /// The driver would not make a device current.
    Driver { device: Device, code: CudaCode },
}

impl Refusal {
    /// Notes it for this thread, and answers what the call answers.
    pub(super) fn note(self) -> Status {
        LAST.set(Some(self));
        match self {
            Refusal::Absent { .. } => Status::ABSENT,
            Refusal::Driver { .. } => Status::UNHANDLED_CUDA,
            _ => Status::INVALID_ARGUMENT,
        }
    }

    /// What this thread's last call was refused for; none if the library was asked.
    pub(super) fn last() -> Option<Refusal> {
        LAST.get()
    }

    /// The library is asked.
    pub(super) fn clear() {
        LAST.set(None);
    }

    /// In words, for a library of this version.
    pub(super) fn words(self, found: Version) -> String {
        match self {
            Refusal::Absent { function, since } => Absent { function, found, needed: since }.to_string(),
            Refusal::Unknown(what) => format!("there is no such {what}, or no longer"),
            Refusal::Unmade => "the communicator is still being made by the one it comes from".into(),
            Refusal::Short { needed, byte_len } => format!("{needed} bytes are needed where {byte_len} are"),
            Refusal::Type(number) => format!("the size of elements of type {number} is not known"),
            Refusal::NoDriver => "there is no CUDA driver, so there are no streams".into(),
            Refusal::Driver { device, code } => format!("{device} cannot be made current: {code} ({})", code.0),
        }
    }
}

thread_local! {
    static LAST: Cell<Option<Refusal>> = const { Cell::new(None) };
}
