//! Groups of floats, converted and made canonical by instructions that the compiler does not find by itself.
//!
//! The order of the accumulators within a group is the group's own business: whatever it widens it also narrows.

use bytemuck::Pod;

use super::isa::Isa;

/// Elements, and accumulators, of a group.
pub(super) const LANES: usize = 32;

/// A machine that converts a group at a time.
pub(super) trait Group<W>: Copy {
    /// The bytes of a group.
    type Bytes: Pod;

    /// The group of `isa`, if it has one.
    fn on(isa: Isa) -> Option<Self>;

    /// The elements as accumulators, exactly.
    fn widen(self, bytes: &Self::Bytes) -> [W; LANES];

    /// The accumulators as elements: rounded once, NaNs canonical.
    fn narrow(self, wide: [W; LANES]) -> Self::Bytes;
}

/// The group of lanes that have none.
#[derive(Clone, Copy)]
pub(super) enum NoGroup {}

impl<W> Group<W> for NoGroup {
    type Bytes = u8;

    #[inline(always)]
    fn on(_isa: Isa) -> Option<NoGroup> {
        None
    }

    fn widen(self, _bytes: &u8) -> [W; LANES] {
        match self {}
    }

    fn narrow(self, _wide: [W; LANES]) -> u8 {
        match self {}
    }
}

/// Groups of two instruction sets, of which a machine has one. Which, the compiler knows: a kernel is compiled for each.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) enum Either<A, B> {
    A(A),
    B(B),
}

#[cfg(target_arch = "x86_64")]
impl<W, A: Group<W>, B: Group<W, Bytes = A::Bytes>> Group<W> for Either<A, B> {
    type Bytes = A::Bytes;

    #[inline(always)]
    fn on(isa: Isa) -> Option<Either<A, B>> {
        match A::on(isa) {
            Some(group) => Some(Either::A(group)),
            None => B::on(isa).map(Either::B),
        }
    }

    #[inline(always)]
    fn widen(self, bytes: &A::Bytes) -> [W; LANES] {
        match self {
            Either::A(group) => group.widen(bytes),
            Either::B(group) => group.widen(bytes),
        }
    }

    #[inline(always)]
    fn narrow(self, wide: [W; LANES]) -> A::Bytes {
        match self {
            Either::A(group) => group.narrow(wide),
            Either::B(group) => group.narrow(wide),
        }
    }
}
