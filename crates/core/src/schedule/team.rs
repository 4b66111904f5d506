//! A team: the ranks that play one phase together, numbered from 0 in an order of their own.

/// Some ranks of the group, in the order a phase counts them.
///
/// Algorithms are written in team numbers; [`Team::rank`] turns them into ranks. A rotation puts the root first, a part
/// of the ranks makes one level of a two-level schedule: neither needs a word in the algorithm itself.
#[derive(Clone, Debug)]
pub(super) struct Team {
    ranks: Vec<usize>,
    me: usize,
}

impl Team {
    /// Ranks `0..size`.
    pub(super) fn all(rank: usize, size: usize) -> Team {
        Team { ranks: (0..size).collect(), me: rank }
    }

    /// These ranks, `rank` among them.
    pub(super) fn of(ranks: Vec<usize>, rank: usize) -> Option<Team> {
        let me = ranks.iter().position(|&member| member == rank)?;
        Some(Team { ranks, me })
    }

    /// The same ranks rotated so that number `root` becomes number 0.
    pub(super) fn rooted(&self, root: usize) -> Team {
        let mut ranks = self.ranks.clone();
        ranks.rotate_left(root);
        let me = (self.me + self.len() - root) % self.len();
        Team { ranks, me }
    }

    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    pub(super) fn me(&self) -> usize {
        self.me
    }

    /// The rank with this team number.
    pub(super) fn rank(&self, number: usize) -> usize {
        self.ranks[number]
    }

    pub(super) fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// The team number of `rank`.
    pub(super) fn number(&self, rank: usize) -> Option<usize> {
        self.ranks.iter().position(|&member| member == rank)
    }

    /// The team number `distance` after mine, around the circle.
    pub(super) fn after(&self, distance: usize) -> usize {
        (self.me + distance) % self.len()
    }

    /// The team number `distance` before mine, around the circle; at most one round.
    pub(super) fn before(&self, distance: usize) -> usize {
        (self.me + self.len() - distance) % self.len()
    }
}
