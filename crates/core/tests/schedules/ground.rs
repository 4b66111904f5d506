//! The ground that schedules are played on: worlds, sizes, segments, roots, counts and spreads over hosts.

use phalanx_core::Counts;
use phalanx_core::schedule::Algorithm;

pub(crate) const WORLDS: std::ops::RangeInclusive<usize> = 1..=17;
pub(crate) const SIZES: [usize; 6] = [0, 1, 2, 7, 1000, 65537];
pub(crate) const SEGMENTS: [usize; 3] = [1, 3, 8];

/// Roots at the beginning, in the middle and at the end.
pub(crate) fn roots(world: usize) -> impl Iterator<Item = usize> {
    let mut roots = vec![0, world / 2, world - 1];
    roots.dedup();
    roots.into_iter()
}

/// Even counts and uneven ones, some of them zero. The largest size is that of the whole, so that the suite stays quick.
pub(crate) fn both(size: usize, world: usize) -> [Counts; 2] {
    let count = if size > 1000 { size / world } else { size };
    let uneven: Vec<usize> = (0..world).map(|rank| [count, 0, count / 2 + 1][rank % 3]).collect();
    [Counts::Even(count), Counts::uneven(&uneven)]
}

/// Ways to spread a world over hosts, for the algorithm that looks: one host, two of equal size as far as that goes,
/// blocks of three, and scattered.
pub(crate) fn spread(world: usize, algorithm: Algorithm) -> Vec<Vec<u32>> {
    let one = vec![0; world];
    if algorithm != Algorithm::TwoLevel {
        return vec![one];
    }
    let ranks = 0..world as u32;
    let halves = ranks.clone().map(|rank| rank / (world as u32).div_ceil(2)).collect();
    let blocks = ranks.clone().map(|rank| rank / 3).collect();
    vec![one, halves, blocks, ranks.map(|rank| rank % 3).collect()]
}
