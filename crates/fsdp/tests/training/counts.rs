//! How many collectives a step takes, and how much goes through them: by the groups' own records.

use phalanx_core::recorder::Record;
use phalanx_core::{DType, Group, OpKind};
use phalanx_fsdp::{Action, Event, Gradient, Groups, ParamSpec, Policy, Reshard, Sharded, Step, UnitSpec};

use crate::company::Company;

/// What a group did, without what its ranks told each other of the model when it was made.
fn records(group: &Group) -> Vec<Record> {
    group.recorder().records().into_iter().filter(|record| record.dtype != DType::U64).collect()
}

/// How often a group did something.
fn count(group: &Group, op: OpKind) -> usize {
    records(group).iter().filter(|record| record.op == op).count()
}

/// Gathers, reductions, and anything else, of the shard group.
fn counts(groups: &Groups) -> [usize; 3] {
    let (gathers, scatters) = (count(groups.shard(), OpKind::AllGather), count(groups.shard(), OpKind::ReduceScatter));
    [gathers, scatters, records(groups.shard()).len() - gathers - scatters]
}

/// A root with three blocks inside. Unless told otherwise the root is kept after its forward.
fn nested(groups: Groups, policy: Policy, root: Option<Reshard>) -> Sharded {
    let unit = |name: &str| UnitSpec::new(name, vec![ParamSpec::new("weight", &[5, 3], DType::F32)]);
    let units = vec![unit("root").reshard_after_forward(root.unwrap_or(Reshard::No)), unit("a"), unit("b"), unit("c")];
    Sharded::new(groups, units, policy).expect("a model")
}

fn forward(model: &mut Sharded) {
    model.before_forward(0).expect("the root");
    for unit in 1..4 {
        model.before_forward(unit).expect("a block");
        model.after_forward(unit).expect("its end");
    }
    model.after_forward(0).expect("its end");
}

fn backward(model: &mut Sharded) {
    model.before_backward(0).expect("the root");
    for unit in [3, 2, 1, 0] {
        model.before_backward(unit).expect("a block");
        model.gradients(unit, &[Gradient::new(0, &[1.0_f32; 15])]).expect("its gradients");
    }
    model.finish_backward().expect("the end");
}

#[test]
fn a_step_takes_a_gather_a_unit_each_way_and_one_reduction() {
    let cases = [
        (Reshard::Yes, None, [7, 4, 0]),
        (Reshard::Yes, Some(Reshard::Yes), [8, 4, 0]),
        (Reshard::No, None, [4, 4, 0]),
    ];
    for (reshard, root, wanted) in cases {
        Company::of(2).run(|groups, _| {
            let mut model = nested(groups.clone(), Policy::default().reshard_after_forward(reshard), root);
            forward(&mut model);
            assert_eq!(counts(&groups), [4, 0, 0]);
            backward(&mut model);
            assert_eq!(counts(&groups), wanted, "{reshard:?}, root {root:?}");
        });
    }
}

#[test]
fn micro_batches_without_sync_reduce_nothing() {
    // Which units are held back in all micro-batches but the last: none, the root, two of the blocks, all.
    for held in [&[][..], &[0], &[1, 2], &[0, 1, 2, 3]] {
        for keeps in [false, true] {
            Company::of(2).replicas(2).run(|groups, _| {
                let mut model = nested(groups.clone(), Policy::default(), None);
                for micro in 0..3 {
                    let is_last = micro == 2;
                    held.iter().for_each(|unit| model.set_unit_sync(*unit, is_last).expect("a unit"));
                    model.set_reshard_after_backward(is_last || !keeps);
                    model.set_last_backward(is_last);
                    forward(&mut model);
                    backward(&mut model);
                }
                let reductions = 3 * 4 - 2 * held.len();
                let gathers = if keeps { 7 } else { 3 * 7 };
                assert_eq!(counts(&groups), [gathers, reductions, 0], "{held:?} held back");
                let replicas = groups.replicas().expect("replicas");
                assert_eq!(count(replicas, OpKind::AllReduce), reductions);
                assert_eq!(records(replicas).len(), reductions);
                let gradient = model.gradient::<f32>(model.param("b", "weight").expect("a name")).expect("a type");
                assert!(gradient.expect("a gradient").iter().all(|g| *g == 3.0));
            });
        }
    }
}

#[test]
fn replicas_that_stay_apart_join_once() {
    Company::of(2).replicas(2).run(|groups, _| {
        let mut model = nested(groups.clone(), Policy::default(), None);
        for micro in 0..3 {
            model.set_all_reduce(micro == 2);
            forward(&mut model);
            backward(&mut model);
        }
        assert_eq!(counts(&groups)[1], 12);
        assert_eq!(count(groups.replicas().expect("replicas"), OpKind::AllReduce), 4);
        for param in model.trained() {
            assert!(model.gradient::<f32>(param).expect("a type").expect("a gradient").iter().all(|g| *g == 3.0));
        }
    });
}

#[test]
fn frozen_parameters_are_gathered_and_not_reduced() {
    Company::of(2).run(|groups, _| {
        let weight = ParamSpec::new("weight", &[6, 100], DType::F32).trainable(false);
        let units = vec![
            UnitSpec::new("bias only", vec![weight.clone(), ParamSpec::new("bias", &[6], DType::F32)]),
            UnitSpec::new("frozen", vec![weight]),
        ];
        let mut model = Sharded::new(groups.clone(), units, Policy::default()).expect("a model");
        for unit in [0, 1] {
            model.before_forward(unit).expect("a unit");
            model.after_forward(unit).expect("its end");
        }
        model.before_backward(1).expect("a unit");
        model.gradients(1, &[]).expect("none");
        model.before_backward(0).expect("a unit");
        model.gradients(0, &[Gradient::new(1, &[1.0_f32; 6])]).expect("one");
        // It begins when backward comes there, not at the end.
        assert_eq!(counts(&groups)[1], 1);
        model.finish_backward().expect("the end");
        let records = groups.shard().recorder().records();
        let scatter = records.iter().find(|record| record.op == OpKind::ReduceScatter).expect("a reduction");
        assert_eq!((counts(&groups)[1], scatter.input, scatter.dtype), (1, 6, DType::F32));
        let error = model.gradients(0, &[Gradient::new(0, &[1.0_f32; 600])]).expect_err("a frozen parameter");
        assert_eq!(error.to_string(), "gradients: param is \"weight\", must be a trained one");
    });
}

#[test]
fn the_next_gather_begins_inside_this_unit() {
    let traces = Company::of(2).run(|groups, _| {
        let mut model = nested(groups, Policy::default().trace(true), None);
        forward(&mut model);
        backward(&mut model);
        model.take_trace().into_iter().map(|traced| traced.what).collect::<Vec<_>>()
    });
    assert_eq!(traces[0], traces[1]);
    let at = |step: Step| traces[0].iter().position(|other| *other == step).expect("a step of the trace");
    for unit in 1..3 {
        let next = at(Step::Did(Action::Gather(unit + 1)));
        let inside = at(Step::Came(Event::BeforeForward(unit)))..at(Step::Came(Event::AfterForward(unit)));
        assert!(inside.contains(&next), "unit {unit}: {next} in {inside:?}");
        let backward = at(Step::Came(Event::BeforeBackward(unit + 1)));
        let reduction = at(Step::Did(Action::ReduceScatter(unit + 1)));
        assert!(backward < reduction && reduction < at(Step::Did(Action::AwaitReduceScatter(unit + 1))));
        assert!(at(Step::Did(Action::AwaitReduceScatter(unit + 1))) > at(Step::Came(Event::BeforeBackward(unit))));
    }
}

#[test]
fn the_type_that_travels_is_the_policys() {
    Company::of(2).run(|groups, _| {
        let policy = Policy::default().compute(DType::BF16).reduce(DType::F32);
        let mut model = nested(groups.clone(), policy, None);
        forward(&mut model);
        backward(&mut model);
        for record in records(groups.shard()) {
            let wanted = if record.op == OpKind::AllGather { DType::BF16 } else { DType::F32 };
            assert_eq!(record.dtype, wanted);
        }
    });
}
