//! Seeds: with faults nothing happens that must not, and every planted bug is found.

use phalanx_core::ErrorKind;
use phalanx_sim::{Ending, FaultKind, Mutation, Options, Tally, ViolationKind, campaign, run};

fn play(options: Options) -> Tally {
    campaign(&options, |_| {})
}

#[test]
fn three_hundred_seeds_keep_the_promise() {
    let tally = play(Options::default().seeds(300));
    let violations: Vec<_> = tally.violations().iter().map(|(seed, _)| run(*seed, None).to_string()).collect();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert_eq!(tally.seeds(), 300);
    assert!(tally.right() > 100 && tally.answers() > tally.right(), "right answers are exercised as well");
    assert!(tally.ticks() > 0 && tally.bytes() > 0);
}

#[test]
fn every_fault_and_every_error_of_a_group_is_seen() {
    let tally = play(Options::default().seeds(1000));
    for fault in FaultKind::ALL {
        assert!(tally.faults().contains_key(&fault), "{fault}: {tally:?}");
    }
    for kind in [ErrorKind::Desync, ErrorKind::Peer, ErrorKind::Timeout, ErrorKind::Aborted] {
        assert!(tally.errors().contains_key(&kind), "{kind:?}: {tally:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    for seed in 0..100 {
        assert_eq!(run(seed, None), run(seed, None));
        assert_eq!(run(seed, Some(Mutation::StaleBuffer)), run(seed, Some(Mutation::StaleBuffer)));
    }
}

#[test]
fn every_planted_bug_is_found_and_the_report_says_how_to_see_it_again() {
    for mutation in Mutation::ALL {
        let options = Options::default().seeds(2000).mutation(Some(mutation));
        let tally = play(options.until_caught(true));
        let Some((seed, kind)) = tally.caught().first().copied() else {
            panic!("{mutation} was not found in {} seeds: {tally:?}", tally.seeds());
        };
        assert!(tally.violations().is_empty(), "{tally:?}");
        let report = run(seed, Some(mutation));
        assert_eq!(report.violation().map(|violation| violation.kind()), Some(kind));
        assert!(report.planted().is_some(), "{report}");
        let again = format!("phalanx simulate --seed {seed} --mutate {mutation}");
        assert_eq!(report.rerun(), again);
        assert!(report.to_string().contains(&again), "{report}");
    }
}

#[test]
fn a_missing_barrier_step_shows_as_an_early_leave() {
    let options = Options::default().seeds(2000).mutation(Some(Mutation::MissingBarrierStep));
    let tally = play(options);
    assert!(tally.caught().iter().all(|(_, kind)| *kind == ViolationKind::EarlyLeave), "{tally:?}");
    assert!(tally.caught().len() > 10 && tally.violations().is_empty(), "{tally:?}");
}

#[test]
fn without_a_place_for_the_bug_every_answer_is_right() {
    let barrier = Some(Mutation::MissingBarrierStep);
    let reports: Vec<_> = (0..100).map(|seed| run(seed, barrier)).filter(|report| report.planted().is_none()).collect();
    assert!(!reports.is_empty());
    for report in reports {
        assert!(report.endings().iter().all(|ending| *ending == Ending::Right), "{report}");
        assert_eq!((report.violation(), report.fault()), (None, None));
    }
}

#[test]
fn mutations_round_trip_by_name_and_say_what_they_do() {
    for mutation in Mutation::ALL {
        assert_eq!(mutation.name().parse(), Ok(mutation));
        assert!(!mutation.summary().is_empty());
    }
    let unknown = "lost_wallet".parse::<Mutation>().unwrap_err();
    assert!(unknown.to_string().starts_with("unknown mutation 'lost_wallet'; one of dropped_fold, "));
}
