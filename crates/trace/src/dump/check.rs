//! What a dump must hold before anything is made of it: its numbers fit each other, and none is beyond every job.

use std::collections::BTreeSet;

use super::{Dump, TracedGroup};
use crate::Broken;

impl Dump {
    /// How many ranks the world has, or at least.
    pub(crate) fn size(&self) -> usize {
        self.world_size.unwrap_or(self.rank + 1)
    }

    /// Whether the numbers fit each other.
    ///
    /// # Errors
    ///
    /// Names the first that does not.
    pub fn check(&self) -> Result<(), Broken> {
        let limit = self.world_size.unwrap_or(MOST_RANKS);
        if limit > MOST_RANKS {
            return Err(Broken::value("world_size", limit, "1048576 or less"));
        }
        if self.rank >= limit {
            return Err(Broken::value("rank", self.rank, "below the world size"));
        }
        for (at, group) in self.groups.iter().enumerate() {
            group.check(at, limit)?;
        }
        // Each of them is written out where it is of all ranks and does not say so.
        let whole = self.groups.iter().filter(|group| group.members.is_none()).count();
        if whole.saturating_mul(self.size()) > MOST_LISTED {
            let expected = "so few that their ranks together are 16777216 or less";
            return Err(Broken::value("groups without members", whole, expected));
        }
        let stray = self.entries.iter().position(|entry| entry.group >= self.groups.len());
        stray.map_or(Ok(()), |at| {
            let group = self.entries[at].group;
            Err(Broken::value(format!("entries[{at}].group"), group, "the place of one of the groups"))
        })
    }
}

impl TracedGroup {
    fn check(&self, at: usize, limit: usize) -> Result<(), Broken> {
        let members = self.members.as_deref().unwrap_or_default();
        let wrong = |rank, expected| Err(Broken::value(format!("groups[{at}].members"), rank, expected));
        let mut seen = BTreeSet::new();
        for &rank in members {
            if rank >= limit {
                return wrong(rank, "below the world size");
            }
            if !seen.insert(rank) {
                return wrong(rank, "there once");
            }
        }
        Ok(())
    }
}

/// More ranks than any job has.
const MOST_RANKS: usize = 1 << 20;
/// More than any job has in all groups of its whole world together.
const MOST_LISTED: usize = 1 << 24;
