//! The machine by its lists: what it does for a forward and a backward, event by event.

use super::Action::{AwaitGather, AwaitReduceScatter, Gather, Release};
use super::*;

/// What the reference's own tests write down of a run: gathers as they begin, and the ends of backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Unshard(usize),
    PostBackward(usize),
}
use Seen::{PostBackward, Unshard};

/// Units 1, 2, 3 inside unit 0, which is kept after forward.
fn nested(depth: Depth) -> Machine {
    Machine::new(&[Reshard::No, Reshard::Yes, Reshard::Yes, Reshard::Yes], depth, false)
}

fn flat(units: usize, depth: Depth) -> Machine {
    Machine::new(&vec![Reshard::Yes; units], depth, false)
}

const NONE: Depth = Depth { forward: 0, backward: 0 };
const ONE: Depth = Depth { forward: 1, backward: 1 };

fn forward_of_nested() -> Vec<Event> {
    let inner = [1, 2, 3].into_iter().flat_map(|unit| [Event::BeforeForward(unit), Event::AfterForward(unit)]);
    [Event::BeforeForward(0)].into_iter().chain(inner).chain([Event::AfterForward(0)]).collect()
}

fn backward(unit: usize) -> [Event; 2] {
    [Event::BeforeBackward(unit), Event::AfterBackward { unit, reduces: true }]
}

fn backward_of_nested() -> Vec<Event> {
    let mut events = vec![Event::BeforeBackward(0)];
    events.extend([3, 2, 1].into_iter().flat_map(backward));
    events.push(Event::AfterBackward { unit: 0, reduces: true });
    events
}

fn actions(machine: &mut Machine, events: &[Event]) -> Vec<Action> {
    events.iter().flat_map(|event| machine.on(*event).expect("a proper event")).collect()
}

fn seen(machine: &mut Machine, events: &[Event]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for event in events {
        let did = machine.on(*event).expect("a proper event");
        seen.extend(did.into_iter().filter_map(|action| match action {
            Gather(unit) => Some(Unshard(unit)),
            _ => None,
        }));
        if let Event::AfterBackward { unit, .. } = event {
            seen.push(PostBackward(*unit));
        }
    }
    seen
}

#[test]
fn backward_fetches_the_unit_before_ahead() {
    let mut machine = nested(Depth { forward: 0, backward: 1 });
    for _step in 0..2 {
        let forward = seen(&mut machine, &forward_of_nested());
        assert_eq!(forward, [Unshard(0), Unshard(1), Unshard(2), Unshard(3)]);
        let backward = seen(&mut machine, &backward_of_nested());
        assert_eq!(
            backward,
            [Unshard(3), Unshard(2), PostBackward(3), Unshard(1), PostBackward(2), PostBackward(1), PostBackward(0)]
        );
        machine.on(Event::BackwardEnd).expect("an end");
        assert_eq!(machine.gathered(), 0);
    }
}

#[test]
fn nothing_is_kept_for_a_backward_that_does_not_follow() {
    for reshard in [Reshard::Yes, Reshard::No, Reshard::Smaller] {
        let mut machine = Machine::new(&[reshard], NONE, false);
        machine.settings_mut().trains = false;
        for _again in 0..2 {
            let used = actions(&mut machine, &[Event::BeforeForward(0)]);
            assert_eq!(used, [Gather(0), AwaitGather(0)], "{reshard:?}");
            assert_eq!(actions(&mut machine, &[Event::AfterForward(0)]), [Release(0)], "{reshard:?}");
        }
        // Its buffer serves the next as soon as it was copied.
        actions(&mut machine, &[Event::BeforeForward(0)]);
        assert_eq!(actions(&mut machine, &[Event::Copied(0)]), [Release(0)], "{reshard:?}");
        assert_eq!(actions(&mut machine, &[Event::AfterForward(0)]), [], "{reshard:?}");
        assert_eq!(machine.gathered(), 0, "{reshard:?}");
        // What somebody asked for stays.
        actions(&mut machine, &[Event::Unshard(0), Event::BeforeForward(0)]);
        assert_eq!(actions(&mut machine, &[Event::AfterForward(0)]), [], "{reshard:?}");
        assert!(machine.holds(0), "{reshard:?}");
    }
}

#[test]
fn two_forwards_then_one_backward_repeat_it() {
    let mut machine = nested(Depth { forward: 0, backward: 1 });
    let once = [Unshard(1), Unshard(2), Unshard(3)];
    assert_eq!(seen(&mut machine, &forward_of_nested()), [&[Unshard(0)][..], &once].concat());
    // The outer unit is still there from the first time.
    assert_eq!(seen(&mut machine, &forward_of_nested()), once);
    let first =
        [Unshard(3), Unshard(2), PostBackward(3), Unshard(1), PostBackward(2), PostBackward(1), PostBackward(0)];
    assert_eq!(seen(&mut machine, &backward_of_nested()), first);
    let second = seen(&mut machine, &backward_of_nested());
    assert_eq!(second, [&[Unshard(0)][..], &first].concat());
}

#[test]
fn forward_fetches_ahead_as_far_as_asked() {
    let events = [0, 1, 2, 3].into_iter().flat_map(|unit| [Event::BeforeForward(unit), Event::AfterForward(unit)]);
    let events: Vec<Event> = events.collect();
    let mut machine = flat(4, ONE);
    let wanted = [Gather(0), AwaitGather(0), Gather(1), Release(0), AwaitGather(1), Gather(2), Release(1)];
    assert_eq!(actions(&mut machine, &events[..4]), wanted);
    let mut machine = flat(4, Depth { forward: 2, backward: 0 });
    let wanted = [Gather(0), AwaitGather(0), Gather(1), Gather(2), Release(0), AwaitGather(1), Gather(3), Release(1)];
    assert_eq!(actions(&mut machine, &events[..4]), wanted);
    let mut machine = flat(4, NONE);
    let wanted = [Gather(0), AwaitGather(0), Release(0), Gather(1), AwaitGather(1), Release(1)];
    assert_eq!(actions(&mut machine, &events[..4]), wanted);
}

#[test]
fn units_that_follow_each_other_in_turns_are_fetched_once() {
    let events = [0, 1].into_iter().flat_map(|unit| [Event::BeforeForward(unit), Event::AfterForward(unit)]);
    let events: Vec<Event> = events.collect();
    let mut machine = flat(2, Depth { forward: usize::MAX, backward: usize::MAX });
    actions(&mut machine, &events);
    assert_eq!(actions(&mut machine, &events[..1]), [Gather(0), AwaitGather(0), Gather(1)]);
}

#[test]
fn lists_of_what_to_fetch_take_the_place_of_the_order() {
    let mut machine = nested(ONE);
    machine.prefetch_in_forward(0, &[1, 2]).expect("units");
    machine.prefetch_in_forward(1, &[2, 3]).expect("units");
    machine.prefetch_in_forward(2, &[3]).expect("units");
    machine.prefetch_in_backward(3, &[2, 1]).expect("units");
    machine.prefetch_in_backward(0, &[]).expect("units");
    let forward = actions(&mut machine, &forward_of_nested());
    let wanted = [Gather(0), AwaitGather(0), Gather(1), Gather(2), AwaitGather(1), Gather(3), Release(1)];
    assert_eq!(forward[..7], wanted);
    let backward = seen(&mut machine, &backward_of_nested());
    assert_eq!(
        backward,
        [Unshard(3), Unshard(2), Unshard(1), PostBackward(3), PostBackward(2), PostBackward(1), PostBackward(0)]
    );
    assert!(machine.prefetch_in_forward(0, &[4]).is_err() && machine.prefetch_in_backward(4, &[0]).is_err());
}

#[test]
fn the_order_of_the_last_forward_is_learnt() {
    let mut machine = flat(3, ONE);
    for wanted in [[Gather(1), Gather(0)], [Gather(0), Gather(1)]] {
        let mut first = actions(&mut machine, &[Event::BeforeForward(2), Event::AfterForward(2)]);
        first.extend(actions(&mut machine, &[Event::BeforeForward(0), Event::AfterForward(0)]));
        first.extend(actions(&mut machine, &[Event::BeforeForward(1), Event::AfterForward(1)]));
        let gathers = first.into_iter().filter(|action| matches!(action, Gather(unit) if *unit < 2));
        let mut gathers = gathers.collect::<Vec<_>>();
        gathers.dedup();
        gathers.sort_by_key(|gather| wanted.iter().position(|other| other == gather));
        assert_eq!(gathers, wanted);
        actions(&mut machine, &[Event::BeforeBackward(1), Event::BackwardEnd]);
    }
    let ahead = actions(&mut machine, &[Event::BeforeForward(2)]);
    assert_eq!(ahead, [Gather(2), AwaitGather(2), Gather(0)]);
}

#[test]
fn what_was_fetched_for_another_branch_is_freed() {
    let mut machine = flat(4, ONE);
    let mut did = actions(&mut machine, &[Event::BeforeForward(0), Event::AfterForward(0), Event::BeforeForward(2)]);
    let wanted = [AwaitGather(1), Release(1), Gather(2), AwaitGather(2), Gather(3)];
    assert_eq!(did.split_off(did.len() - 5), wanted);
    assert_eq!(actions(&mut machine, &[Event::AfterForward(2)]), [Release(2)]);
    assert_eq!(actions(&mut machine, &[Event::BackwardEnd]), [AwaitGather(3), Release(3)]);
    assert_eq!(machine.gathered(), 0);
}

#[test]
fn a_reduction_is_awaited_when_the_next_begins() {
    let mut machine = flat(2, NONE);
    actions(&mut machine, &[0, 1].map(|unit| [Event::BeforeForward(unit), Event::AfterForward(unit)]).concat());
    let did = actions(&mut machine, &[1, 0].map(backward).concat());
    let (scatter, sum) = (Action::ReduceScatter, Action::Accumulate);
    let wanted = [Gather(1), AwaitGather(1), Release(1), scatter(1), Gather(0), AwaitGather(0), Release(0)];
    assert_eq!(did[..7], wanted);
    assert_eq!(did[7..], [AwaitReduceScatter(1), sum(1), scatter(0)]);
    assert_eq!(actions(&mut machine, &[Event::BackwardEnd]), [AwaitReduceScatter(0), sum(0)]);
}

#[test]
fn replicas_come_together_one_unit_later() {
    let mut machine = Machine::new(&[Reshard::No; 3], NONE, true);
    let forward = [0, 1, 2].map(|unit| [Event::BeforeForward(unit), Event::AfterForward(unit)]).concat();
    actions(&mut machine, &forward);
    let reductions = |machine: &mut Machine, events: &[Event]| {
        let did = actions(machine, events).into_iter();
        did.filter(|did| !matches!(did, Gather(_) | AwaitGather(_) | Release(_))).collect::<Vec<_>>()
    };
    use Action::{Accumulate, AllReduce, AwaitAllReduce, KeepPartial, ReduceScatter};
    assert_eq!(
        reductions(&mut machine, &[2, 1, 0].map(backward).concat()),
        [
            ReduceScatter(2),
            AwaitReduceScatter(2),
            AllReduce(2),
            ReduceScatter(1),
            AwaitAllReduce(2),
            Accumulate(2),
            AwaitReduceScatter(1),
            AllReduce(1),
            ReduceScatter(0)
        ]
    );
    assert_eq!(
        reductions(&mut machine, &[Event::BackwardEnd]),
        [AwaitAllReduce(1), Accumulate(1), AwaitReduceScatter(0), AllReduce(0), AwaitAllReduce(0), Accumulate(0)]
    );
    machine.settings_mut().all_reduces = false;
    let did = reductions(&mut machine, &[&backward(1)[..], &[Event::BackwardEnd]].concat());
    assert_eq!(did, [ReduceScatter(1), AwaitReduceScatter(1), KeepPartial(1)]);
}

#[test]
fn the_smaller_group_serves_backward_and_no_later_forward() {
    let mut machine = Machine::new(&[Reshard::Smaller; 2], NONE, false);
    let forward = [0, 1].map(|unit| [Event::BeforeForward(unit), Event::AfterForward(unit)]).concat();
    for _step in 0..2 {
        let did = actions(&mut machine, &forward);
        let wanted = [0, 1].map(|unit| [Gather(unit), AwaitGather(unit), Action::Narrow(unit)]).concat();
        assert_eq!(did, wanted);
        let did = actions(&mut machine, &backward(1));
        assert_eq!(did[..3], [Action::GatherNarrow(1), AwaitGather(1), Release(1)]);
        // No backward came to the other one.
        let did = actions(&mut machine, &[Event::BackwardEnd]);
        assert_eq!(did[0], Release(0));
    }
}

#[test]
fn what_was_kept_as_a_copy_is_not_divided() {
    let mut machine = Machine::new(&[Reshard::Smaller], NONE, false);
    (machine.settings_mut().copies, machine.settings_mut().reshards_after_backward) = (true, false);
    let step = [Event::BeforeForward(0), Event::Copied(0), Event::AfterForward(0), Event::BeforeBackward(0)];
    actions(&mut machine, &step);
    actions(&mut machine, &[Event::Copied(0), Event::AfterBackward { unit: 0, reduces: false }, Event::BackwardEnd]);
    assert!(machine.holds(0) && machine.is_copied(0));
    let again = [Event::BeforeForward(0), Event::Copied(0), Event::Reshard(0), Event::AfterForward(0)];
    assert_eq!(actions(&mut machine, &again), []);
    machine.settings_mut().reshards_after_backward = true;
    let did = actions(&mut machine, &[Event::BeforeBackward(0), Event::Copied(0)]);
    assert_eq!(did, [Gather(0), AwaitGather(0), Release(0)]);
}

#[test]
fn a_changed_unit_is_gathered_again() {
    let mut machine = flat(2, NONE);
    assert_eq!(actions(&mut machine, &[Event::Unshard(0)]), [Gather(0), AwaitGather(0)]);
    assert_eq!(actions(&mut machine, &[Event::BeforeForward(0), Event::AfterForward(0)]), []);
    assert_eq!(actions(&mut machine, &[Event::Changed(1), Event::Changed(0)]), [Release(0)]);
    assert_eq!(actions(&mut machine, &[Event::Unshard(0), Event::Reshard(0)]), [Gather(0), AwaitGather(0), Release(0)]);
}

/// A forward that failed in the unit never left it: what was gathered there is of before the change.
#[test]
fn a_unit_that_changed_while_somebody_was_in_it_is_gathered_again() {
    for reshard in [Reshard::No, Reshard::Yes, Reshard::Smaller] {
        let mut machine = Machine::new(&[reshard], NONE, false);
        actions(&mut machine, &[Event::BeforeForward(0)]);
        assert_eq!(actions(&mut machine, &[Event::Changed(0)]), []);
        assert_eq!(actions(&mut machine, &[Event::BeforeForward(0)]), [Release(0), Gather(0), AwaitGather(0)]);
        assert_eq!(actions(&mut machine, &[Event::Changed(0), Event::AfterForward(0)]), [Release(0)]);
        assert_eq!(actions(&mut machine, &[Event::BeforeBackward(0)]), [Gather(0), AwaitGather(0)]);
    }
}

#[test]
fn a_copied_unit_is_freed_while_it_is_used_unless_it_stays() {
    let mut machine = Machine::new(&[Reshard::Yes, Reshard::No, Reshard::Smaller], NONE, false);
    for (unit, did) in [(0, &[Release(0)][..]), (1, &[]), (2, &[])] {
        actions(&mut machine, &[Event::BeforeForward(unit)]);
        assert_eq!(actions(&mut machine, &[Event::Copied(unit)]), did, "unit {unit}");
        let end = actions(&mut machine, &[Event::Copied(unit), Event::AfterForward(unit)]);
        assert_eq!(end, if unit == 2 { vec![Action::Narrow(2)] } else { vec![] });
    }
    assert_eq!(actions(&mut machine, &[Event::BeforeBackward(0), Event::Copied(0)]).last(), Some(&Release(0)));
    assert_eq!(actions(&mut machine, &[Event::BeforeBackward(1), Event::Copied(1)]), [Release(1)]);
    machine.settings_mut().reshards_after_backward = false;
    let did = actions(&mut machine, &[Event::BeforeBackward(2), Event::Copied(2)]);
    assert_eq!(did, [Action::GatherNarrow(2), AwaitGather(2)]);
    assert!(machine.on(Event::Copied(3)).is_err());
}

#[test]
fn what_follows_a_copied_unit_is_gathered_in_its_place() {
    let mut machine = Machine::new(&[Reshard::Yes, Reshard::Yes, Reshard::No], ONE, false);
    machine.settings_mut().copies = true;
    for _step in 0..2 {
        for unit in 0..3 {
            let did = actions(&mut machine, &[Event::BeforeForward(unit)]);
            assert_eq!(did.last(), Some(&AwaitGather(unit)));
            let did = actions(&mut machine, &[Event::Copied(unit)]);
            let wanted = [vec![Release(0), Gather(1)], vec![Release(1), Gather(2)], vec![Release(2)]];
            assert_eq!(did, wanted[unit], "unit {unit}");
            assert_eq!(actions(&mut machine, &[Event::Copied(unit), Event::AfterForward(unit)]), []);
            assert_eq!((machine.holds(unit), machine.is_copied(unit)), (unit == 2, unit == 2));
        }
        for unit in [2, 1, 0] {
            let did = actions(&mut machine, &[Event::BeforeBackward(unit)]);
            assert_eq!(did.last(), (unit < 2).then_some(&AwaitGather(unit)));
            let did = actions(&mut machine, &[Event::Copied(unit)]);
            let wanted = [vec![Release(0)], vec![Release(1), Gather(0)], vec![Gather(1)]];
            assert_eq!(did, wanted[unit], "unit {unit}");
            assert!(!machine.holds(unit));
            machine.on(backward(unit)[1]).expect("its end");
        }
        machine.on(Event::BackwardEnd).expect("an end");
        assert_eq!(machine.gathered(), 0);
    }
}

/// As an output layer that is the embedding.
#[test]
fn a_unit_that_is_used_twice_is_followed_by_what_follows_each_use() {
    let mut machine = flat(3, ONE);
    let forward = [0, 1, 2, 0].into_iter().flat_map(|unit| [Event::BeforeForward(unit), Event::AfterForward(unit)]);
    let backward = [0, 2, 1, 0].into_iter().flat_map(backward).chain([Event::BackwardEnd]);
    let step: Vec<Event> = forward.chain(backward).collect();
    let gathers = |machine: &mut Machine| -> Vec<Seen> {
        let mut seen = seen(machine, &step);
        seen.retain(|seen| matches!(seen, Unshard(_)));
        seen
    };
    gathers(&mut machine);
    for _step in 0..2 {
        let did = gathers(&mut machine);
        // The last in forward is the first in backward, and was freed between.
        assert_eq!(did, [0, 1, 2, 0, 0, 2, 1, 0].map(Unshard));
    }
}

/// Its owner lends it to others on the way, and has a copy of it.
#[test]
fn a_copied_unit_that_somebody_is_in_is_not_gathered_ahead_for_the_next_time() {
    let mut machine = flat(3, ONE);
    (machine.settings_mut().copies, machine.settings_mut().trains) = (true, false);
    let inner = [1, 2]
        .into_iter()
        .flat_map(|unit| [Event::BeforeForward(unit), Event::Copied(unit), Event::AfterForward(unit)]);
    let walk: Vec<Event> =
        [Event::BeforeForward(0), Event::Copied(0)].into_iter().chain(inner).chain([Event::AfterForward(0)]).collect();
    for walked in 0..3 {
        let did = actions(&mut machine, &walk);
        let gathered: Vec<usize> =
            did.iter().filter_map(|action| if let Gather(unit) = action { Some(*unit) } else { None }).collect();
        assert_eq!(gathered, [0, 1, 2], "walk {walked}");
    }
}

#[test]
fn what_the_last_backward_skips_is_reduced_at_its_end() {
    let mut machine = Machine::new(&[Reshard::Yes; 2], ONE, true);
    assert!(machine.is_due(true, false) && machine.is_due(false, true) && !machine.is_due(false, false));
    let wanted = [
        Action::ReduceScatter(1),
        AwaitReduceScatter(1),
        Action::AllReduce(1),
        Action::AwaitAllReduce(1),
        Action::Accumulate(1),
    ];
    assert_eq!(actions(&mut machine, &[Event::BackwardEnd, Event::Skipped(1)]), wanted);
    machine.settings_mut().all_reduces = false;
    assert!(machine.is_due(true, false) && !machine.is_due(false, true));
    let wanted = [Action::ReduceScatter(1), AwaitReduceScatter(1), Action::KeepPartial(1)];
    assert_eq!(actions(&mut machine, &[Event::BackwardEnd, Event::Skipped(1)]), wanted);
    machine.settings_mut().is_last_backward = false;
    assert!(!machine.is_due(true, true));
    assert!(machine.on(Event::Skipped(2)).is_err());
}

#[test]
fn what_was_not_entered_is_refused() {
    let mut machine = flat(2, ONE);
    let refused = [Event::AfterForward(0), backward(1)[1], Event::BeforeForward(2), Event::BeforeBackward(2)];
    for event in refused.into_iter().chain([Event::Unshard(2), Event::Reshard(9), Event::Changed(2)]) {
        assert!(matches!(machine.on(event), Err(Error::Usage(_))), "{event:?}");
    }
    let error = machine.on(Event::BeforeForward(2)).expect_err("no such unit");
    assert_eq!(error.to_string(), "before_forward: unit is 2, must be below 2, the number of units");
    assert_eq!(machine.gathered(), 0);
}

/// Whatever a model comes to: no action without its beginning, never more gathered than is wanted and fetched ahead, and nothing left.
#[test]
fn any_walk_keeps_the_bound_and_leaves_nothing() {
    for seed in 0..2000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let depth = Depth { forward: random.usize(..4), backward: random.usize(..4) };
        let count = random.usize(1..6);
        let reshards = [Reshard::Yes, Reshard::No, Reshard::Smaller];
        let reshards: Vec<_> = (0..count).map(|_| reshards[random.usize(..3)]).collect();
        let mut machine = Machine::new(&reshards, depth, random.bool());
        let copies = random.bool();
        machine.settings_mut().copies = copies;
        let mut model = Model::new(count);
        for _step in 0..3 {
            let path: Vec<usize> = (0..random.usize(1..8)).map(|_| random.usize(..count)).collect();
            let forward = path.iter().map(|unit| [Event::BeforeForward(*unit), Event::AfterForward(*unit)]);
            let reaches = random.usize(..=path.len());
            let pairs = forward
                .chain(path.iter().rev().take(reaches).map(|unit| backward(*unit)))
                .zip(path.iter().chain(path.iter().rev()));
            let mut events: Vec<Event> = pairs
                .flat_map(|([begin, end], unit)| [Some(begin), copies.then_some(Event::Copied(*unit)), Some(end)])
                .flatten()
                .collect();
            events.push(Event::BackwardEnd);
            for event in events {
                let wanted = machine.wanted();
                let actions = machine.on(event).expect("a proper event");
                let most = machine.wanted().max(wanted) + depth.forward.max(depth.backward);
                for action in actions {
                    model.check(action, seed);
                    assert!(model.gathered() <= most, "seed {seed}: {action:?} of {event:?}");
                }
                let ahead = machine.gathered() - machine.wanted();
                assert!(ahead <= depth.forward.max(depth.backward), "seed {seed}: {ahead} ahead after {event:?}");
                let copied = (0..count).filter(|unit| machine.is_copied(*unit)).count();
                assert_eq!(machine.gathered(), model.gathered() + copied, "seed {seed}");
            }
            assert_eq!((machine.gathered(), model.is_empty()), (0, true), "seed {seed}");
        }
    }
}

/// What there is of each unit, by the actions alone.
struct Model {
    full: Vec<Option<bool>>,
    narrow: Vec<bool>,
    reducing: Vec<&'static str>,
}

impl Model {
    fn new(units: usize) -> Model {
        Model { full: vec![None; units], narrow: vec![false; units], reducing: vec![""; units] }
    }

    fn check(&mut self, action: Action, seed: u64) {
        let mut stage = |unit: usize, from: &[&str], to| {
            assert!(from.contains(&self.reducing[unit]), "seed {seed}: {action:?} after {:?}", self.reducing[unit]);
            self.reducing[unit] = to;
        };
        match action {
            Gather(unit) => assert_eq!(self.full[unit].replace(false), None, "seed {seed}: {action:?}"),
            Action::GatherNarrow(unit) => {
                assert!(std::mem::take(&mut self.narrow[unit]), "seed {seed}: {action:?}");
                assert_eq!(self.full[unit].replace(false), None, "seed {seed}: {action:?}");
            }
            AwaitGather(unit) => assert_eq!(self.full[unit].replace(true), Some(false), "seed {seed}: {action:?}"),
            Action::Narrow(unit) => {
                assert_eq!(self.full[unit].take(), Some(true), "seed {seed}: {action:?}");
                self.narrow[unit] = true;
            }
            Release(unit) => {
                let is_narrow = std::mem::take(&mut self.narrow[unit]);
                assert_ne!(self.full[unit].take() == Some(true), is_narrow, "seed {seed}: {action:?}");
            }
            Action::ReduceScatter(unit) => stage(unit, &[""], "scattering"),
            AwaitReduceScatter(unit) => stage(unit, &["scattering"], "scattered"),
            Action::AllReduce(unit) => stage(unit, &["scattered"], "joining"),
            Action::AwaitAllReduce(unit) => stage(unit, &["joining"], "joined"),
            Action::Accumulate(unit) => stage(unit, &["scattered", "joined"], ""),
            Action::KeepPartial(unit) => stage(unit, &["scattered"], ""),
        }
    }

    fn gathered(&self) -> usize {
        self.full.iter().flatten().count()
    }

    fn is_empty(&self) -> bool {
        self.gathered() == 0 && !self.narrow.contains(&true) && self.reducing.iter().all(|stage| stage.is_empty())
    }
}
