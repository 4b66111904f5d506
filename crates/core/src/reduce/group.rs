//! Groups of 16-bit floats, converted by instructions that the compiler does not find by itself.
//!
//! The order of the accumulators within a group is the group's own business: whatever it widens it also narrows.

use super::isa::Isa;

/// Bytes of a group.
pub(super) const BYTES: usize = 64;
/// Elements, and accumulators, of a group.
pub(super) const LANES: usize = BYTES / size_of::<u16>();

/// A machine that converts a group at a time.
pub(super) trait Group<W>: Copy {
    /// The group of `isa`, if it has one.
    fn on(isa: Isa) -> Option<Self>;

    /// The elements as accumulators, exactly.
    fn widen(self, bytes: &[u8; BYTES]) -> [W; LANES];

    /// The accumulators as elements: rounded once, NaNs canonical.
    fn narrow(self, wide: [W; LANES]) -> [u8; BYTES];
}

/// The group of lanes that have none.
#[derive(Clone, Copy)]
pub(super) enum NoGroup {}

impl<W> Group<W> for NoGroup {
    #[inline(always)]
    fn on(_isa: Isa) -> Option<NoGroup> {
        None
    }

    fn widen(self, _bytes: &[u8; BYTES]) -> [W; LANES] {
        match self {}
    }

    fn narrow(self, _wide: [W; LANES]) -> [u8; BYTES] {
        match self {}
    }
}
