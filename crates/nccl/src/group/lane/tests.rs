//! Who comes too late for a lane, and whom that must not hold up.

use phalanx_core::{Call, DType, Group, GroupOptions, Layout, Op};

use super::super::backend::NcclBackend;
use super::super::flight::Stage;
use super::super::job::Held;
use super::super::options::NcclOptions;
use super::super::stack::Stack;
use super::*;
use crate::api::Device;
use crate::sim::{Outcome, SimCuda, SimNccl, SimProcess, SimRank, Simulation};

type Backend = NcclBackend<SimNccl, SimCuda, SimProcess>;

const DEVICE: Device = Device(0);

fn backend(rank: &SimRank, scope: &str) -> Arc<Backend> {
    let (nccl, cuda, process) = (Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process));
    let (stack, store) = (Stack::new(nccl, cuda, process, DEVICE), rank.store.scope(scope));
    let backend = NcclBackend::new(stack, layout(), store, NcclOptions::default());
    Arc::new(backend.expect("a group"))
}

fn layout() -> Layout {
    Layout::one_host(0, 1).expect("one rank")
}

fn over(backend: &Arc<Backend>) -> Group {
    Group::new(layout(), Arc::clone(backend) as _, GroupOptions::default())
}

fn numbered(group: &Group) -> Call {
    group.call_elsewhere(Op::Barrier, DType::F32, None, Some(0), 0).expect("a number")
}

/// Whether the calling thread gets on with another group.
fn goes_on(other: &Arc<Backend>) -> bool {
    over(other).within(Duration::from_secs(1)).barrier().is_ok()
}

fn is_clean<T>(outcome: &Outcome<T>) -> bool {
    outcome.findings.is_empty() && outcome.left_over.is_empty() && outcome.not_freed == [(0, 0)]
}

/// The group is left between the call and its way to the lane.
#[test]
fn a_lane_that_has_ended_takes_nothing_more_and_holds_nobody_up() {
    let outcome = Simulation::new(1, 0).run(|rank| {
        let [gone, other] = ["gone", "other"].map(|scope| backend(&rank, scope));
        let group = over(&gone);
        group.barrier().expect("alone");
        let (lane, call) = (Lane::of(&gone.hall, Line::Whole).expect("a lane"), numbered(&group));
        gone.leave(Duration::from_secs(10)).expect("an end");
        let prints = vec![call.fingerprint];
        let flight = gone.hall.depart(vec![call], None).expect("under way");
        let (steps, held) = (Vec::new(), Held::device(Vec::new()));
        let refused = lane.push(Job { flight: Arc::clone(&flight), steps, held, errand: None, prints, pushed: 0 });
        let told = refused.expect_err("nobody looks").to_string();
        let new = Lane::of(&gone.hall, Line::Pair(0, 0)).map(drop).expect_err("nobody would end it").to_string();
        (told, new, flight.stage() == Stage::Done, goes_on(&other))
    });
    assert!(is_clean(&outcome), "{outcome:?}");
    let told = "group aborted: this rank has left the group".to_owned();
    assert_eq!(outcome.results, [Some((told.clone(), told, true, true))]);
}

#[test]
fn an_operation_that_has_failed_before_it_has_its_place_holds_nobody_up() {
    let outcome = Simulation::new(1, 0).run(|rank| {
        let [failed, other] = ["failed", "other"].map(|scope| backend(&rank, scope));
        let flight = failed.hall.depart(vec![numbered(&over(&failed))], None).expect("under way");
        flight.finish(failed.hall.now(), Err(Error::aborted("enough")));
        let group: Weak<dyn Company> = Arc::<Hall<SimNccl, SimCuda, SimProcess>>::downgrade(&failed.hall);
        let begun = Begun { group, op: flight.op, sequence: flight.sequence };
        flight.take_place(Place::next(DEVICE, begun));
        goes_on(&other)
    });
    assert!(is_clean(&outcome), "{outcome:?}");
    assert_eq!(outcome.results, [Some(true)]);
}
