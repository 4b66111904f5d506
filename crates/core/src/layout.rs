//! Who is where: this rank, the world and the host of every rank. Numbers only; addresses belong to the backends.

use std::sync::Arc;

use crate::{Error, Result};

/// The place of one rank in its group: its number, the size, and who shares a host with whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    rank: usize,
    hosts: Arc<[u32]>,
}

impl Layout {
    /// A group whose ranks all live on one host.
    pub fn one_host(rank: usize, size: usize) -> Result<Layout> {
        // Before there is a list of that length.
        check(size)?;
        Layout::new(rank, vec![0; size])
    }

    /// A group in which rank `i` lives on host `hosts[i]`.
    pub fn new(rank: usize, hosts: Vec<u32>) -> Result<Layout> {
        check(hosts.len())?;
        if rank >= hosts.len() {
            return Err(Error::setup("rank", format!("{rank} is not below the group size {}", hosts.len())));
        }
        Ok(Layout { rank, hosts: hosts.into() })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks the group has.
    pub fn size(&self) -> usize {
        self.hosts.len()
    }

    /// The host of every rank.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// The ranks that share a host with `rank`, in order, `rank` included.
    pub fn host_mates(&self, rank: usize) -> Vec<usize> {
        (0..self.size()).filter(|&other| self.hosts[other] == self.hosts[rank]).collect()
    }

    /// The first rank of every host, in order.
    pub fn leaders(&self) -> Vec<usize> {
        (0..self.size()).filter(|&rank| self.hosts[..rank].iter().all(|&host| host != self.hosts[rank])).collect()
    }

    /// Whether all ranks share one host.
    pub fn is_one_host(&self) -> bool {
        self.hosts.iter().all(|&host| host == self.hosts[0])
    }

    /// The same group seen from another rank.
    pub fn seen_from(&self, rank: usize) -> Layout {
        debug_assert!(rank < self.size());
        Layout { rank, hosts: self.hosts.clone() }
    }
}

fn check(size: usize) -> Result<()> {
    match size {
        0..=MAX_SIZE => Ok(()),
        _ => Err(Error::setup("group size", format!("{size} is above the limit of {MAX_SIZE}"))),
    }
}

/// Ranks travel in headers as 32-bit numbers, and one group of a million ranks is beyond any machine this is built for.
const MAX_SIZE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_grouped_by_name_not_by_neighbourhood() {
        let layout = Layout::new(2, vec![7, 9, 7, 9, 1]).unwrap();
        assert_eq!(layout.host_mates(2), [0, 2]);
        assert_eq!(layout.leaders(), [0, 1, 4]);
        assert!(!layout.is_one_host());
        assert!(Layout::one_host(0, 3).unwrap().is_one_host());
    }

    #[test]
    fn a_rank_outside_its_group_is_refused() {
        let error = Layout::one_host(4, 4).unwrap_err();
        assert_eq!(error.to_string(), "rank: 4 is not below the group size 4");
        assert!(Layout::one_host(0, 0).is_err());
    }

    #[test]
    fn a_size_beyond_any_machine_is_refused_before_it_takes_memory() {
        for size in [MAX_SIZE + 1, 1_000_000_000_000, usize::MAX] {
            let error = Layout::one_host(0, size).unwrap_err();
            assert_eq!(error.to_string(), format!("group size: {size} is above the limit of 1048576"));
        }
        assert_eq!(Layout::one_host(0, MAX_SIZE).unwrap().size(), MAX_SIZE);
    }
}
