//! How long the slots of a host's windows and the rings of its links are, and in which pieces what is long goes through them. By
//! measurement: see docs/tuning.md.
//!
//! All ranks of a host find the same, because they are on one processor.

use phalanx_core::Fingerprint;
use phalanx_core::schedule::Pieces;
use phalanx_mem::board::Slots;

/// The bytes of elements that a slot has room for among so many ranks of one host.
pub(crate) fn byte_len(ranks: usize) -> usize {
    if ranks <= FEW { LONG } else { SHORT }
}

/// The slots of offers: what is published, behind its fingerprint.
pub(crate) fn of_offers(ranks: usize) -> Slots {
    Slots { byte_len: byte_len(ranks) + Fingerprint::BYTE_LEN, are_in_turn: leaves_own_caches(ranks) }
}

/// The most room for what is under way on a link among so many ranks: several of the pieces that it moves, and either small enough for the
/// second-level cache or too large for it.
pub(crate) fn ring_byte_len(ranks: usize) -> usize {
    if leaves_own_caches(ranks) { 2 << 20 } else { 256 << 10 }
}

/// In which pieces ranks fold what is longer than one.
pub(crate) fn pieces() -> Pieces {
    if reads_from_last_cache() { Pieces { most: 2, shortest: 128 << 10, longest: LONG } } else { Pieces::default() }
}

/// Whether what so many ranks hand each other is to leave their cores' own caches before it is written again. Four ranks on two cores gain
/// by it up to 64 KiB, and lose as much by what is longer.
fn leaves_own_caches(ranks: usize) -> bool {
    ranks <= 2 && reads_from_last_cache()
}

/// Whether a core's lines come faster from the last cache, which takes what other cores put out of theirs, than from theirs.
fn reads_from_last_cache() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::sync::OnceLock;

        static VENDOR: OnceLock<bool> = OnceLock::new();
        let is_zen = || {
            let vendor = raw_cpuid::CpuId::new().get_vendor_info();
            vendor.is_some_and(|vendor| ["AuthenticAMD", "HygonGenuine"].contains(&vendor.as_str()))
        };
        *VENDOR.get_or_init(is_zen)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// A slot of whatever host. What is published is still in the second-level cache when the peers read it. A little more than a power of
/// two: a plan leaves some bytes for each rank's rounding, and cuts what is a power of two into as many whole lines all the same.
pub(crate) const SHORT: usize = 129 << 10;
/// What is only copied needs fewer agreements in longer ones.
const LONG: usize = 257 << 10;
/// Among more ranks the slots of all would fill a last cache that they share with the data.
const FEW: usize = 4;
/// What tells an offer apart lies on the line that says that it is there, and the elements begin with the next.
const _: () = assert!(Fingerprint::BYTE_LEN == phalanx_mem::board::HEAD);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_as_long_everywhere_as_plans_for_several_hosts_expect() {
        assert!((1..=64).all(|ranks| byte_len(ranks) >= SHORT));
        assert_eq!([2, 4, 5, 64].map(byte_len), [LONG, LONG, SHORT, SHORT]);
        assert!(pieces().shortest <= SHORT);
    }
}
