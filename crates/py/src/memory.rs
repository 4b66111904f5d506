//! Memory that Python lends for an operation: the one room of this crate with unsafe code. It does not know what the bytes mean.
//!
//! Python hands over addresses as numbers, so nothing here can be checked but that they are no nonsense. Who calls
//! [`Group.run`](crate::group::Group) or `Group.submit` from Python promises, and `python/phalanx` sees to it, that
//!
//! - each range lies in one allocation that lives as long as the call, or for `submit` as long as the object that is given to be kept;
//! - the input may be read and the output written, and neither was handed to another operation that has not ended;
//! - nobody writes the input, and nobody touches the output, until the operation has ended. A program that does so from another thread sees
//!   bytes of no meaning, as with any other library that works on memory while Python goes on.
//!
//! That input and output are apart is not promised but checked, because one call may be given overlapping tensors by mistake.

use std::ptr::NonNull;
use std::slice;

use phalanx::backend::Buffers;
use phalanx::{Buffer, Error, Result};
use pyo3::{Py, PyAny};

/// An address and the number of bytes there.
pub(crate) type Span = (usize, usize);

/// What is lent to one operation. Without an input it works in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loan {
    input: Option<Range>,
    output: Range,
}

impl Loan {
    /// These ranges, if they can be ranges of memory and are apart.
    pub(crate) fn new(call: &'static str, input: Option<Span>, output: Span) -> Result<Loan> {
        let input = input.map(|span| Range::new(call, "input", span)).transpose()?;
        let output = Range::new(call, "output", output)?;
        match input {
            Some(input) if input.overlaps(output) => {
                Err(Error::usage(call, "input", "overlapping the output", "must be apart from it"))
            }
            _ => Ok(Loan { input, output }),
        }
    }

    /// Plays an operation over what is lent.
    pub(crate) fn lend<T>(self, play: impl FnOnce(Option<&[u8]>, &mut [u8]) -> T) -> T {
        let Loan { input, output } = self;
        // SAFETY: the room's promise: until this call ends the input may be read and nobody writes it.
        let input = input.map(|input| unsafe { slice::from_raw_parts(input.start.as_ptr(), input.byte_len) });
        // SAFETY: the room's promise: until this call ends the output is only touched here; it is apart from the input.
        let output = unsafe { slice::from_raw_parts_mut(output.start.as_ptr(), output.byte_len) };
        play(input, output)
    }

    /// Buffers over what is lent, which keep `owner` until the operation has let go of them.
    pub(crate) fn buffers(self, owner: Py<PyAny>, owner_of_input: Py<PyAny>) -> Buffers {
        let Loan { input, output } = self;
        // SAFETY: the room's promise: the owner keeps the memory, and until the operation has ended nobody writes it. A buffer that is an input
        // is never written.
        let lend = |range: Range, owner| unsafe { Buffer::foreign(range.start, range.byte_len, owner) };
        Buffers { input: input.map(|input| lend(input, owner_of_input)), output: lend(output, owner) }
    }
}

/// Bytes that may exist.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: NonNull<u8>,
    byte_len: usize,
}

impl Range {
    fn new(call: &'static str, argument: &'static str, (address, byte_len): Span) -> Result<Range> {
        let refused = |value: String, expected: &str| Err(Error::usage(call, argument, value, expected));
        if byte_len == 0 {
            // An empty tensor has no address, and needs none.
            return Ok(Range { start: NonNull::dangling(), byte_len });
        }
        let end = address.checked_add(byte_len).filter(|_| isize::try_from(byte_len).is_ok());
        match (NonNull::new(address as *mut u8), end) {
            (Some(start), Some(_)) => Ok(Range { start, byte_len }),
            (None, _) => refused(format!("{byte_len} bytes at no address"), "must be memory of this process"),
            (_, None) => refused(format!("{byte_len} bytes at {address:#x}"), "must lie in the address space"),
        }
    }

    fn overlaps(self, other: Range) -> bool {
        let (start, other_start) = (self.start.addr().get(), other.start.addr().get());
        self.byte_len > 0
            && other.byte_len > 0
            && start < other_start + other.byte_len
            && other_start < start + self.byte_len
    }
}

// SAFETY: an address and a length; who may use them is the room's promise, which names no thread.
unsafe impl Send for Range {}
