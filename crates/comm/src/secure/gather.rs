//! Collecting a message of known length from a stream cut anywhere. It holds as many bytes as it asks for, and no more.

/// The bytes of one message so far.
#[derive(Debug)]
pub(crate) struct Gather {
    bytes: Vec<u8>,
    needed: usize,
}

impl Gather {
    /// Asks for `needed` bytes.
    pub(crate) fn new(needed: usize) -> Gather {
        Gather { bytes: Vec::with_capacity(needed), needed }
    }

    /// Asks for `needed` bytes in all, of which some may be here.
    pub(crate) fn extend(&mut self, needed: usize) {
        self.needed = needed;
    }

    /// Takes what is needed from the front of `bytes`, and says how much that was.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.needed.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Whether all bytes asked for are here.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= self.needed
    }

    /// What is here.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
