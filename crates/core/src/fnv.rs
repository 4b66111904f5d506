//! FNV-1a: tells mistakes apart, not adversaries, and is the same on every machine and in every version.

/// The hash of some bytes.
///
/// ```
/// # use phalanx_core::fnv;
/// assert_eq!(fnv::hash64(*b"foobar"), 0x8594_4171_f739_67e8);
/// assert_eq!(fnv::hash32(*b"foobar"), 0xbf9c_f968);
/// ```
pub fn hash64(bytes: impl IntoIterator<Item = u8>) -> u64 {
    hash64_from(0xcbf2_9ce4_8422_2325, bytes)
}

/// The same from another start, for whoever needs two numbers.
pub fn hash64_from(start: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A short hash of some bytes.
pub fn hash32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
