//! How much of a pickle is kept at most, and of what is made of it.

/// The bounds of a reader. Memory stays below about a hundred bytes a value, whatever the pickle says.
#[derive(Clone, Debug)]
#[must_use]
pub struct Limits {
    pub(super) bytes: usize,
    pub(super) values: usize,
    pub(super) depth: usize,
    pub(super) memo: usize,
    pub(super) looks: usize,
    copies: usize,
}

impl Default for Limits {
    /// 256 MiB, 16 Mi values on 64 levels, 4 Mi of them used again, 256 Mi looks, 64 MiB of copies.
    fn default() -> Limits {
        Limits { bytes: 256 << 20, values: 16 << 20, depth: 64, memo: 4 << 20, looks: 256 << 20, copies: 64 << 20 }
    }
}

impl Limits {
    /// Bytes of the pickle.
    pub fn bytes(mut self, most: usize) -> Limits {
        self.bytes = most;
        self
    }

    /// Values in all, whether they end up in the result or not.
    pub fn values(mut self, most: usize) -> Limits {
        self.values = most;
        self
    }

    /// Levels of lists in lists.
    pub fn depth(mut self, most: usize) -> Limits {
        self.depth = most;
        self
    }

    /// Values that are remembered to be used again.
    pub fn memo(mut self, most: usize) -> Limits {
        self.memo = most;
        self
    }

    /// Values that are looked at when the result is used, where one that stands in many places counts in each.
    pub fn looks(mut self, most: usize) -> Limits {
        self.looks = most;
        self
    }

    /// Bytes of a dump that is made of the result, besides four for each byte of the pickle: what stands there once may be used
    /// in many places, and is copied to each.
    pub fn copies(mut self, most: usize) -> Limits {
        self.copies = most;
        self
    }

    /// How many bytes a dump may take that is made of a pickle of this length.
    pub(crate) fn most_copied(&self, byte_len: usize) -> usize {
        self.copies.saturating_add(byte_len.saturating_mul(COPIES_OF_A_BYTE))
    }
}

/// Where nothing is used twice a dump stays below: a rank in a list, which becomes eight bytes, has two there.
const COPIES_OF_A_BYTE: usize = 4;
