//! How much a store takes from its clients before it refuses.

/// The most that keys, values, clients and the whole store may be. Numbers are bytes unless they say otherwise.
///
/// A store holds at most [`total`](Limits::total) in keys and values; each kept entry counts its key, its value and 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Limits {
    pub(crate) key: usize,
    pub(crate) value: usize,
    pub(crate) keys: usize,
    pub(crate) message: usize,
    pub(crate) client: usize,
    pub(crate) total: usize,
}

impl Limits {
    /// The longest key. 8 KiB unless set, as PyTorch's server has it.
    pub fn key(mut self, bytes: usize) -> Limits {
        self.key = bytes;
        self
    }

    /// The longest value. 8 MiB unless set, as PyTorch's server has it.
    pub fn value(mut self, bytes: usize) -> Limits {
        self.value = bytes;
        self
    }

    /// The most keys in one request. 131,072 unless set, as PyTorch's server has it.
    pub fn keys(mut self, count: usize) -> Limits {
        self.keys = count;
        self
    }

    /// The longest request, and the longest answer to one. 64 MiB unless set.
    pub fn message(mut self, bytes: usize) -> Limits {
        self.message = bytes;
        self
    }

    /// The same for a client that may hold, and ask for at once, whatever the whole store may.
    pub fn unshared(self) -> Limits {
        Limits { client: usize::MAX, message: self.message.max(self.total), ..self }
    }

    /// The most that entries written by one client may take. 64 MiB unless set. Clients that speak PyTorch's words, whose own
    /// store knows no such share, are bounded by the total alone, and so are their messages.
    pub fn client(mut self, bytes: usize) -> Limits {
        self.client = bytes;
        self
    }

    /// The most that all entries together may take. 256 MiB unless set.
    pub fn total(mut self, bytes: usize) -> Limits {
        self.total = bytes;
        self
    }

    /// The longest key.
    pub fn key_byte_len(&self) -> usize {
        self.key
    }

    /// The longest value.
    pub fn value_byte_len(&self) -> usize {
        self.value
    }

    /// The most keys in one request.
    pub fn key_count(&self) -> usize {
        self.keys
    }

    /// The longest request, and the longest answer.
    pub fn message_byte_len(&self) -> usize {
        self.message
    }

    /// The most that entries written by one client may take.
    pub fn client_byte_len(&self) -> usize {
        self.client
    }

    /// The most that all entries together may take.
    pub fn total_byte_len(&self) -> usize {
        self.total
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { key: 8 << 10, value: 8 << 20, keys: 1 << 17, message: 64 << 20, client: 64 << 20, total: 256 << 20 }
    }
}
