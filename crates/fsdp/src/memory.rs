//! How many bytes a sharded model holds, by what they are for. Only counts: the buffers are the arena's.

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// This rank's parts of the parameters.
    Sharded,
    /// Full parameters.
    Gathered,
    /// This rank's parts of units in the smaller group.
    Narrow,
    /// Gradients of the shards.
    Gradients,
    /// Gradients that are being reduced.
    Reducing,
    /// Gradients that wait on this rank to be reduced: full ones, and parts that replicas have not joined.
    Accumulated,
}

/// Bytes of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// In use now.
    pub current: usize,
    /// The most that ever were.
    pub peak: usize,
    /// Kept to be used again. With those in use they are never more than the peak.
    pub idle: usize,
}

/// Bytes that the engine holds on this rank. What an adapter copies out is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    classes: [Bytes; Class::ALL.len()],
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 6] = {
        use Class::{Accumulated, Gathered, Gradients, Narrow, Reducing, Sharded};
        [Sharded, Gathered, Narrow, Gradients, Reducing, Accumulated]
    };
}

impl Memory {
    /// The bytes of one class.
    pub fn of(&self, class: Class) -> Bytes {
        self.classes[class as usize]
    }

    /// All that is held now.
    pub fn total(&self) -> usize {
        self.classes.iter().map(|bytes| bytes.current + bytes.idle).sum()
    }

    /// Notes a buffer that is in use from here on.
    pub(crate) fn count(&mut self, class: Class, byte_len: usize) {
        let bytes = self.class_mut(class);
        bytes.current += byte_len;
        bytes.peak = bytes.peak.max(bytes.current);
    }

    /// Notes that a buffer is not in use any more.
    pub(crate) fn forget(&mut self, class: Class, byte_len: usize) {
        self.class_mut(class).current -= byte_len;
    }

    /// Notes a buffer that is kept for the next.
    pub(crate) fn keep(&mut self, class: Class, byte_len: usize) {
        self.class_mut(class).idle += byte_len;
    }

    /// Notes that a buffer is not kept any more.
    pub(crate) fn wake(&mut self, class: Class, byte_len: usize) {
        self.class_mut(class).idle -= byte_len;
    }

    fn class_mut(&mut self, class: Class) -> &mut Bytes {
        &mut self.classes[class as usize]
    }
}
