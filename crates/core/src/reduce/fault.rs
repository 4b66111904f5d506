//! What a reduction refuses. All of it can be checked before anything is sent, and callers do.

use thiserror::Error;

use super::ReduceOp;
use crate::DType;

/// A reduction that is not defined for an element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{reduce} is not defined for {dtype}: {why}")]
pub struct Unsupported {
    /// The reduction asked for.
    pub reduce: ReduceOp,
    /// The element type it was asked for.
    pub dtype: DType,
    /// The rule that forbids it.
    pub why: &'static str,
}

/// Why a kernel did nothing. The destination is untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// The reduction is not defined for the element type.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// An operand has another length than the destination.
    #[error("an operand has {found} bytes where {expected} were expected")]
    Length {
        /// Bytes of the destination.
        expected: usize,
        /// Bytes of the operand.
        found: usize,
    },
    /// The bytes are not whole elements.
    #[error("{found} bytes are not whole elements of {dtype}")]
    Partial {
        /// The element type.
        dtype: DType,
        /// Bytes given.
        found: usize,
    },
    /// The destination's own operand was placed past the last one.
    #[error("position {position} is not among {operands} operands")]
    Position {
        /// The position asked for.
        position: usize,
        /// How many operands there are.
        operands: usize,
    },
    /// There is nothing to combine, or to divide by.
    #[error("a reduction of no operands has no value")]
    Empty,
}

/// That `bytes` are whole elements of `dtype`.
pub(super) fn check_whole(dtype: DType, bytes: &[u8]) -> Result<(), ReduceError> {
    match dtype.is_whole(bytes.len()) {
        true => Ok(()),
        false => Err(ReduceError::Partial { dtype, found: bytes.len() }),
    }
}

/// That `operand` is as long as the destination.
pub(super) fn check_length(expected: usize, operand: &[u8]) -> Result<(), ReduceError> {
    match operand.len() == expected {
        true => Ok(()),
        false => Err(ReduceError::Length { expected, found: operand.len() }),
    }
}
