//! Where encoded bytes go: a buffer, or an outbox that keeps large values without copying them.

use crate::store::Value;

/// Takes the bytes of a message in their order.
pub trait Sink {
    /// Takes a copy of `bytes`.
    fn put(&mut self, bytes: &[u8]);

    /// Takes a value's bytes, by copy or, cheaper for a long one, by sharing it.
    fn put_value(&mut self, value: &Value) {
        self.put(value);
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Numbers, in the one byte order of the wire.
pub(super) trait Numbers: Sink {
    fn put_u8(&mut self, number: u8) {
        self.put(&[number]);
    }

    fn put_u32(&mut self, number: u32) {
        self.put(&number.to_le_bytes());
    }

    fn put_u64(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }

    fn put_i64(&mut self, number: i64) {
        self.put(&number.to_le_bytes());
    }
}

impl<S: Sink + ?Sized> Numbers for S {}

/// Only counts, to know a length before the bytes are written behind it.
#[derive(Debug, Default)]
pub(super) struct Length(pub(super) u64);

impl Sink for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
}
