//! Who is where: this rank, the world and the host of every rank. Numbers only; addresses belong to the backends.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Error, Result};

/// The place of one rank in its group: its number, the size, and who shares a host with whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    rank: usize,
    places: Arc<Places>,
}

/// Who is where, the same for all ranks.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Places {
    /// The host of every rank.
    hosts: Vec<u32>,
    /// The place of every rank's host among those below, which are in the order of their first ranks.
    numbers: Vec<usize>,
    /// The first rank of every host.
    leaders: Vec<usize>,
    /// The ranks of every host.
    mates: Vec<Vec<usize>>,
}

impl Layout {
    /// A group whose ranks all live on one host.
    ///
    /// # Errors
    ///
    /// [`Setup`](crate::ErrorKind::Setup) for a rank that is not below the size, and for more than 1,048,576 ranks.
    pub fn one_host(rank: usize, size: usize) -> Result<Layout> {
        // Before there is a list of that length.
        check(size)?;
        Layout::new(rank, vec![0; size])
    }

    /// A group in which rank `i` lives on host `hosts[i]`.
    ///
    /// # Errors
    ///
    /// [`Setup`](crate::ErrorKind::Setup) for a rank that is not below the size, and for more than 1,048,576 ranks.
    pub fn new(rank: usize, hosts: Vec<u32>) -> Result<Layout> {
        check(hosts.len())?;
        if rank >= hosts.len() {
            return Err(Error::setup("rank", format!("{rank} is not below the group size {}", hosts.len())));
        }
        Ok(Layout { rank, places: Arc::new(Places::of(hosts)) })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks the group has.
    pub fn size(&self) -> usize {
        self.places.hosts.len()
    }

    /// The host of every rank.
    pub fn hosts(&self) -> &[u32] {
        &self.places.hosts
    }

    /// The ranks that share a host with `rank`, in order, `rank` included.
    ///
    /// # Panics
    ///
    /// Where there is no such rank.
    pub fn host_mates(&self, rank: usize) -> &[usize] {
        &self.places.mates[self.places.numbers[rank]]
    }

    /// The first rank of every host, in order.
    pub fn leaders(&self) -> &[usize] {
        &self.places.leaders
    }

    /// Whether all ranks share one host.
    pub fn is_one_host(&self) -> bool {
        self.places.leaders.len() == 1
    }

    /// The same group seen from another rank.
    ///
    /// # Panics
    ///
    /// Where there is no such rank.
    pub fn seen_from(&self, rank: usize) -> Layout {
        assert!(rank < self.size(), "rank {rank} of {}", self.size());
        Layout { rank, places: Arc::clone(&self.places) }
    }
}

impl Places {
    fn of(hosts: Vec<u32>) -> Places {
        let (mut known, mut mates) = (BTreeMap::new(), Vec::<Vec<usize>>::new());
        let number = |(rank, &host)| {
            let number = *known.entry(host).or_insert(mates.len());
            if number == mates.len() {
                mates.push(vec![]);
            }
            mates[number].push(rank);
            number
        };
        let numbers = hosts.iter().enumerate().map(number).collect();
        let leaders = mates.iter().map(|mates| mates[0]).collect();
        Places { hosts, numbers, leaders, mates }
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
    fn leaders_and_mates_are_as_defined_whatever_the_shape() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..500 {
            let size = random.usize(1..40);
            let names = random.u32(1..12);
            let hosts: Vec<u32> = (0..size).map(|_| random.u32(0..names) * 1000).collect();
            let layout = Layout::new(random.usize(0..size), hosts.clone()).unwrap();
            let leads = |&rank: &usize| !hosts[..rank].contains(&hosts[rank]);
            assert_eq!(layout.leaders(), (0..size).filter(leads).collect::<Vec<_>>());
            for rank in 0..size {
                let is_mate = |&other: &usize| hosts[other] == hosts[rank];
                assert_eq!(layout.host_mates(rank), (0..size).filter(is_mate).collect::<Vec<_>>());
            }
            assert_eq!(layout.is_one_host(), hosts.iter().all(|host| *host == hosts[0]));
            assert_eq!(layout.seen_from(size - 1), Layout::new(size - 1, hosts).unwrap());
        }
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
