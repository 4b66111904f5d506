//! Which ranks share memory if they can: decided from numbers and names alone, and the same on every rank.

use crate::local::MOST_RANKS;

/// The teams of a group: the ranks of one host that may pass descriptors to each other, where there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Teams {
    teams: Vec<Vec<usize>>,
    /// Whether every rank that is not alone on its host is in one team with all others there.
    are_hosts: bool,
}

impl Teams {
    /// The teams of ranks on these hosts, by the group's count, which are really where `places` say.
    pub(super) fn of(hosts: &[u32], places: &[String]) -> Teams {
        let home = |rank: usize| (hosts[rank], &places[rank]);
        let mut teams: Vec<Vec<usize>> = vec![];
        for rank in 0..hosts.len() {
            match teams.iter_mut().find(|team| home(team[0]) == home(rank)) {
                Some(team) => team.push(rank),
                None => teams.push(vec![rank]),
            }
        }
        let mates = |rank: usize| hosts.iter().filter(|&&host| host == hosts[rank]).count();
        let are_hosts = teams.iter().all(|team| team.len() == mates(team[0]) && team.len() <= MOST_RANKS);
        teams.retain(|team| (2..=MOST_RANKS).contains(&team.len()));
        Teams { teams, are_hosts }
    }

    /// Every team, its ranks in order.
    pub(super) fn all(&self) -> &[Vec<usize>] {
        &self.teams
    }

    /// The team of a rank that is not alone.
    pub(super) fn team_of(&self, rank: usize) -> Option<&[usize]> {
        self.teams.iter().find(|team| team.contains(&rank)).map(|team| &**team)
    }

    /// Whether each host with several ranks is a team.
    pub(super) fn are_hosts(&self) -> bool {
        self.are_hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn teams(hosts: &[u32], places: &str) -> Teams {
        Teams::of(hosts, &places.chars().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_team_is_on_one_host_in_name_and_in_fact() {
        let apart = teams(&[5, 3, 5, 3, 1], "abaaa");
        assert_eq!((apart.all(), apart.are_hosts()), (&[vec![0, 2]][..], false));
        assert_eq!((apart.team_of(2), apart.team_of(3)), (Some(&[0, 2][..]), None));
        let two = teams(&[0, 1, 0, 1, 2], "aaaaa");
        assert_eq!((two.all(), two.are_hosts()), (&[vec![0, 2], vec![1, 3]][..], true));
        assert_eq!(teams(&[0, 1, 2], "aaa").all().len(), 0);
        let crowd = teams(&[0; MOST_RANKS + 1], &"a".repeat(MOST_RANKS + 1));
        assert_eq!((crowd.all().len(), crowd.are_hosts()), (0, false));
    }
}
