//! What is on its way to one client: small answers gathered, large values shared. Whether it is sealed is not its business.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use phalanx_core::store::Value;
use phalanx_core::store::wire::Sink;

/// Bytes in the order in which they are to be written.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    chunks: VecDeque<Chunk>,
    /// How much of the first chunk has gone.
    gone: usize,
    byte_len: usize,
    own_byte_len: usize,
}

#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Value),
}

impl Outbox {
    /// How many bytes have not gone yet.
    pub(super) fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// What is held for this client alone, in bytes: values are shared with the store, or with others to whom they go.
    pub(super) fn own_byte_len(&self) -> usize {
        self.own_byte_len
    }

    /// The values on their way.
    pub(super) fn shared(&self) -> impl Iterator<Item = &Value> {
        self.chunks.iter().filter_map(|chunk| if let Chunk::Shared(value) = chunk { Some(value) } else { None })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.byte_len == 0
    }

    /// Writes what `to` takes, in one call; how much that was.
    pub(super) fn write_to(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(self.slices()) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        // The system takes one piece with less ado than a list of one.
        let written = match &slices[..count] {
            [only] => to.write(only)?,
            many => to.write_vectored(many)?,
        };
        self.skip(written);
        Ok(written)
    }

    /// Moves the next bytes, at most `most`, to the end of `into`.
    pub(super) fn take(&mut self, most: usize, into: &mut Vec<u8>) {
        let before = into.len();
        for bytes in self.slices() {
            let room = most - (into.len() - before);
            into.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if bytes.len() >= room {
                break;
            }
        }
        self.skip(into.len() - before);
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(self.gone).chain(std::iter::repeat(0));
        self.chunks.iter().zip(starts).map(|(chunk, start)| &chunk.bytes()[start..])
    }

    /// Drops the first `len` bytes, and the memory of chunks that are done with.
    fn skip(&mut self, len: usize) {
        self.byte_len -= len;
        self.gone += len;
        while let Some(first) = self.chunks.front()
            && self.gone >= first.bytes().len()
        {
            self.gone -= first.bytes().len();
            self.own_byte_len -= first.own_byte_len();
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }
}

/// Encoders write into it.
impl Sink for Outbox {
    fn put(&mut self, bytes: &[u8]) {
        self.byte_len += bytes.len();
        self.own_byte_len += bytes.len();
        match self.chunks.back_mut() {
            Some(Chunk::Own(last)) if last.len() + bytes.len() <= GATHERED => last.extend_from_slice(bytes),
            _ if bytes.is_empty() => {}
            _ => self.chunks.push_back(Chunk::Own(bytes.to_vec())),
        }
    }

    /// Without a copy where that is cheaper: one value may be on its way to thousands.
    fn put_value(&mut self, value: &Value) {
        if value.len() < SHARED {
            return self.put(value);
        }
        self.byte_len += value.len();
        self.chunks.push_back(Chunk::Shared(value.clone()));
    }
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Own(bytes) => bytes,
            Chunk::Shared(value) => value,
        }
    }

    fn own_byte_len(&self) -> usize {
        if let Chunk::Own(bytes) = self { bytes.len() } else { 0 }
    }
}

/// Small answers are gathered in chunks of up to this many bytes.
const GATHERED: usize = 16 << 10;
/// Values from this many bytes on are shared; below, a copy costs less than another slice to write.
const SHARED: usize = 1 << 10;
/// The most slices written by one call.
const SLICES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at most so many bytes a call.
    struct Slow(Vec<u8>, usize);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn filled() -> (Outbox, Vec<u8>) {
        let mut outbox = Outbox::default();
        let mut plain = Vec::new();
        for size in [0, 1, 5, SHARED - 1, SHARED, 3 * SHARED, GATHERED, GATHERED + 1, 2] {
            let bytes: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
            outbox.put(&bytes);
            outbox.put_value(&Value::from(bytes.clone()));
            plain.extend_from_slice(&bytes);
            plain.extend_from_slice(&bytes);
        }
        (outbox, plain)
    }

    #[test]
    fn bytes_leave_in_order_however_few_are_taken_at_once() {
        for step in [1, 7, 1000, 1 << 20] {
            let (mut outbox, plain) = filled();
            let mut slow = Slow(Vec::new(), step);
            while !outbox.is_empty() {
                outbox.write_to(&mut slow).unwrap();
                assert_eq!(outbox.byte_len() + slow.0.len(), plain.len());
            }
            assert!(slow.0 == plain && outbox.chunks.is_empty() && outbox.own_byte_len() == 0, "step {step}");
        }
    }

    #[test]
    fn pieces_are_never_longer_than_asked() {
        for most in [1, 100, 16 << 10] {
            let (mut outbox, plain) = filled();
            let mut taken = Vec::new();
            while !outbox.is_empty() {
                let before = taken.len();
                outbox.take(most, &mut taken);
                assert!(taken.len() - before <= most && taken.len() > before);
            }
            assert!(taken == plain, "most {most}");
        }
    }

    #[test]
    fn a_large_value_is_not_copied() {
        let value = Value::from(vec![1; SHARED]);
        let mut outbox = Outbox::default();
        outbox.put_value(&value);
        assert_eq!((outbox.byte_len(), outbox.own_byte_len()), (SHARED, 0));
        assert_eq!(outbox.shared().collect::<Vec<_>>(), [&value]);
        assert!(std::ptr::eq(outbox.slices().next().unwrap(), &*value as &[u8]));
    }
}
