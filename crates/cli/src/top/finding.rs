//! What the ranks of a host show together: who does not answer, who is waited for, who is slow.

mod waiting;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::look::{GroupView, RankView};

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// `silent`, `waited_for` or `slow`.
    pub(super) kind: &'static str,
    pub(super) job: String,
    /// The group, where it is one's.
    pub(super) group: Option<String>,
    /// Ranks in the world.
    pub(super) culprits: Vec<usize>,
    pub(super) verdict: String,
}

impl Finding {
    pub(super) fn to_json(&self) -> Value {
        let Finding { kind, job, group, culprits, verdict } = self;
        json!({ "finding": kind, "job": job, "group": group, "culprits": culprits, "verdict": verdict })
    }
}

/// Everything there is to know, the most important first.
pub(super) fn find(ranks: &[RankView]) -> Vec<Finding> {
    let silent = ranks.iter().filter(|rank| !rank.answers()).map(silent);
    let circles = circles(ranks);
    let waited_for = waiting::find(&circles, ranks);
    let slow = circles.iter().filter_map(slow);
    silent.chain(waited_for).chain(slow).collect()
}

fn silent(rank: &RankView) -> Finding {
    let (job, number, pid) = (rank.job().to_owned(), rank.rank(), rank.neighbour.pid);
    let state = rank.process.map_or("is gone".to_owned(), |state| format!("is {state}"));
    let verdict = format!("job {job}: rank {number} does not answer: process {pid} {state}");
    Finding { kind: "silent", job, group: None, culprits: vec![number], verdict }
}

/// The ranks here that are in one group.
struct Circle<'a> {
    job: &'a str,
    name: &'a str,
    members: &'a [usize],
    /// What each says, by its rank in the world.
    says: BTreeMap<usize, &'a GroupView>,
}

fn circles(ranks: &[RankView]) -> Vec<Circle<'_>> {
    let mut circles: BTreeMap<_, (Circle<'_>, bool)> = BTreeMap::new();
    for rank in ranks {
        for group in &rank.groups {
            let (job, name, members) = (rank.job(), &*group.account.name, &*group.account.members);
            let new = || (Circle { job, name, members, says: BTreeMap::new() }, true);
            let key = (job, name, group.account.epoch, group.account.generation, members);
            let (circle, is_one) = circles.entry(key).or_insert_with(new);
            // Where a rank is there twice, there are two jobs of a name, which nobody can tell apart.
            *is_one &= circle.says.insert(rank.rank(), group).is_none();
        }
    }
    circles.into_values().filter(|(_, is_one)| *is_one).map(|(circle, _)| circle).collect()
}

/// The one rank that spends far less time in operations than all others, who wait for it there.
fn slow(circle: &Circle<'_>) -> Option<Finding> {
    let pace = |group: &GroupView| group.pace.filter(|pace| pace.operations > 0.0);
    let mut shares: Vec<(f64, usize)> =
        circle.says.iter().filter_map(|(rank, group)| Some((pace(group)?.share, *rank))).collect();
    if shares.len() < circle.members.len().max(2) {
        return None;
    }
    shares.sort_by(|one, other| one.0.total_cmp(&other.0));
    let [(least, culprit), (next, _), ..] = shares[..] else { return None };
    if next < MUCH || least > next / 2.0 {
        return None;
    }
    let (job, name, percent) = (circle.job, circle.name, |share: f64| (share * 100.0).round());
    let verdict = format!(
        "job {job}, {name}: rank {culprit} spends {} % of its time in operations, the others {} % or more: they wait for it",
        percent(least),
        percent(next)
    );
    Some(Finding { kind: "slow", job: job.to_owned(), group: Some(name.to_owned()), culprits: vec![culprit], verdict })
}

/// Where the others spend less of their time in operations, nobody is waited for much.
const MUCH: f64 = 0.2;

#[cfg(test)]
mod tests;
