//! Bytes that an asynchronous operation takes by value and hands back: owned, from a `Vec`, or foreign with their keeper.
//! Pieces of one buffer share its keeper and never overlap. Nothing here is shared between ranks.

mod error;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use bytemuck::Pod;

use crate::allocation::{Allocation, MAX_ALIGN, OutOfMemory};

pub use error::{CastError, SplitError};

/// Untyped bytes owned by whoever holds the buffer.
pub struct Buffer {
    start: NonNull<u8>,
    byte_len: usize,
    keeper: Arc<dyn Any + Send + Sync>,
}

impl Buffer {
    /// Zeroed bytes, aligned to 64, from one page on to a page of 4096. Zero bytes are legal.
    ///
    /// # Panics
    ///
    /// When memory is out. [`try_zeroed`](Buffer::try_zeroed) reports it as an error.
    pub fn zeroed(byte_len: usize) -> Buffer {
        Buffer::try_zeroed(byte_len).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Zeroed bytes as by [`zeroed`](Buffer::zeroed), but no panic.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] when memory is out.
    pub fn try_zeroed(byte_len: usize) -> Result<Buffer, OutOfMemory> {
        let align = if byte_len < MAX_ALIGN { LINE_ALIGN } else { MAX_ALIGN };
        let allocation = Allocation::zeroed(byte_len, align)?;
        let start = allocation.start();
        Ok(Buffer { start, byte_len, keeper: Arc::new(Keeper(allocation)) })
    }

    /// An aligned copy of `bytes`.
    ///
    /// # Panics
    ///
    /// When memory is out.
    pub fn copied_from(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.as_bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// The bytes of a `Vec`, not copied: the `Vec` is kept and comes back by [`into_vec`](Buffer::into_vec).
    pub fn from_vec<T: Pod + Send + 'static>(mut elements: Vec<T>) -> Buffer {
        let byte_len = size_of_val(elements.as_slice());
        let start = NonNull::from(elements.as_mut_slice()).cast();
        Buffer { start, byte_len, keeper: Arc::new(Keeper(elements)) }
    }

    /// Foreign memory, kept alive by `keeper`, which is dropped with the last piece, on the thread that drops it.
    ///
    /// # Safety
    ///
    /// Until `keeper` is dropped, the `byte_len` bytes from `start` on must lie in one allocation, be initialised, be
    /// valid for reads and writes from any thread, and be touched by nobody but the buffer. `byte_len` must be at most
    /// `isize::MAX`.
    pub unsafe fn foreign(start: NonNull<u8>, byte_len: usize, keeper: impl Send + 'static) -> Buffer {
        Buffer { start, byte_len, keeper: Arc::new(Keeper(keeper)) }
    }

    /// The `Vec` this buffer was made from, not copied.
    ///
    /// # Errors
    ///
    /// Gives the buffer back when it did not come from a `Vec<T>` of exactly this `T`, or when it is only a piece of it
    /// or other pieces still live.
    pub fn into_vec<T: Pod + Send + 'static>(self) -> Result<Vec<T>, Buffer> {
        let Buffer { start, byte_len, keeper } = self;
        let keeper = match keeper.downcast::<Keeper<Vec<T>>>() {
            Ok(keeper) => keeper,
            Err(keeper) => {
                return Err(Buffer { start, byte_len, keeper });
            }
        };
        match Arc::try_unwrap(keeper) {
            // Pieces never reach outside the `Vec`, so the whole is the piece of its length.
            Ok(Keeper(elements)) if elements.len() * size_of::<T>() == byte_len => Ok(elements),
            Ok(piece) => Err(Buffer { start, byte_len, keeper: Arc::new(piece) }),
            Err(shared) => Err(Buffer { start, byte_len, keeper: shared }),
        }
    }

    /// The number of bytes.
    pub fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.byte_len == 0
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the range is initialised memory that the keeper holds, and only this piece touches it; `&self` keeps
        // writers away.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.byte_len) }
    }

    /// The bytes, to write.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is initialised memory that the keeper holds, and only this piece touches it; `&mut self`
        // keeps everybody else away.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.byte_len) }
    }

    /// The bytes seen as elements.
    ///
    /// # Errors
    ///
    /// When the bytes are not aligned for `T`, or not a whole number of them.
    pub fn as_slice<T: Pod>(&self) -> Result<&[T], CastError> {
        // Wherever it begins: no element has to lie there.
        if self.is_empty() {
            return Ok(&[]);
        }
        bytemuck::try_cast_slice(self.as_bytes()).map_err(|reason| CastError::of::<T>(self.byte_len, reason))
    }

    /// The bytes seen as elements, to write.
    ///
    /// # Errors
    ///
    /// When the bytes are not aligned for `T`, or not a whole number of them.
    pub fn as_mut_slice<T: Pod>(&mut self) -> Result<&mut [T], CastError> {
        if self.is_empty() {
            return Ok(&mut []);
        }
        let byte_len = self.byte_len;
        bytemuck::try_cast_slice_mut(self.as_bytes_mut()).map_err(|reason| CastError::of::<T>(byte_len, reason))
    }

    /// Two pieces that part before byte `at`, without copying.
    ///
    /// # Errors
    ///
    /// When `at` is past the end; the error holds the buffer.
    pub fn split_at(self, at: usize) -> Result<(Buffer, Buffer), SplitError> {
        if at > self.byte_len {
            return Err(SplitError { asked: at, buffer: self });
        }
        Ok(self.parted(at))
    }

    /// One buffer of two adjacent pieces of the same whole, this one first, without copying.
    ///
    /// # Errors
    ///
    /// Gives both back when they are of different wholes or not adjacent in this order.
    pub fn join(self, next: Buffer) -> Result<Buffer, (Buffer, Buffer)> {
        let adjacent = self.end() == next.start && Arc::ptr_eq(&self.keeper, &next.keeper);
        if !adjacent {
            return Err((self, next));
        }
        Ok(Buffer { byte_len: self.byte_len + next.byte_len, ..self })
    }

    /// Parts the buffer before byte `at`, which is not past the end.
    fn parted(self, at: usize) -> (Buffer, Buffer) {
        assert!(at <= self.byte_len);
        // SAFETY: `at` is within the range, which lies in one allocation.
        let middle = unsafe { self.start.add(at) };
        let rest = Buffer { start: middle, byte_len: self.byte_len - at, keeper: Arc::clone(&self.keeper) };
        (Buffer { byte_len: at, ..self }, rest)
    }

    fn end(&self) -> NonNull<u8> {
        // SAFETY: one past the last byte of a range that lies in one allocation.
        unsafe { self.start.add(self.byte_len) }
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::zeroed(0)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("byte_len", &self.byte_len).finish_non_exhaustive()
    }
}

// SAFETY: a piece is the only one to touch its bytes, so they move with it; the keeper is `Send` and `Sync` by itself.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference to a buffer only gives shared references to plain bytes.
unsafe impl Sync for Buffer {}

/// What holds the memory of a buffer, untouched until the last piece is gone.
struct Keeper<K>(K);

// SAFETY: nothing reaches the kept value through a shared reference: it is dropped or taken out by its last owner alone.
unsafe impl<K: Send> Sync for Keeper<K> {}

const LINE_ALIGN: usize = 64;
