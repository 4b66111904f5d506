//! How much this processor's caches hold, and from where on it is better to copy past them.

use std::fs;
use std::sync::OnceLock;

/// From how many bytes of output on each of so many ranks of a host copies past the caches in an operation that only moves: where what all of
/// them read and write is more than half of the last cache, the half that a shared machine leaves. By measurement: see docs/tuning.md.
pub(crate) fn past(ranks: usize) -> usize {
    static LAST: OnceLock<Option<usize>> = OnceLock::new();
    LAST.get_or_init(read).map_or(UNKNOWN, |last| share(last, ranks))
}

/// All outputs, and all inputs, which together are as long as one of them.
fn share(last: usize, ranks: usize) -> usize {
    (last / 2 / (ranks + 1)).clamp(LEAST, MOST)
}

/// The bytes of the last cache of the first processor, where the system tells.
fn read() -> Option<usize> {
    let sizes = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = sizes.filter_map(|cache| fs::read_to_string(cache.ok()?.path().join("size")).ok());
    sizes.filter_map(|size| parse(size.trim())).max()
}

/// As the kernel writes it: `32768K`.
fn parse(size: &str) -> Option<usize> {
    size.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

/// Whatever a virtual machine says of its processor.
const LEAST: usize = 4 << 20;
const MOST: usize = 64 << 20;
const UNKNOWN: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_as_the_kernel_writes_it() {
        assert_eq!((parse("32768K"), parse("48K")), (Some(32 << 20), Some(48 << 10)));
        assert_eq!([parse("32768"), parse("K"), parse("-1K"), parse("99999999999999999999K")], [None; 4]);
    }

    #[test]
    fn what_is_left_to_a_rank_is_neither_nothing_nor_everything() {
        let shares = [(96 << 20, 2), (32 << 20, 2), (32 << 20, 8), (0, 2), (usize::MAX, 1)];
        let expected = [16 << 20, (16 << 20) / 3, LEAST, LEAST, MOST];
        assert_eq!(shares.map(|(last, ranks)| share(last, ranks)), expected);
        assert!((LEAST..=MOST).contains(&past(2)));
    }
}
