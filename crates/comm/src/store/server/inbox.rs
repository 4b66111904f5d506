//! What came from one client and is not read yet. Idle connections hold no memory here.

/// Bytes in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// How many at the front were read.
    read: usize,
}

impl Inbox {
    /// What is not read yet.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read == self.bytes.len()
    }

    /// Where more is to be added.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        // Read bytes are moved over at most once: only when they are at least as many as those that move.
        if self.read >= self.bytes.len() - self.read {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        &mut self.bytes
    }

    /// Notes that the next `len` bytes were read.
    pub(super) fn skip(&mut self, len: usize) {
        self.read += len;
        if self.is_empty() {
            self.bytes.clear();
            self.read = 0;
            if self.bytes.capacity() > KEPT {
                self.bytes = Vec::new();
            }
        }
    }
}

/// What an idle connection may keep.
const KEPT: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_order_and_their_memory_is_given_back() {
        let mut inbox = Inbox::default();
        let mut next_in = 0_u8;
        let mut next_out = 0_u8;
        for step in 1..400_usize {
            for _ in 0..step % 97 {
                inbox.end().push(next_in);
                next_in = next_in.wrapping_add(1);
            }
            let take = inbox.unread().len() * (step % 3) / 2;
            for &byte in &inbox.unread()[..take.min(inbox.unread().len())] {
                assert_eq!(byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            inbox.skip(take.min(inbox.unread().len()));
        }
        inbox.end().extend_from_slice(&[0; 1 << 20]);
        inbox.skip(inbox.unread().len());
        assert!(inbox.is_empty() && inbox.bytes.capacity() <= KEPT);
    }
}
