//! Which ranks of the world a group's ranks are.

use super::Group;

impl Group {
    /// The world's ranks that are this group's, in its order.
    pub fn members(&self) -> &[usize] {
        &self.shared.members
    }

    /// The world's rank of a rank of this group; none for one that the group does not have.
    pub fn world_rank(&self, rank: usize) -> Option<usize> {
        self.shared.members.get(rank).copied()
    }

    /// This process's number in the world.
    pub(super) fn own_world_rank(&self) -> usize {
        self.shared.members[self.rank()]
    }

    /// The rank in this group of a rank of the world; none for one that is not in it.
    pub fn rank_of(&self, world_rank: usize) -> Option<usize> {
        self.shared.members.iter().position(|&member| member == world_rank)
    }
}
