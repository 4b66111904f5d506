//! Verdicts on worlds of four ranks.

use std::path::PathBuf;
use std::time::Duration;

use super::super::Accusation;
use super::*;
use crate::run::output::{Panic, Remains};

/// A world in which every rank was stopped, and how it is changed.
fn world(changes: &[(usize, State, u64)]) -> Vec<Fact> {
    let fact = |rank: usize| Fact {
        rank,
        pid: 4700 + rank as i32,
        host: "a".to_owned(),
        state: State::Stopped(None),
        after: Duration::from_secs(9),
        report: None,
        accusation: None,
        remains: Remains::default(),
        memory: None,
        log: None,
    };
    let mut facts: Vec<Fact> = (0..4).map(fact).collect();
    for &(rank, state, millis) in changes {
        facts[rank].state = state;
        facts[rank].after = Duration::from_millis(millis);
    }
    facts
}

fn code(code: i32) -> State {
    State::Ended(Exit::Code(code))
}

fn headline(facts: &[Fact]) -> String {
    judge(facts, 0).unwrap().headline
}

fn missing(message: &str, missing: &[usize]) -> Option<Report> {
    Some(Report { message: message.to_owned(), missing: missing.to_vec() })
}

#[test]
fn the_first_failure_is_to_blame() {
    let facts = world(&[(2, code(3), 1204), (1, code(0), 1000), (3, code(1), 1230)]);
    assert_eq!(
        headline(&facts),
        "rank 2 failed: exit code 3 after 1.204 s (host a, pid 4702, epoch 0); rank 1 ended with exit code 0 after \
         1.000 s; 1 other rank was stopped; 1 other rank failed after it"
    );
    assert_eq!(judge(&world(&[(0, code(0), 1)]), 0), None);
}

/// A rank that leaves in the midst of the others' work is no failure by its own account, and yet their failures follow from it.
#[test]
fn a_rank_that_left_before_is_told_of() {
    let mut facts = world(&[(0, code(1), 910), (1, code(1), 911), (2, code(0), 800), (3, code(1), 905)]);
    assert_eq!(
        headline(&facts),
        "rank 3 failed: exit code 1 after 0.905 s (host a, pid 4703, epoch 0); rank 2 ended with exit code 0 after \
         0.800 s; 2 other ranks failed after it"
    );
    (facts[1].state, facts[1].after) = (code(0), Duration::from_millis(700));
    let several = "; ranks 1, 2 ended with exit code 0, the first after 0.700 s; 1 other rank failed after it";
    assert!(headline(&facts).ends_with(several), "{}", headline(&facts));
    // Who is killed did not fail of that, and who ends later is no cause.
    facts[3].state = State::Ended(Exit::Signal(9));
    assert!(!headline(&facts).contains(" ended with"), "{}", headline(&facts));
    let facts = world(&[(2, code(0), 956), (3, code(1), 905)]);
    assert!(!headline(&facts).contains(" ended with"), "{}", headline(&facts));
}

#[test]
fn a_signal_is_named_and_so_is_the_evidence_for_its_cause() {
    let mut facts = world(&[(0, State::Ended(Exit::Signal(9)), 500)]);
    assert!(headline(&facts).starts_with("rank 0 failed: killed by SIGKILL after 0.500 s (host a"));
    assert!(headline(&facts).ends_with("; 3 other ranks were stopped"));
    facts[0].memory = Some("the cgroup's count of such kills rose from 0 to 1".to_owned());
    let expected = "rank 0 failed: out of memory after 0.500 s: killed by SIGKILL, and the cgroup's count of such kills rose \
                    from 0 to 1 (host a";
    assert!(headline(&facts).starts_with(expected), "{}", headline(&facts));
}

#[test]
fn of_failures_at_once_the_cause_is_to_blame() {
    let mut facts = world(&[(0, code(1), 500), (1, State::Ended(Exit::Signal(9)), 510), (2, code(1), 520)]);
    assert!(headline(&facts).starts_with("rank 1 failed: killed by SIGKILL"));
    facts[1].after = Duration::from_millis(600);
    assert!(headline(&facts).starts_with("rank 0 failed"));
    facts[0].report = missing("rank 1 has not come", &[1]);
    assert!(headline(&facts).starts_with("rank 2 failed"));
}

#[test]
fn a_panic_an_abort_or_a_report_may_follow_from_an_earlier_failure() {
    let mut facts = world(&[(0, code(1), 500), (1, code(101), 510), (2, State::Ended(Exit::Signal(SIGABRT)), 520)]);
    for rank in [1, 2] {
        facts[rank].remains.panic = Some(Panic { place: "a.rs:1:1".to_owned(), message: "rank 0 is dead".to_owned() });
    }
    assert!(headline(&facts).starts_with("rank 0 failed: exit code 1"));
    facts[0].report = missing("ValueError: no", &[]);
    assert!(headline(&facts).starts_with("rank 0 gave up"));
    facts[0].after = Duration::from_millis(515);
    assert!(headline(&facts).starts_with("rank 1 failed: panicked"));
}

/// A panic is told to the others while its process is on its way to the end, and what others say of a rank is in their words only.
#[test]
fn a_rank_that_panicked_is_to_blame_though_others_end_before_it() {
    let mut facts = world(&[(0, code(1), 500), (1, code(101), 590), (2, code(1), 501), (3, code(1), 502)]);
    assert!(headline(&facts).starts_with("rank 0 failed: exit code 1 after 0.500 s"));
    for rank in [0, 2, 3] {
        facts[rank].accusation = laid_on(1);
    }
    facts[1].remains.panic = Some(Panic { place: "a.rs:1:1".to_owned(), message: "no".to_owned() });
    let expected = "rank 1 failed: panicked at a.rs:1:1 after 0.590 s: no (host a, pid 4701, epoch 0)";
    assert_eq!(headline(&facts), format!("{expected}; 3 other ranks failed after it"));
    // It may take so long for it that it is stopped with the rest.
    facts[1].state = State::Stopped(None);
    assert_eq!(headline(&facts), format!("{expected}; 3 other ranks failed after it"));
}

#[test]
fn who_ends_with_an_error_of_its_own_is_to_blame_and_not_who_only_suffers() {
    let mut facts = world(&[(0, code(1), 500), (1, code(101), 501), (2, code(4), 590)]);
    facts[0].accusation = laid_on(2);
    facts[1].accusation = laid_on(2);
    facts[1].remains.panic = Some(Panic { place: "a.rs:1:1".to_owned(), message: "rank 2 has left".to_owned() });
    assert!(headline(&facts).starts_with("rank 2 failed: exit code 4 after 0.590 s"), "{}", headline(&facts));
    // Each lays it on the other.
    facts[2].accusation = laid_on(0);
    assert!(headline(&facts).starts_with("rank 0 failed: exit code 1 after 0.500 s"), "{}", headline(&facts));
}

/// Its groups say that it leaves before its process has ended, which may take so long that it is stopped with the rest.
#[test]
fn who_ends_with_an_error_is_to_blame_though_it_was_asked_to_end_meanwhile() {
    let mut facts = world(&[(0, code(1), 500), (2, State::Stopped(Some(Exit::Code(4))), 720)]);
    facts[0].accusation = laid_on(2);
    assert_eq!(
        headline(&facts),
        "rank 2 failed: exit code 4 after 0.720 s (host a, pid 4702, epoch 0); 2 other ranks were stopped; 1 other rank \
         failed after it"
    );
    // Who only answers the signal, by it or by the code that shells have for it, has no error of its own.
    for answer in [Exit::Signal(15), Exit::Code(143), Exit::Code(0)] {
        facts[2].state = State::Stopped(Some(answer));
        assert!(headline(&facts).starts_with("rank 0 failed: exit code 1 after 0.500 s"), "{}", headline(&facts));
    }
    facts[2].report = missing("ValueError: no", &[]);
    assert!(headline(&facts).starts_with("rank 2 gave up after 0.720 s: ValueError: no"), "{}", headline(&facts));
    // Nor has who suffers itself.
    facts[2].accusation = laid_on(3);
    assert!(headline(&facts).starts_with("rank 0 failed"), "{}", headline(&facts));
}

/// Who was only waited for worked until it was asked to end, and ends by a code of its own where it has a handler for that.
#[test]
fn who_answers_the_request_to_end_by_a_code_of_its_own_is_not_to_blame_for_that() {
    let mut facts = world(&[(0, code(1), 500), (2, State::Stopped(Some(Exit::Code(1))), 720)]);
    facts[0].accusation = waiting_for(2);
    assert_eq!(
        headline(&facts),
        "rank 0 failed: exit code 1 after 0.500 s (host a, pid 4700, epoch 0); before, its group failed: barrier not \
         finished; waiting for rank 2; 3 other ranks were stopped"
    );
    facts[2].report = missing("ValueError: no", &[]);
    assert!(headline(&facts).starts_with("rank 2 gave up after 0.720 s: ValueError: no"), "{}", headline(&facts));
    facts[2].report = None;
    facts[2].remains.panic = Some(Panic { place: "a.rs:1:1".to_owned(), message: "no".to_owned() });
    assert!(headline(&facts).starts_with("rank 2 failed: panicked at a.rs:1:1"), "{}", headline(&facts));
}

#[test]
fn whom_a_rank_missed_before_it_joined_at_last_is_of_no_account() {
    let answer = State::Stopped(Some(Exit::Signal(15)));
    let mut facts = world(&[(0, code(1), 500), (2, answer, 720)]);
    facts[2].report = missing("rank 3 is missing", &[3]);
    for accusation in [waiting_for(2), laid_on(2)] {
        facts[0].accusation = accusation;
        assert!(headline(&facts).starts_with("rank 0 failed: exit code 1 after 0.500 s"), "{}", headline(&facts));
    }
    facts[2].state = State::Stopped(Some(Exit::Code(4)));
    assert!(headline(&facts).starts_with("rank 2 failed: exit code 4 after 0.720 s"), "{}", headline(&facts));
}

#[test]
fn who_was_waited_for_is_told_where_it_did_not_fail() {
    let mut facts = world(&[(0, code(1), 500), (1, code(1), 501)]);
    facts[0].accusation = waiting_for(2);
    assert_eq!(
        headline(&facts),
        "rank 0 failed: exit code 1 after 0.500 s (host a, pid 4700, epoch 0); before, its group failed: barrier not \
         finished; waiting for rank 2; 2 other ranks were stopped; 1 other rank failed after it"
    );
}

fn laid_on(rank: usize) -> Option<Accusation> {
    Some(Accusation { failure: format!("rank {rank} is dead"), ranks: vec![rank], gone: true })
}

fn waiting_for(rank: usize) -> Option<Accusation> {
    Some(Accusation {
        failure: format!("barrier not finished; waiting for rank {rank}"),
        ranks: vec![rank],
        gone: false,
    })
}

#[test]
fn a_panic_is_quoted_only_where_it_was_the_end() {
    let panic = Panic { place: "src/main.rs:5:9".to_owned(), message: "no".to_owned() };
    let mut facts = world(&[(1, code(101), 20)]);
    facts[1].remains.panic = Some(panic);
    assert!(headline(&facts).starts_with("rank 1 failed: panicked at src/main.rs:5:9 after 0.020 s: no (host a"));
    facts[1].state = code(3);
    assert!(headline(&facts).starts_with("rank 1 failed: exit code 3"));
}

#[test]
fn a_rank_that_answered_nobody_is_named_before_who_failed_of_that() {
    let mut facts = world(&[(1, code(1), 3020), (3, State::Halted, 3200)]);
    assert_eq!(
        headline(&facts),
        "rank 3 did not go on, halted by a signal (host a, pid 4703); rank 1 failed: exit code 1 after 3.020 s (host a, \
         pid 4701, epoch 0); 2 other ranks were stopped"
    );
    facts[0].state = State::Halted;
    assert!(
        headline(&facts).starts_with("ranks 0, 3 did not go on, halted by a signal; rank 1 failed"),
        "{}",
        headline(&facts)
    );
    facts[1].state = State::Ended(Exit::Signal(9));
    assert!(headline(&facts).starts_with("rank 1 failed: killed by SIGKILL"));
    facts[1].state = code(1);
    facts[1].report = missing("rank 3 has not come", &[3]);
    assert!(headline(&facts).contains("; rank 3 was halted by a signal (host a, pid 4703)"), "{}", headline(&facts));
}

#[test]
fn a_rank_is_quoted_in_its_own_words() {
    let mut facts = world(&[(1, code(1), 20)]);
    facts[1].report = missing("ValueError: no\nmore", &[]);
    assert!(headline(&facts).starts_with("rank 1 gave up after 0.020 s: ValueError: no (host a"));
}

#[test]
fn those_who_never_came_are_to_blame_rather_than_who_tells() {
    let mut facts = world(&[(0, code(1), 5000), (1, code(1), 5001), (3, code(1), 5002)]);
    for rank in [0, 1, 3] {
        facts[rank].report = missing("rank 2 is missing", &[2]);
    }
    let verdict = judge(&facts, 1).unwrap();
    assert_eq!(
        verdict.headline,
        "rank 2 never joined the world within 5.000 s: 3 of 4 ranks came (missing: 2); rank 2 was still running \
         (host a, pid 4702) (told by rank 0, epoch 1)"
    );
    assert_eq!(verdict.details, ["  rank 0 says: rank 2 is missing"]);
}

#[test]
fn who_failed_by_itself_is_to_blame_before_who_never_came() {
    let mut facts = world(&[(0, code(1), 5000), (2, code(7), 5050)]);
    facts[0].report = missing("rank 2 is missing", &[2]);
    assert!(headline(&facts).starts_with("rank 2 failed: exit code 7"));
    facts[2].state = code(0);
    assert!(headline(&facts).contains("rank 2 had ended with exit code 0 after 5.050 s"));
    facts[0].report = missing("two are missing", &[2, 9]);
    assert!(headline(&facts).starts_with("ranks 2, 9 never joined"));
    assert!(headline(&facts).contains("of rank 9 nothing is known"));
}

#[test]
fn the_last_lines_are_shown_with_the_name_of_the_log() {
    let mut facts = world(&[(1, code(3), 20)]);
    facts[1].remains.tail = vec!["one".to_owned(), "two".to_owned()];
    let text = judge(&facts, 0).unwrap().to_string();
    assert!(text.ends_with("\n  rank 1 wrote last on standard error:\n    one\n    two"), "{text}");
    facts[1].log = Some(PathBuf::from("logs/stderr.log"));
    assert_eq!(judge(&facts, 0).unwrap().details[0], "  rank 1 wrote last on standard error (logs/stderr.log):");
    facts[1].remains.tail.clear();
    assert_eq!(judge(&facts, 0).unwrap().details, ["  its output is in logs/stderr.log"]);
}
