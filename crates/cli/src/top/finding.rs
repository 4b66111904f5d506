//! What the ranks of a host show together: who does not answer, who is waited for, who is slow.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx::Underway;
use serde_json::{Value, json};

use super::look::{GroupView, RankView};
use super::show;

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
    let waited_for = circles.iter().filter_map(|circle| waited_for(circle, ranks));
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
            let key = (job, name, group.account.epoch, members);
            let (circle, is_one) = circles.entry(key).or_insert_with(new);
            // Where a rank is there twice, there are two jobs of a name, or two such groups: nobody can tell them apart.
            *is_one &= circle.says.insert(rank.rank(), group).is_none();
        }
    }
    circles.into_values().filter(|(_, is_one)| *is_one).map(|(circle, _)| circle).collect()
}

/// Who has not called what others have waited in for long.
fn waited_for(circle: &Circle<'_>, ranks: &[RankView]) -> Option<Finding> {
    let waits = |group: &GroupView| -> Option<Underway> {
        let pending = group.account.pending.clone().filter(|pending| !pending.is_message)?;
        (pending.called_ns >= LONG_NS).then_some(pending)
    };
    let waiting: Vec<(usize, Underway)> =
        circle.says.iter().filter_map(|(rank, group)| Some((*rank, waits(group)?))).collect();
    let (_, first) = waiting.iter().min_by_key(|(_, pending)| pending.sequence)?;
    let waiting: Vec<usize> =
        waiting.iter().filter(|(_, pending)| pending.sequence == first.sequence).map(|(rank, _)| *rank).collect();
    let has_called = |group: &GroupView| group.account.last_sequence().is_some_and(|last| last >= first.sequence);
    let behind = circle.says.iter().filter(|(_, group)| !has_called(group)).map(|(rank, _)| *rank);
    let is_silent =
        |member: &usize| ranks.iter().any(|rank| !rank.answers() && rank.job() == circle.job && rank.rank() == *member);
    let mut culprits: Vec<usize> = behind.chain(circle.members.iter().copied().filter(is_silent)).collect();
    culprits.sort_unstable();
    let Underway { kind, sequence, called_ns, site, .. } = first;
    let (job, name) = (circle.job, circle.name);
    let whom = if culprits.is_empty() { elsewhere(circle)? } else { show::ranks(&culprits) };
    let (time, waiting) = (show::time(Duration::from_nanos(*called_ns)), show::ranks(&waiting));
    let verdict = format!("job {job}, {name}: {waiting} in {kind} {sequence} for {time} at {site}: waiting for {whom}");
    Some(Finding { kind: "waited_for", job: job.to_owned(), group: Some(name.to_owned()), culprits, verdict })
}

/// Members that are not seen here, where all that are have come. Nobody, where all are here: then bytes are on their way.
fn elsewhere(circle: &Circle<'_>) -> Option<String> {
    let absent: Vec<usize> = circle.members.iter().copied().filter(|rank| !circle.says.contains_key(rank)).collect();
    (!absent.is_empty()).then(|| format!("{}, not seen on this host", show::ranks(&absent)))
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

/// Less than this is no wait: ranks do not answer at the same moment.
const LONG_NS: u64 = 1_000_000_000;
/// Where the others spend less of their time in operations, nobody is waited for much.
const MUCH: f64 = 0.2;

#[cfg(test)]
mod tests;
