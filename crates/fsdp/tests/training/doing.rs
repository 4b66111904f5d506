//! What is done with gradients as they come, and buffers that go back early.

use phalanx_core::DType;
use phalanx_fsdp::{Class, Gradient, Offload, ParamSpec, Policy, Reshard, Sharded, Then, UnitSpec};

use crate::company::Company;
use crate::model::mixed;
use crate::train::Task;

#[test]
fn a_step_inside_backward_trains_as_one_after_it() {
    let task = Task::new(mixed(), 20);
    let after = Company::of(3).run(|groups, rank| {
        let mut model = task.shard(groups, Policy::default()).expect("a model");
        let mut losses = Vec::new();
        for step in 0..task.steps {
            losses.push(task.pass(&mut model, step, rank, 3).expect("a pass"));
            for param in model.trained().collect::<Vec<_>>() {
                let (shard, gradient) = model.update::<f32>(param).expect("a type");
                shard.iter_mut().zip(gradient.expect("a gradient")).for_each(|(x, g)| *x -= 0.1 * g);
            }
            model.zero_gradients();
        }
        (losses, task.collect(&model).expect("full parameters"))
    });
    let inside = Company::of(3).run(|groups, rank| {
        let mut model = task.shard(groups, Policy::default().offload(Offload::Host)).expect("a model");
        for param in model.trained().collect::<Vec<_>>() {
            let step = |shard: &mut [f32], gradient: &mut [f32]| {
                shard.iter_mut().zip(gradient).for_each(|(x, g)| *x -= 0.1 * *g);
                Then::Free
            };
            model.after_accumulate(param, step).expect("a trained one");
        }
        let pass = |step| {
            let loss = task.pass(&mut model, step, rank, 3).expect("a pass");
            assert_eq!(model.memory().of(Class::Gradients).current, 0);
            loss
        };
        let losses: Vec<f64> = (0..task.steps).map(pass).collect();
        let most = model.memory().of(Class::Gradients).peak;
        assert!(most > 0 && most < model.memory().of(Class::Sharded).current, "{most}");
        (losses, task.collect(&model).expect("full parameters"))
    });
    assert_eq!(after, inside);
}

/// Backward needs the parameters that forward had, of all uses, and their gradients belong together.
#[test]
fn a_unit_of_several_uses_is_stepped_once_after_all_of_them() {
    // The last has a use to which backward does not come.
    let ways: [[&[usize]; 2]; 5] = [
        [&[0, 1, 0], &[0, 1, 0]],
        [&[0, 0, 1], &[1, 0, 0]],
        [&[1, 0, 1, 0], &[0, 1, 0, 1]],
        [&[0, 1, 1, 0], &[0, 1, 1, 0]],
        [&[0, 0, 1], &[0, 1]],
    ];
    for company in [Company::of(1), Company::of(2), Company::of(2).replicas(2)] {
        for [forward, backward] in ways {
            company.run(|groups, _| {
                let unit = |name: &str| UnitSpec::new(name, vec![ParamSpec::new("weight", &[4], DType::F32)]);
                let mut model = Sharded::new(groups, vec![unit("a"), unit("b")], Policy::default()).expect("a model");
                let params: Vec<_> = model.trained().collect();
                for param in &params {
                    let step = |shard: &mut [f32], gradient: &mut [f32]| {
                        shard.iter_mut().zip(gradient).for_each(|(x, g)| *x = 10.0 * *x - *g);
                        Then::Free
                    };
                    model.after_accumulate(*param, step).expect("a trained one");
                }
                for unit in forward {
                    model.before_forward(*unit).expect("a unit");
                    model.after_forward(*unit).expect("its end");
                }
                for unit in backward {
                    let mut full = [f32::NAN; 4];
                    model.before_backward(*unit).expect("a unit").copy_out(0, &mut full).expect("its length");
                    assert_eq!(full, [0.0; 4], "{company:?}, {backward:?}: stepped before unit {unit}");
                    model.gradients(*unit, &[Gradient::new(0, &[1.0_f32; 4])]).expect("its gradients");
                }
                model.finish_backward().expect("the end");
                assert_eq!(model.memory().of(Class::Gradients).current, 0);
                for param in params {
                    let uses = backward.iter().filter(|unit| **unit == param.unit).count() as f32;
                    let shard = model.shard::<f32>(param).expect("a type");
                    assert!(shard.iter().all(|x| *x == -uses), "{company:?}, {backward:?}: {shard:?}, not -{uses}");
                }
            });
        }
    }
}

/// Gradients that are dropped while something waits to be done with them are not there for it later.
#[test]
fn what_waits_for_a_backward_that_is_given_up_is_not_done() {
    Company::of(2).run(|groups, _| {
        let unit = UnitSpec::new("unit", vec![ParamSpec::new("weight", &[4], DType::F32)]);
        let mut model = Sharded::new(groups, vec![unit], Policy::default()).expect("a model");
        let weight = model.param("unit", "weight").expect("a name");
        let step = |shard: &mut [f32], _: &mut [f32]| {
            shard.fill(1.0);
            Then::Keep
        };
        model.after_accumulate(weight, step).expect("a trained one");
        for _use in 0..3 {
            model.before_forward(0).expect("a unit");
            model.after_forward(0).expect("its end");
        }
        for _use in 0..2 {
            model.before_backward(0).expect("a unit");
            model.gradients(0, &[Gradient::new(0, &[1.0_f32; 4])]).expect("its gradients");
        }
        model.zero_gradients();
        model.finish_backward().expect("the end");
        assert_eq!(model.shard::<f32>(weight), Ok(&[0.0, 0.0][..]));
    });
}

#[test]
fn what_is_not_trained_has_nothing_done() {
    Company::of(1).run(|groups, _| {
        let params = vec![
            ParamSpec::new("frozen", &[2], DType::F32).trainable(false),
            ParamSpec::new("trained", &[2], DType::F32),
            ParamSpec::new("ignored", &[2], DType::F32).ignored(),
        ];
        let mut model = Sharded::new(groups, vec![UnitSpec::new("unit", params)], Policy::default()).expect("a model");
        let [frozen, trained, ignored] =
            ["frozen", "trained", "ignored"].map(|name| model.param("unit", name).expect("a name"));
        let error = model.after_accumulate::<f32>(frozen, |_, _| Then::Keep).expect_err("frozen");
        assert_eq!(error.to_string(), "after_accumulate: param is \"frozen\", must be a trained one");
        assert!(model.after_accumulate::<f64>(trained, |_, _| Then::Keep).is_err());
        assert!(model.after_accumulate::<f32>(ignored, |_, _| Then::Keep).is_err());
        assert!(model.shard::<f32>(ignored).is_err() && model.shard::<f64>(trained).is_err());
        assert_eq!(model.owned().collect::<Vec<_>>(), [frozen, trained]);
        assert_eq!(model.trained().collect::<Vec<_>>(), [trained]);
    });
}

#[test]
fn a_copied_unit_gives_its_buffer_to_the_next() {
    let task = Task::new(mixed(), 1);
    let peaks = [false, true].map(|copies| {
        let peaks = Company::of(2).run(|groups, _| {
            let mut model = task.shard(groups, Policy::default()).expect("a model");
            let mut out = [0.0_f32; 35];
            for unit in 0..task.blocks.len() {
                let len = task.blocks[unit].lens()[0];
                model.before_forward(unit).expect("a unit").copy_out(0, &mut out[..len]).expect("its length");
                if copies {
                    model.copied(unit).expect("a unit in use");
                    assert!(model.gathered(unit).is_none());
                }
                model.after_forward(unit).expect("its end");
            }
            for unit in (0..task.blocks.len()).rev() {
                model.before_backward(unit).expect("a unit");
                if copies {
                    model.copied(unit).expect("a unit in use");
                }
                let gain = Gradient::new(2, &[1.0_f32]);
                model.gradients(unit, &[gain]).expect("its gradients");
            }
            model.finish_backward().expect("the end");
            assert_eq!(model.memory().of(Class::Gathered).current, 0);
            assert_eq!(model.unused().len(), model.trained().count() - task.blocks.len());
            model.memory().of(Class::Gathered).peak
        });
        peaks[0]
    });
    assert!(peaks[1] <= peaks[0], "{peaks:?}");
}

#[test]
fn a_model_may_change_threads() {
    fn moves<T: Send + 'static>() {}
    moves::<Sharded>();
    moves::<phalanx_fsdp::Ddp>();
}

#[test]
fn a_copy_of_the_owners_stands_for_a_unit_that_stays() {
    Company::of(2).run(|groups, _| {
        let unit = |name: &str| UnitSpec::new(name, vec![ParamSpec::new("weight", &[4, 2], DType::F32)]);
        let policy = Policy::default().reshard_after_forward(Reshard::No);
        let mut model = Sharded::new(groups, vec![unit("a"), unit("b")], policy).expect("a model");
        model.set_copies(true);
        let mut out = [1.0_f32; 8];
        for unit in [0, 1] {
            model.before_forward(unit).expect("a unit").copy_out(0, &mut out).expect("its length");
            model.copied(unit).expect("a unit in use");
            assert!(model.holds(unit) && model.gathered(unit).is_none());
            model.after_forward(unit).expect("its end");
        }
        assert_eq!((out, model.memory().of(Class::Gathered).peak), ([0.0; 8], 32));
        for unit in [1, 0] {
            let full = model.before_backward(unit).expect("a unit");
            assert_eq!((full.dtype(0), full.view::<f32>(0)), (Ok(DType::F32), None));
            let error = full.copy_out(0, &mut out).expect_err("it was copied").to_string();
            assert!(error.contains("must not be one that was copied"), "{error}");
            model.copied(unit).expect("a unit in use");
            assert!(!model.holds(unit));
            model.gradients(unit, &[]).expect("its end");
        }
        model.finish_backward().expect("the end");
    });
}
