//! Two looks at the ranks of this host, and what changed in between.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use phalanx::{Account, GroupAccount, Neighbour, Underway};

use super::finding::{self, Finding};
use super::show::plain;
use crate::condition;
use crate::failure::Failure;

/// The ranks as they answered at one moment.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) ranks: Vec<Neighbour>,
    /// Why nobody is shown where that is so.
    pub(super) nobody: String,
}

/// What two looks show.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) ranks: Vec<RankView>,
    pub(super) findings: Vec<Finding>,
    /// What is said where there are no ranks.
    pub(super) nobody: String,
}

/// One rank.
#[derive(Clone, Debug)]
pub(super) struct RankView {
    pub(super) neighbour: Neighbour,
    /// The state of its process; none where it is gone.
    pub(super) process: Option<&'static str>,
    /// What its groups did in between; nothing where it does not answer.
    pub(super) groups: Vec<GroupView>,
}

/// What one rank did in one group.
#[derive(Clone, Debug)]
pub(super) struct GroupView {
    pub(super) account: GroupAccount,
    /// Absent where there was no look before.
    pub(super) pace: Option<Pace>,
}

/// How fast a group went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    pub(super) operations: f64,
    pub(super) bytes: f64,
    /// The share of the time in operations, from 0 to 1.
    pub(super) share: f64,
}

impl Look {
    /// Asks the ranks of a job, or all.
    pub(super) fn take(job: Option<&str>) -> Result<Look, Failure> {
        let ranks = phalanx::neighbours(PATIENCE);
        let mut ranks = ranks.map_err(|error| Failure::Stopped(error.to_string()))?;
        let nobody = nobody(job, &ranks);
        ranks.retain(|rank| job.is_none_or(|job| rank.is_of(job)));
        Ok(Look { at: Instant::now(), ranks, nobody })
    }
}

/// Says that there is no rank of a job, or of any.
fn nobody(job: Option<&str>, seen: &[Neighbour]) -> String {
    let Some(job) = job else { return "no ranks of this user on this host".to_owned() };
    let names: BTreeSet<&str> = seen.iter().map(|rank| rank.job.as_str()).collect();
    let names: Vec<String> = names.into_iter().map(plain).collect();
    let others = if names.is_empty() { String::new() } else { format!("; there are some of {}", names.join(", ")) };
    format!("no ranks of job {} of this user on this host{others}", plain(job))
}

impl View {
    pub(super) fn between(earlier: Option<&Look>, now: &Look) -> View {
        let before = earlier.map(groups).unwrap_or_default();
        let passed = earlier.map_or(Duration::ZERO, |earlier| now.at.saturating_duration_since(earlier.at));
        let of_rank = |neighbour: &Neighbour| {
            let groups = neighbour.account.iter().flat_map(|account| &account.groups);
            let of_group = |account: &GroupAccount| {
                let before = before.get(&key(neighbour, account)).copied();
                GroupView { account: account.clone(), pace: before.and_then(|before| pace(before, account, passed)) }
            };
            let process = if neighbour.is_elsewhere { Some(ELSEWHERE) } else { condition::state(neighbour.pid) };
            RankView { groups: groups.map(of_group).collect(), neighbour: neighbour.clone(), process }
        };
        let ranks: Vec<RankView> = now.ranks.iter().map(of_rank).collect();
        View { findings: finding::find(&ranks), ranks, nobody: now.nobody.clone() }
    }
}

impl RankView {
    pub(super) fn job(&self) -> &str {
        self.neighbour.account.as_ref().map_or(&self.neighbour.job, |account| &account.job)
    }

    /// Its number in the world, as it is now where it answers.
    pub(super) fn rank(&self) -> usize {
        self.neighbour.account.as_ref().map_or(self.neighbour.rank, |account| account.rank)
    }

    pub(super) fn world_size(&self) -> usize {
        self.neighbour.account.as_ref().map_or(self.neighbour.world_size, |account: &Account| account.world_size)
    }

    pub(super) fn answers(&self) -> bool {
        self.neighbour.account.is_some()
    }
}

fn groups(look: &Look) -> HashMap<Key<'_>, &GroupAccount> {
    let accounts = look.ranks.iter().filter_map(|rank| Some((rank, rank.account.as_ref()?)));
    accounts.flat_map(|(rank, account)| account.groups.iter().map(move |group| (key(rank, group), group))).collect()
}

fn key<'a>(rank: &'a Neighbour, group: &GroupAccount) -> Key<'a> {
    let process = (rank.uid, rank.pid, rank.namespace);
    (process, (rank.world, rank.rank, rank.job.as_str()), group.number)
}

/// How fast a group went between two accounts; none where they cannot be of the same.
fn pace(before: &GroupAccount, now: &GroupAccount, passed: Duration) -> Option<Pace> {
    // By the group's own clock, because a busy rank answers late.
    let passed = now.now_ns.checked_sub(before.now_ns).map_or(passed, Duration::from_nanos);
    let operations = now.ended().checked_sub(before.ended())?;
    let bytes = now.bytes().checked_sub(before.bytes())?;
    let share = within(now).saturating_sub(within(before)) as f64 / (passed.as_nanos() as f64).max(1.0);
    let seconds = passed.as_secs_f64().max(1e-9);
    Some(Pace { operations: operations as f64 / seconds, bytes: bytes as f64 / seconds, share: share.min(1.0) })
}

/// The time in operations so far, with the one that is under way.
fn within(group: &GroupAccount) -> u64 {
    let ended = group.kinds.iter().map(|kind| kind.busy_ns).fold(0, u64::saturating_add);
    let under_way = group.pending.as_ref().filter(|pending: &&Underway| pending.state == "started");
    // A rank of an older version does not say when the turn came.
    ended.saturating_add(under_way.map_or(0, |pending| pending.started_ns.unwrap_or(pending.called_ns)))
}

/// A process, its world as the name of its socket says, and a group. Of a rank of an older version the PID namespace is not known.
type Key<'a> = ((u32, u32, u32), (u32, usize, &'a str), u64);

/// The state of a process that cannot be seen from here.
const ELSEWHERE: &str = "in another PID namespace, its state unknown";

/// How long ranks have to answer.
const PATIENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::super::show::sample;
    use super::*;

    #[test]
    fn a_pace_is_what_changed_over_the_groups_own_time() {
        let before = sample::group(10, 1000, 0);
        let mut now = sample::group(30, 5000, 0);
        now.now_ns = before.now_ns + 2_000_000_000;
        now.kinds[0].busy_ns = before.kinds[0].busy_ns + 500_000_000;
        let pace = pace(&before, &now, Duration::ZERO).unwrap();
        assert_eq!((pace.operations, pace.bytes, pace.share), (10.0, 2000.0, 0.25));
        assert_eq!(super::pace(&now, &before, Duration::ZERO), None);
    }

    /// As in containers that share the network of this host.
    #[test]
    fn ranks_whose_processes_have_one_number_in_other_namespaces_are_told_apart() {
        // Two of one job in a namespace that is not known, and one of a job that is called alike.
        let look = |second: u64, ended: [u64; 3]| {
            let rank = |(number, ended): (usize, u64)| {
                let mut rank = sample::rank(number % 2, 2, Some(Vec::new())).neighbour;
                (rank.pid, rank.is_elsewhere, rank.namespace) = (1, true, u32::from(number == 2));
                let mut group = sample::group(ended, 0, 0);
                group.now_ns += second * 1_000_000_000;
                rank.account.as_mut().unwrap().groups = vec![group];
                rank
            };
            Look { at: Instant::now(), ranks: ended.into_iter().enumerate().map(rank).collect(), nobody: String::new() }
        };
        let view = View::between(Some(&look(0, [10, 25, 5])), &look(1, [30, 25, 6]));
        let paces = view.ranks.iter().map(|rank| rank.groups[0].pace.unwrap().operations);
        assert_eq!(paces.collect::<Vec<_>>(), [20.0, 0.0, 1.0]);
        assert!(view.ranks.iter().all(|rank| rank.process == Some(ELSEWHERE)));
    }

    #[test]
    fn what_waits_behind_others_is_not_in_an_operation_yet() {
        let mut before = sample::group(10, 0, 0);
        let mut queued = sample::pending(10, 1_000_000_000);
        (queued.state, queued.started_ns) = ("queued".to_owned(), None);
        before.pending = Some(queued);
        let mut now = before.clone();
        now.now_ns += 4_000_000_000;
        let mut pending = sample::pending(10, 5_000_000_000);
        pending.started_ns = Some(1_000_000_000);
        now.pending = Some(pending);
        assert_eq!(pace(&before, &now, Duration::ZERO).unwrap().share, 0.25);
    }

    #[test]
    fn who_has_waited_all_the_time_was_in_operations_all_the_time() {
        let mut before = sample::group(10, 0, 0);
        before.pending = Some(sample::pending(10, 1_000_000_000));
        let mut now = before.clone();
        now.now_ns += 1_000_000_000;
        now.pending = Some(sample::pending(10, 2_000_000_000));
        assert_eq!(pace(&before, &now, Duration::ZERO).unwrap().share, 1.0);
        // The same time is not counted again when the operation has ended.
        let mut ended = now.clone();
        ended.pending = None;
        ended.now_ns += 1_000_000_000;
        ended.kinds[0].busy_ns += 2_100_000_000;
        assert!((pace(&now, &ended, Duration::ZERO).unwrap().share - 0.1).abs() < 1e-9);
    }
}
