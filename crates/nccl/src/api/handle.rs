//! Handles and memory, as numbers that only this crate makes.
//!
//! Whoever implements the traits gives handles out and must know them again: one that it did not give out, or that is gone, is
//! answered with an error and never followed. A [`Span`] carries its bounds, so that safe code cannot reach past them.

use std::fmt;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u64);

        impl $name {
            /// The handle with this number, for whoever gives it out.
            pub(crate) const fn new(number: u64) -> $name {
                $name(number)
            }

            /// Its number.
            pub const fn number(self) -> u64 {
                self.0
            }
        }
    };
}

handle! {
    /// A communicator. Number 0 stands for none.
    Comm
}
handle! {
    /// A stream of a device.
    Stream
}
handle! {
    /// An event of a device.
    Event
}
handle! {
    /// Memory that a communicator knows beforehand.
    Registration
}
handle! {
    /// Memory that all ranks of a communicator registered together.
    Window
}

impl Comm {
    /// What a call that made no communicator gives in its place.
    pub const NONE: Comm = Comm(0);
}

/// A device's number in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(pub i32);

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{}", self.0)
    }
}

/// What ranks find each other by: 128 bytes that mean something to the library alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId(pub [u8; 128]);

impl fmt::Debug for UniqueId {
    /// Its bytes hold an address, which is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId")
    }
}

/// The version of the library, as in 2.28.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl Version {
    /// The oldest that groups work with.
    pub const OLDEST: Version = Version::new(2, 18, 0);

    /// A version by its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    /// From the library's own number: 22809 is 2.28.9. Up to 2.8 it was written with two digits less.
    pub const fn from_code(code: u32) -> Version {
        if code < 10_000 {
            return Version::new(code / 1000, code % 1000 / 100, code % 100);
        }
        Version::new(code / 10_000, code % 10_000 / 100, code % 100)
    }

    /// The library's own number.
    pub const fn code(self) -> u32 {
        if self.major < 2 || (self.major == 2 && self.minor <= 8) {
            return self.major * 1000 + self.minor * 100 + self.patch;
        }
        self.major * 10_000 + self.minor * 100 + self.patch
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Memory of a device, or pinned memory of the host: an address and so many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    address: u64,
    byte_len: usize,
}

impl Span {
    /// No memory.
    pub const EMPTY: Span = Span { address: 0, byte_len: 0 };

    /// Memory of this crate's making: an implementation of [`Cuda`](super::Cuda) made it, or somebody vouched for it.
    pub(crate) const fn new(address: u64, byte_len: usize) -> Span {
        Span { address, byte_len }
    }

    /// Its address.
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Its bytes.
    pub const fn byte_len(self) -> usize {
        self.byte_len
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.byte_len == 0
    }

    /// So many of its bytes from an offset on; none where it has not so many.
    pub fn part(self, offset: usize, byte_len: usize) -> Option<Span> {
        let end = offset.checked_add(byte_len)?;
        (end <= self.byte_len).then_some(Span { address: self.address + offset as u64, byte_len })
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{}", self.address, self.byte_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_both_forms() {
        for (code, text) in [(22_809, "2.28.9"), (23_203, "2.32.3"), (2_708, "2.7.8"), (21_805, "2.18.5")] {
            let version = Version::from_code(code);
            assert_eq!((version.to_string().as_str(), version.code()), (text, code));
        }
        assert!(Version::from_code(21_701) < Version::OLDEST && Version::OLDEST <= Version::from_code(21_801));
    }

    #[test]
    fn a_part_stays_within() {
        let span = Span::new(0x1000, 16);
        assert_eq!(span.part(4, 12), Some(Span::new(0x1004, 12)));
        assert_eq!(span.part(16, 0), Some(Span::new(0x1010, 0)));
        assert!(span.part(4, 13).is_none() && span.part(usize::MAX, 2).is_none());
    }
}
