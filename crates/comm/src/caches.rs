//! How much this processor's caches hold, and from where on it is better to write past them. By measurement: see docs/tuning.md.

use std::fs;
use std::sync::OnceLock;

use phalanx_core::player::PastCaches;

/// From where on each of so many ranks of a host writes an operation's result past the caches.
pub(crate) fn past_caches(ranks: usize) -> PastCaches {
    last().map_or(PastCaches { own: UNKNOWN, beside: UNKNOWN, broadcast: UNKNOWN }, |last| share(last, ranks))
}

/// From how many bytes on a message is received past the caches: where it and what it was sent from are as long as the last one.
pub(crate) fn past_by_message() -> usize {
    last().map_or(UNKNOWN, |last| (last / 2).max(LEAST))
}

/// Where a result is beside what is given, all ranks together read and write one long buffer each and what would fill one more: they are to
/// be more than half of the last cache, the half that a shared machine leaves. What a rank copies from its own memory, and no peer from it,
/// leaves the others' room alone from the fewest bytes on. What a broadcast brings the next one may read there: it is to be longer than the cache,
/// which may be one rank's alone, and that of all ranks twice as long.
fn share(last: usize, ranks: usize) -> PastCaches {
    let beside = (last / 2 / (ranks + 1)).clamp(LEAST, MOST_BESIDE);
    let broadcast = (last / ranks).saturating_mul(2).max(last).clamp(beside, MOST_BROADCAST);
    PastCaches { own: LEAST, beside, broadcast }
}

fn last() -> Option<usize> {
    static LAST: OnceLock<Option<usize>> = OnceLock::new();
    *LAST.get_or_init(read)
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

/// Whatever a virtual machine says of its processor: the last cache of dozens of cores may be told to it as that of its two.
const LEAST: usize = 4 << 20;
const MOST_BESIDE: usize = 24 << 20;
const MOST_BROADCAST: usize = 64 << 20;
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
        let shares = [(288 << 20, 2), (32 << 20, 2), (32 << 20, 8), (0, 2), (usize::MAX, 1)]
            .map(|(last, ranks)| share(last, ranks));
        let beside = [MOST_BESIDE, (16 << 20) / 3, LEAST, LEAST, MOST_BESIDE];
        assert_eq!(shares.map(|past| past.beside), beside);
        assert_eq!(shares.map(|past| past.broadcast), [MOST_BROADCAST, 32 << 20, 32 << 20, LEAST, MOST_BROADCAST]);
        assert!((LEAST..=MOST_BESIDE).contains(&past_caches(2).beside) && past_by_message() >= LEAST);
    }
}
