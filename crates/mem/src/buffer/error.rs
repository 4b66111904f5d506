//! Why a buffer cannot be seen or split as asked.

use std::fmt;

use super::Buffer;

/// A buffer could not be seen as elements of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CastError {
    /// The first byte is not where an element may start.
    #[error("the buffer does not start at a multiple of {align} bytes")]
    Misaligned {
        /// The alignment of the element type, in bytes.
        align: usize,
    },
    /// The bytes are not a whole number of elements.
    #[error("{byte_len} bytes are not a whole number of elements of {element_byte_len} bytes")]
    Uneven {
        /// The length of the buffer.
        byte_len: usize,
        /// The length of one element.
        element_byte_len: usize,
    },
}

impl CastError {
    pub(super) fn of<T>(byte_len: usize, reason: bytemuck::PodCastError) -> CastError {
        match reason {
            bytemuck::PodCastError::TargetAlignmentGreaterAndInputNotAligned => {
                CastError::Misaligned { align: align_of::<T>() }
            }
            _ => CastError::Uneven { byte_len, element_byte_len: size_of::<T>() },
        }
    }
}

/// A buffer could not be split as asked. It is in here, whole.
#[derive(Debug)]
pub struct SplitError {
    pub(super) asked: usize,
    pub(super) buffer: Buffer,
}

impl SplitError {
    /// The buffer, as it was.
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a buffer of {} bytes cannot be split before byte {}", self.buffer.byte_len, self.asked)
    }
}

impl std::error::Error for SplitError {}
