//! How long the slots of a host's windows are, and in which pieces what is long goes through them. By measurement: see
//! docs/performance.md.
//!
//! All ranks of a host find the same, because they are on one processor.

use phalanx_core::Fingerprint;
use phalanx_core::schedule::Pieces;

/// The bytes of elements that a slot has room for among so many ranks of one host.
pub(crate) fn byte_len(ranks: usize) -> usize {
    if ranks <= FEW && reads_from_last_cache() { LONG } else { SHORT }
}

/// The longest offer: what is published, behind its fingerprint.
pub(crate) fn offer_byte_len(ranks: usize) -> usize {
    byte_len(ranks) + Fingerprint::BYTE_LEN
}

/// In which pieces ranks fold what is longer than one.
pub(crate) fn pieces() -> Pieces {
    if reads_from_last_cache() { Pieces { most: 2, shortest: 128 << 10 } } else { Pieces::default() }
}

/// Whether what a core reads comes faster from the last cache, which takes what other cores put out of theirs, than from theirs: slots
/// in turn shall not lie in the second-level cache then.
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
        assert!(byte_len(64) == SHORT && [SHORT, LONG].contains(&byte_len(2)));
        assert!(pieces().shortest <= SHORT);
    }
}
