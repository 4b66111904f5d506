//! Who is waited for in each group. Who waits elsewhere itself is no cause, and is told after those who are.

use std::time::Duration;

use phalanx::{Ranks, Underway};

use super::super::look::{GroupView, RankView};
use super::super::show;
use super::{Circle, Finding};

/// Who has not called what others have waited in for long, causes before what follows from them.
pub(super) fn find(circles: &[Circle<'_>], ranks: &[RankView]) -> Vec<Finding> {
    let found = circles.iter().filter_map(|circle| waited_for(circle, ranks));
    let (mut causes, effects): (Vec<Finding>, Vec<Finding>) = found.partition(|finding| !is_effect(finding, ranks));
    let blamed = |finding: &Finding| {
        let is_silent = ranks.iter().any(|rank| !rank.answers() && rank.job() == finding.job);
        is_silent || causes.iter().any(|cause| cause.job == finding.job && !cause.culprits.is_empty())
    };
    let told = |finding: Finding| {
        // Where nobody else is to blame, they may wait for each other.
        let culprits = if blamed(&finding) { Vec::new() } else { finding.culprits.clone() };
        let excuse = excuse(&finding, ranks);
        Finding { verdict: finding.verdict + &excuse, culprits, ..finding }
    };
    let effects: Vec<Finding> = effects.into_iter().map(told).collect();
    causes.extend(effects);
    causes
}

fn waited_for(circle: &Circle<'_>, ranks: &[RankView]) -> Option<Finding> {
    let collective = |group: &GroupView| waits(group).find(|pending| !pending.is_message).cloned();
    let waiting: Vec<(usize, Underway)> =
        circle.says.iter().filter_map(|(rank, group)| Some((*rank, collective(group)?))).collect();
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
    let whom = if culprits.is_empty() { elsewhere(circle)? } else { Ranks(&culprits).named() };
    let (time, waiting) = (show::time(Duration::from_nanos(*called_ns)), Ranks(&waiting).named());
    let verdict = format!("job {job}, {name}: {waiting} in {kind} {sequence} for {time} at {site}: waiting for {whom}");
    Some(Finding { kind: "waited_for", job: job.to_owned(), group: Some(name.to_owned()), culprits, verdict })
}

/// What a rank has waited in for long in a group. What it began ahead holds it up in nothing.
fn waits(group: &GroupView) -> impl Iterator<Item = &Underway> {
    let pending = group.account.awaited.iter().chain(&group.account.pending).chain(&group.account.pending_message);
    pending.filter(|pending| pending.called_ns >= LONG_NS && !pending.is_ahead)
}

/// Members that are not seen here, where all that are have come. Nobody, where all are here: then bytes are on their way.
fn elsewhere(circle: &Circle<'_>) -> Option<String> {
    let absent: Vec<usize> = circle.members.iter().copied().filter(|rank| !circle.says.contains_key(rank)).collect();
    (!absent.is_empty()).then(|| format!("{}, not seen on this host", Ranks(&absent).named()))
}

/// Whether all that are waited for wait themselves.
fn is_effect(finding: &Finding, ranks: &[RankView]) -> bool {
    let culprits = &finding.culprits;
    !culprits.is_empty() && culprits.iter().all(|culprit| busy(&finding.job, *culprit, ranks).is_some())
}

/// What the first that is waited for waits in itself.
fn excuse(finding: &Finding, ranks: &[RankView]) -> String {
    let first = finding.culprits.first().and_then(|first| Some((first, busy(&finding.job, *first, ranks)?)));
    let Some((first, (group, Underway { kind, sequence, .. }))) = first else { return String::new() };
    format!(", but rank {first} waits itself, in {kind} {sequence} of {}", group.account.name)
}

/// What a rank has waited in for long, in any of its groups. It has not come to the one in which it is waited for, so that it is another.
fn busy<'a>(job: &str, number: usize, ranks: &'a [RankView]) -> Option<(&'a GroupView, &'a Underway)> {
    let mut named = ranks.iter().filter(|rank| rank.job() == job && rank.rank() == number);
    // Of two jobs of a name nobody can say whose it is.
    let (Some(rank), None) = (named.next(), named.next()) else { return None };
    rank.groups.iter().find_map(|group| Some((group, waits(group).next()?)))
}

/// Less than this is no wait: ranks do not answer at the same moment.
const LONG_NS: u64 = 1_000_000_000;
