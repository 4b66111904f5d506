//! What is found among ranks in every state they can be in.

use super::super::look::Pace;
use super::super::show::sample;
use super::*;

/// A rank in the group of `members` ranks that has called collectives up to `last` and waits in one since so many seconds.
fn rank(number: usize, members: usize, last: u32, waits: Option<u64>) -> RankView {
    let mut account = sample::group(1, 0, 0);
    account.members = (0..members).collect();
    account.last_collective = Some(sample::pending(last, 0));
    account.pending = waits.map(|seconds| sample::pending(last, seconds * 1_000_000_000));
    sample::rank(number, members, Some(vec![GroupView { account, pace: None }]))
}

fn verdicts(ranks: &[RankView]) -> Vec<(&'static str, Vec<usize>)> {
    find(ranks).into_iter().map(|finding| (finding.kind, finding.culprits)).collect()
}

#[test]
fn a_rank_that_has_not_called_what_others_wait_in_is_waited_for() {
    let ranks = [rank(0, 3, 7, Some(4)), rank(1, 3, 7, Some(3)), rank(2, 3, 6, None)];
    let found = find(&ranks);
    assert_eq!(
        found[0].verdict,
        "job train, world: ranks 0, 1 in all_reduce 7 for 4.0 s at train.rs:9: waiting for rank 2"
    );
    assert_eq!(verdicts(&ranks), [("waited_for", vec![2])]);
}

#[test]
fn a_rank_that_does_not_answer_is_named_and_waited_for() {
    let silent = sample::rank(1, 2, None);
    let found = find(&[rank(0, 2, 7, Some(4)), silent]);
    assert_eq!(found[0].verdict, "job train: rank 1 does not answer: process 101 is stopped");
    assert!(found[1].verdict.ends_with("waiting for rank 1"), "{}", found[1].verdict);
    assert_eq!(found.len(), 2);
}

#[test]
fn ranks_of_other_hosts_are_not_blamed() {
    let ranks = [rank(0, 4, 7, Some(4)), rank(1, 4, 7, Some(4))];
    let found = find(&ranks);
    assert!(found[0].verdict.ends_with("waiting for ranks 2, 3, not seen on this host"), "{}", found[0].verdict);
    assert!(found[0].culprits.is_empty());
}

#[test]
fn who_moves_bytes_waits_for_nobody() {
    assert!(verdicts(&[rank(0, 2, 7, Some(4)), rank(1, 2, 7, Some(4))]).is_empty());
    assert!(verdicts(&[rank(0, 2, 7, Some(0)), rank(1, 2, 6, None)]).is_empty());
}

#[test]
fn who_remembers_nothing_but_messages_is_known_by_its_numbers() {
    let mut ranks = [rank(0, 2, 7, Some(4)), rank(1, 2, 7, None)];
    for (upcoming, found) in [(8, vec![]), (7, vec![("waited_for", vec![1])])] {
        let account = &mut ranks[1].groups[0].account;
        (account.last_collective, account.upcoming) = (None, Some(upcoming));
        assert_eq!(verdicts(&ranks), found, "{upcoming}");
    }
}

#[test]
fn two_jobs_of_one_name_are_not_compared() {
    let ranks = [rank(0, 2, 7, Some(4)), rank(1, 2, 6, None), rank(0, 2, 9, None)];
    assert!(verdicts(&ranks).is_empty());
}

#[test]
fn two_groups_of_one_name_are_told_apart() {
    let mut ranks = [rank(0, 2, 7, Some(4)), rank(1, 2, 6, None)];
    for (rank, second) in ranks.iter_mut().zip([rank(0, 2, 2, None), rank(1, 2, 2, None)]) {
        rank.groups.extend(second.groups);
        for (generation, group) in (0..).zip(&mut rank.groups) {
            group.account.generation = Some(generation);
        }
    }
    assert_eq!(verdicts(&ranks), [("waited_for", vec![1])]);
}

/// Two groups of tensor parallelism and two of data parallelism: rank 3 hangs in code of its own.
#[test]
fn who_waits_itself_comes_after_the_cause() {
    let mut groups: Vec<Vec<GroupView>> = (0..4).map(|_| Vec::new()).collect();
    let mut add = |name: &str, members: [usize; 2], waits: [bool; 2]| {
        for (member, waits) in members.into_iter().zip(waits) {
            let mut account = sample::group(1, 0, 0);
            (account.name, account.members) = (name.to_owned(), members.to_vec());
            account.last_collective = Some(sample::pending(if waits { 4 } else { 3 }, 0));
            account.pending = waits.then(|| sample::pending(4, 3_000_000_000));
            groups[member].push(GroupView { account, pace: None });
        }
    };
    add("data", [0, 2], [true, false]);
    add("data", [1, 3], [false, false]);
    add("tensor", [0, 1], [false, false]);
    add("tensor", [2, 3], [true, false]);
    let ranks: Vec<RankView> =
        groups.into_iter().enumerate().map(|(number, groups)| sample::rank(number, 4, Some(groups))).collect();
    let found = find(&ranks);
    assert_eq!(verdicts(&ranks), [("waited_for", vec![3]), ("waited_for", vec![])]);
    let effect = "rank 0 in all_reduce 4 for 3.0 s at train.rs:9: waiting for rank 2, but rank 2 waits itself, in all_reduce 4 of tensor";
    assert!(found[0].verdict.contains("rank 2 in all_reduce 4") && found[1].verdict.ends_with(effect), "{found:?}");
}

/// Each has come to the group of the other: nobody else is to blame.
#[test]
fn ranks_that_wait_for_each_other_are_both_named() {
    let mut ranks = [rank(0, 2, 7, Some(4)), rank(1, 2, 6, None)];
    for (rank, mut other) in ranks.iter_mut().zip([rank(0, 2, 2, None), rank(1, 2, 3, Some(4))]) {
        other.groups[0].account.name = "other".to_owned();
        rank.groups.extend(other.groups);
    }
    assert_eq!(verdicts(&ranks), [("waited_for", vec![0]), ("waited_for", vec![1])]);
}

#[test]
fn the_one_who_is_in_operations_least_is_slow() {
    let with = |shares: [f64; 3]| {
        let mut ranks: Vec<RankView> = (0..3).map(|number| rank(number, 3, 7, None)).collect();
        for (rank, share) in ranks.iter_mut().zip(shares) {
            rank.groups[0].pace = Some(Pace { operations: 5.0, bytes: 0.0, share });
        }
        find(&ranks)
    };
    let found = with([0.8, 0.1, 0.7]);
    let verdict =
        "job train, world: rank 1 spends 10 % of its time in operations, the others 70 % or more: they wait for it";
    assert_eq!((found.len(), &*found[0].verdict), (1, verdict));
    assert!(with([0.8, 0.6, 0.7]).is_empty() && with([0.1, 0.01, 0.1]).is_empty());
}
