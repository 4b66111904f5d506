//! Errors in words: who was lost, who is waited for, and where.

use std::fmt;

use super::{Chain, ErrorKind, Last, PeerReason, Scope, Stuck, Waiting};
use crate::{Ranks, Site};

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for PeerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PeerReason::Dead => "is dead",
            PeerReason::Left => "has left",
            PeerReason::Corrupt => "sent corrupt data",
            PeerReason::Unresponsive => "is unresponsive",
        })
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.on {
            Waiting::Taking => write!(f, "rank {} to take data", self.peer),
            Waiting::Giving => write!(f, "rank {} to give data", self.peer),
            Waiting::Arriving => write!(f, "rank {} to come", self.peer),
            Waiting::Unknown => write!(f, "rank {}", self.peer),
            Waiting::Working => write!(f, "rank {}, which was still at work", self.peer),
            Waiting::Coming { last: None } => write!(f, "rank {}, which has called nothing yet", self.peer),
            Waiting::Coming { last: Some(last) } => write!(f, "rank {}, whose last was {last}", self.peer),
        }
    }
}

impl fmt::Display for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Last { op, sequence, site } = self;
        match &**site {
            "" => write!(f, "{op} (operation {sequence})"),
            site => write!(f, "{op} (operation {sequence}, called at {site})"),
        }
    }
}

pub(super) fn here(site: Option<Site>) -> String {
    site.map_or(String::new(), |site| format!("; called here at {site}"))
}

/// Who was lost, and how: "rank 3 is dead", "ranks 1, 4-7 and 9 are dead".
pub(super) fn lost(rank: usize, others: &[usize], reason: PeerReason) -> String {
    let many = match reason {
        PeerReason::Dead => "are dead",
        PeerReason::Left => "have left",
        PeerReason::Corrupt => "sent corrupt data",
        PeerReason::Unresponsive => "are unresponsive",
    };
    let ranks = [&[rank], others].concat();
    match &*Ranks(&ranks).words().collect::<Vec<_>>() {
        [one] if others.is_empty() => format!("rank {one} {reason}"),
        [before @ .., last] if !before.is_empty() => format!("ranks {} and {last} {many}", before.join(", ")),
        all => format!("ranks {} {many}", all.join(", ")),
    }
}

pub(super) fn awaited(stuck: &[Stuck], chain: &Chain) -> String {
    match chain {
        Chain::Direct => list_stuck(stuck),
        Chain::Through(words) => format!("{words} {}", list_stuck(stuck)),
        Chain::Beyond { path, ranks } => {
            format!("{path} {}", ranks.iter().map(|rank| format!("rank {rank}")).collect::<Vec<_>>().join(", "))
        }
        Chain::Circle(words) => format!("{words}: a deadlock"),
    }
}

fn list_stuck(stuck: &[Stuck]) -> String {
    match stuck {
        [] => "its turn in the group's queue".to_owned(),
        some => some.iter().map(Stuck::to_string).collect::<Vec<_>>().join(", "),
    }
}
