//! Which cores this process may use, and how ranks share them.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores this process may use, neighbours next to each other; none where the kernel does not say.
pub(crate) fn usable() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let mut cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    cores.sort_by_key(|&core| (place(core, "physical_package_id"), place(core, "core_id"), core));
    cores
}

/// The share of one of `ranks` ranks: as even as can be, and never none. More ranks than cores share them in turn.
pub(crate) fn share(cores: &[usize], rank: usize, ranks: usize) -> Vec<usize> {
    if cores.is_empty() {
        return vec![];
    }
    if ranks > cores.len() {
        return vec![cores[rank % cores.len()]];
    }
    cores[rank * cores.len() / ranks..(rank + 1) * cores.len() / ranks].to_vec()
}

/// Keeps this process on `cores`.
pub(crate) fn pin(cores: &[usize]) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|&&core| core < CpuSet::MAX_CPU).for_each(|&core| set.set(core));
    sched_setaffinity(None, &set)
}

/// A core's place in the machine; all the same where the kernel does not say.
fn place(core: usize, part: &str) -> i64 {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/{part}"));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_disjoint_and_complete() {
        let cores: Vec<usize> = (10..26).collect();
        for ranks in 1..=16 {
            let shares: Vec<Vec<usize>> = (0..ranks).map(|rank| share(&cores, rank, ranks)).collect();
            assert_eq!(shares.concat(), cores);
            let lens: Vec<usize> = shares.iter().map(Vec::len).collect();
            assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1, "{lens:?}");
        }
    }

    #[test]
    fn more_ranks_than_cores_share_them() {
        assert_eq!((0..5).map(|rank| share(&[3, 4], rank, 5)).collect::<Vec<_>>().concat(), [3, 4, 3, 4, 3]);
        assert!(share(&[], 0, 2).is_empty());
    }
}
