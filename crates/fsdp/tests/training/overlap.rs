//! The gather of the next unit goes on inside the computation of this one, and the reduction of the last one too: by the records of
//! the group, while the owner does nothing but compute.

use std::time::Duration;

use phalanx_core::recorder::{Record, State};
use phalanx_core::{DType, Group, OpKind};
use phalanx_fsdp::{Gradient, ParamSpec, Policy, Reshard, Sharded, UnitSpec};

use crate::company::Company;
use crate::company::Way;

const UNITS: usize = 4;
const LEN: usize = 300;

/// Operations of one kind, without what the ranks told each other of the model.
fn records(group: &Group, op: OpKind) -> Vec<Record> {
    let all = group.recorder().records().into_iter();
    all.filter(|record| record.op == op && record.dtype != DType::U64).collect()
}

/// A computation that lasts until so many operations of each kind have ended, none of which it waits for: when it was over.
fn compute(group: &Group, gathers: usize, reductions: usize) -> Duration {
    let ended = |op| {
        let of_kind = records(group, op);
        let failed = of_kind.iter().find(|record| matches!(record.state, State::Failed(_)));
        assert!(failed.is_none(), "{failed:?}");
        of_kind.iter().filter(|record| record.state == State::Done).count()
    };
    while ended(OpKind::AllGather) < gathers || ended(OpKind::ReduceScatter) < reductions {
        std::thread::yield_now();
    }
    group.now()
}

/// When each computation of a forward and a backward was over, and the records of gathers and reductions, in order.
fn step(model: &mut Sharded, group: &Group, copies: bool) -> (Vec<Duration>, Vec<Record>, Vec<Record>) {
    let mut computed = vec![];
    model.set_copies(copies);
    for unit in 0..UNITS {
        model.before_forward(unit).expect("a unit");
        if copies {
            model.copied(unit).expect("a unit in use");
        }
        // The last one is kept for backward.
        computed.push(compute(group, (unit + 2).min(UNITS), 0));
        model.after_forward(unit).expect("its end");
    }
    for unit in (0..UNITS).rev() {
        model.before_backward(unit).expect("a unit");
        if copies {
            model.copied(unit).expect("a unit in use");
        }
        let done = UNITS - 1 - unit;
        computed.push(compute(group, UNITS + (done + 1).min(UNITS - 1), done));
        model.gradients(unit, &[Gradient::new(0, &[1.0_f32; LEN])]).expect("its gradients");
    }
    model.finish_backward().expect("the end");
    (computed, records(group, OpKind::AllGather), records(group, OpKind::ReduceScatter))
}

#[test]
fn the_next_gather_and_the_last_reduction_go_on_inside_a_computation() {
    let mut ways = vec![Company::of(2), Company::of(3)];
    ways.push(Company::of(2).way(Way::Segment));
    for (company, copies) in ways.into_iter().flat_map(|company| [false, true].map(|copies| (company, copies))) {
        company.run(|groups, _| {
            let unit = |at: usize| {
                let unit = UnitSpec::new(format!("{at}"), vec![ParamSpec::new("weight", &[LEN], DType::F32)]);
                if at + 1 == UNITS { unit.reshard_after_forward(Reshard::No) } else { unit }
            };
            let group = groups.shard().clone();
            let mut model = Sharded::new(groups, (0..UNITS).map(unit).collect(), Policy::default()).expect("a model");
            let (computed, gathers, reductions) = step(&mut model, &group, copies);
            assert_eq!((gathers.len(), reductions.len()), (2 * UNITS - 1, UNITS));
            // It began when the computation before this one was over, and ended before this one was.
            let inside = |record: &Record, at: usize| {
                let (before, over) = (computed[at.saturating_sub(1)], computed[at]);
                assert!(record.created >= before || at == 0, "{record:?} before {before:?}");
                assert!(record.ended.is_some_and(|ended| ended <= over), "{record:?} after {over:?}");
            };
            (0..UNITS - 1).for_each(|unit| inside(&gathers[unit + 1], unit));
            // Backward begins with the unit that was kept; each computation has the gather of the one before it.
            for done in 0..UNITS - 1 {
                inside(&gathers[UNITS + done], UNITS + done);
                inside(&reductions[done], UNITS + done + 1);
            }
        });
    }
}
