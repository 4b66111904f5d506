//! What the cards of all ranks say together: who lives where.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::card::Card;
use super::identity::HostId;

/// One rank of a world, as it introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    host_name: String,
    pid: u32,
    addresses: Vec<IpAddr>,
    node: usize,
    local_rank: usize,
    version: String,
}

impl Member {
    /// The name of its host.
    pub fn host_name(&self) -> &str {
        &self.host_name
    }

    /// Its process id, as it sees it itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The addresses of its host's interfaces that are up, without loopback and link-local ones.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The number of its host: hosts are numbered in the order of their first ranks.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Its number among the ranks of its host.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// The version of this library that it runs.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The members that bear `cards`, in rank order, and for each the number on its host that it would have without a launcher.
///
/// The two numbers differ where a launcher counts in another way. Its number is the member's, because devices were given
/// out by it, and so is the one that a rank had before its world changed. Who brings none gets the lowest that nobody brings.
pub(super) fn members(cards: Vec<Card>) -> Vec<(Member, usize)> {
    let mut hosts: HashMap<HostId, Host> = HashMap::new();
    for card in &cards {
        let number = hosts.len();
        let host = hosts.entry(card.host.clone()).or_insert_with(|| Host { number, ..Host::default() });
        host.told.extend(told(card));
    }
    let seat = |card: Card| {
        let told = told(&card);
        let Card { host, host_name, pid, addresses, version, .. } = card;
        let host = hosts.entry(host).or_default();
        let (local_rank, counted) = host.seat(told);
        (Member { host_name, pid, addresses, node: host.number, local_rank, version }, counted)
    };
    cards.into_iter().map(seat).collect()
}

/// The local rank that a rank brings.
fn told(card: &Card) -> Option<usize> {
    card.local_rank.and_then(|told| told.try_into().ok())
}

#[derive(Default)]
struct Host {
    number: usize,
    /// The local ranks that its ranks bring.
    told: HashSet<usize>,
    /// How many of its ranks have a seat so far.
    seated: usize,
    /// The lowest local rank that may be free.
    free: usize,
}

impl Host {
    /// The local rank of its next rank, which brings this one, and the one that it would have without a launcher.
    fn seat(&mut self, told: Option<usize>) -> (usize, usize) {
        let counted = self.seated;
        self.seated += 1;
        if let Some(told) = told {
            return (told, counted);
        }
        while self.told.contains(&self.free) {
            self.free += 1;
        }
        let free = self.free;
        self.free += 1;
        (free, free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(host: &str, local_rank: Option<u32>) -> Card {
        Card {
            host: HostId::from_card(host).unwrap(),
            host_name: format!("{host}.example"),
            pid: 7,
            made_ns: 0,
            addresses: vec![],
            local_rank,
            hosts_store: false,
            version: "1".into(),
        }
    }

    #[test]
    fn hosts_are_numbered_by_their_first_ranks() {
        let members = members(["b", "a", "b", "c", "a"].map(|host| card(host, None)).to_vec());
        let places: Vec<_> = members.iter().map(|(member, _)| (member.node(), member.local_rank())).collect();
        assert_eq!(places, [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1)]);
        assert_eq!((members[3].0.host_name(), members[3].0.pid(), members[3].0.version()), ("c.example", 7, "1"));
    }

    #[test]
    fn the_launchers_number_is_taken_and_the_count_kept_beside_it() {
        let members = members(vec![card("a", Some(1)), card("a", Some(0)), card("a", None)]);
        let numbers: Vec<_> = members.iter().map(|(member, counted)| (member.local_rank(), *counted)).collect();
        assert_eq!(numbers, [(1, 0), (0, 1), (2, 2)]);
    }

    #[test]
    fn who_brings_no_number_gets_the_lowest_that_nobody_on_its_host_brings() {
        let after_a_change = [("a", Some(1)), ("a", Some(2)), ("b", Some(0)), ("a", None), ("b", None), ("a", None)];
        let numbers = |cards: &[(&str, Option<u32>)]| {
            let members = members(cards.iter().map(|(host, told)| card(host, *told)).collect());
            members.iter().map(|(member, _)| (member.node(), member.local_rank())).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&after_a_change), [(0, 1), (0, 2), (1, 0), (0, 0), (1, 1), (0, 3)]);
        assert_eq!(numbers(&[("a", None), ("a", Some(0))]), [(0, 1), (0, 0)]);
    }
}
