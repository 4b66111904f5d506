//! Which cores this process may use, and how ranks share them.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores this process may use, neighbours next to each other; none where the kernel does not say.
pub(crate) fn usable() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let mut cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    cores.sort_by_cached_key(|&core| (physical(core), core));
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

/// A core for each rank, all threads of its hardware with it; a thread of the hardware for each where there are fewer cores
/// than ranks; nothing where there are fewer of these too.
pub(crate) fn one_each(cores: &[usize], ranks: usize) -> Vec<Vec<usize>> {
    let whole = |&a: &usize, &b: &usize| physical(a) == physical(b);
    let each: Vec<Vec<usize>> = match cores.chunk_by(whole).count() >= ranks {
        true => cores.chunk_by(whole).map(<[usize]>::to_vec).collect(),
        false => cores.iter().map(|&core| vec![core]).collect(),
    };
    if each.len() < ranks { vec![] } else { each.into_iter().take(ranks).collect() }
}

/// Keeps this process on `cores`.
pub(crate) fn pin(cores: &[usize]) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|&&core| core < CpuSet::MAX_CPU).for_each(|&core| set.set(core));
    sched_setaffinity(None, &set)
}

/// The package and core of a thread of the hardware.
fn physical(core: usize) -> (i64, i64) {
    (place(core, "physical_package_id"), place(core, "core_id"))
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
    fn ranks_have_cores_of_their_own_or_none_at_all() {
        let cores = usable();
        for ranks in 1..=cores.len() {
            let each = one_each(&cores, ranks);
            assert_eq!(each.len(), ranks);
            let mut all = each.concat();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), each.concat().len(), "{each:?}");
        }
        assert!(one_each(&cores, cores.len() + 1).is_empty());
    }

    #[test]
    fn more_ranks_than_cores_share_them() {
        assert_eq!((0..5).map(|rank| share(&[3, 4], rank, 5)).collect::<Vec<_>>().concat(), [3, 4, 3, 4, 3]);
        assert!(share(&[], 0, 2).is_empty());
    }
}
