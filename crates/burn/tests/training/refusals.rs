//! What cannot be is refused by name, and leaves the model as it was.

use std::cell::Cell;

use burn::module::Module;
use burn::tensor::{Bool, Device, Distribution, Tensor};
use burn_nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig};
use burn_optim::{AdamWConfig, grad_clipping::GradientClippingConfig};
use phalanx_burn::{Ddp, FullyShard, Groups, Policy, Reshard, UnitOptions, Units};
use phalanx_comm::Threads;
use phalanx_core::{DType, ErrorKind, Group, Result};

use crate::model::device;
use crate::parity::of_two_replicas;

fn linear(from: usize, to: usize) -> Linear {
    LinearConfig::new(from, to).init(&device())
}

fn words<T>(refused: Result<T>) -> String {
    let error = refused.err().expect("an error");
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    error.to_string()
}

fn alone(rank: impl Fn(Group) + Send + Sync) {
    Threads::new(1).run(rank).expect("a world");
}

#[test]
fn models_that_cannot_be_sharded() {
    alone(|group| {
        let shard = |units, policy| words(FullyShard::new(group.clone(), policy, units));
        assert!(shard(Units::new(), Policy::default()).contains("must be at least one"));
        let mut twice = Units::new();
        let layer = linear(2, 3);
        twice.add("one", layer.clone());
        twice.add("other", layer);
        assert!(shard(twice, Policy::default()).contains(r#""weight" in "one" and in "other""#));
        let mut same = Units::new();
        same.add("one", linear(2, 3));
        same.add("one", linear(2, 3));
        assert!(shard(same, Policy::default()).contains(r#""one" twice"#));
        let mut plain = Units::new();
        plain.add("one", LinearConfig::new(2, 3).init(&Device::flex()));
        assert!(shard(plain, Policy::default()).contains("must be on a device with autodiff"));
        let mut partly = Units::new();
        partly.add("one", linear(2, 3));
        partly.add("other", LinearConfig::new(2, 3).init(&Device::flex()));
        assert!(shard(partly, Policy::default()).contains(r#""weight" of "other" on a device without it"#));
        let mut averages = Units::new();
        averages.add::<BatchNorm>("one", BatchNormConfig::new(3).init(&device()));
        let told = shard(averages, Policy::default().compute(DType::BF16));
        assert!(told.contains(r#""running_mean" of "one", a running average of F32"#), "{told}");
        let mut of_its_own = Units::new();
        let norm: BatchNorm = BatchNormConfig::new(3).init(&device());
        of_its_own.add_with("one", norm, UnitOptions::default().compute(DType::BF16));
        let told = shard(of_its_own, Policy::default());
        assert!(told.contains(r#""running_mean" of "one", a running average of F32"#), "{told}");
        let mut cast = Units::new();
        cast.add("one", linear(2, 3));
        assert!(shard(cast, Policy::default().output(DType::BF16)).contains("cast what units return"));
        let frozen = burn::module::Module::freeze(linear(2, 3));
        assert!(words(Ddp::new(group.clone(), frozen)).contains("no trained parameter"));
    });
}

/// The others would wait for what it says of its model.
#[test]
fn a_model_that_one_rank_alone_refuses_is_told_to_the_others() {
    let layer = |rank: usize| {
        let device = if rank == 1 { Device::flex() } else { device() };
        LinearConfig::new(2, 3).init(&device)
    };
    let sharded = |group: Group| {
        let mut units = Units::new();
        units.add("one", layer(group.rank()));
        FullyShard::new(group, Policy::default(), units).expect_err("an error")
    };
    let whole = |group: Group| {
        let layer: Linear = layer(group.rank());
        Ddp::new(group, layer).expect_err("an error")
    };
    for ends in [Threads::new(2).run(sharded), Threads::new(2).run(whole)] {
        let ends = ends.expect("a world");
        assert_eq!(ends[1].kind(), ErrorKind::Usage, "{}", ends[1]);
        assert!(ends[0].kind() == ErrorKind::Desync && ends[0].to_string().contains("model refused: "), "{}", ends[0]);
    }
}

#[test]
fn calls_that_make_no_sense() {
    alone(|group| {
        let mut units = Units::new();
        let (first, second) = (units.add("first", linear(4, 4)), units.add("second", linear(4, 1)));
        let mut other = Units::new();
        let dropout = other.add("dropout", DropoutConfig::new(0.5).init());
        let mut model = FullyShard::new(group.clone(), Policy::default(), units).expect("a model");
        let x = || Tensor::<2>::ones([2, 4], &device());
        let mut same = Units::new();
        let of_another = same.add("first", linear(4, 4));
        let mut another = FullyShard::new(group, Policy::default(), same).expect("a model");
        assert!(words(model.run(of_another, x(), Linear::forward)).contains("must be one of this model's"));
        let y = another.run(of_another, x(), Linear::forward).expect("a unit");
        model.run(first, x(), Linear::forward).expect("a unit");
        assert!(words(model.backward(&y.sum())).contains("must be computed from what units returned"));
        assert!(words(model.run(dropout, x(), Dropout::forward)).contains("must be one of this model's"));
        let y = model.run(first, x(), Linear::forward).expect("a unit");
        assert!(words(model.run(second, y.clone() * 2.0, Linear::forward)).contains("compute it in this unit"));
        assert!(words(model.backward(&x().sum())).contains("must be computed from what units returned"));
        let mut clips = AdamWConfig::new().with_grad_clipping(Some(GradientClippingConfig::Norm(1.0))).init();
        assert!(words(model.step(&mut clips, 1e-3)).contains("FullyShard::clip does"));
        assert!(words(model.clip(0.0)).contains("0"));
        // After all that a step is right.
        let y = model.run(first, x(), Linear::forward).expect("a unit");
        let loss = model.run(second, y, Linear::forward).expect("a unit").sum();
        model.backward(&loss).expect("backward");
        assert_eq!(model.unused(), Vec::<String>::new());
        model.step(&mut AdamWConfig::new().init(), 1e-3).expect("a step");
        assert!(words(model.backward(&loss)).contains("must be computed from what units returned since"), "once more");
    });
}

/// Burn keeps one gradient under an id, and its optimizers step in one place.
#[test]
fn a_model_in_which_a_trained_parameter_stands_twice_is_none_for_ddp() {
    alone(|group| {
        let layer = linear(2, 2);
        let told = words(Ddp::new(group.clone(), vec![layer.clone(), layer.clone()]));
        assert!(told.contains(r#"model is "1.weight", which is "0.weight" once more, must have each"#), "{told}");
        let frozen = layer.freeze();
        Ddp::new(group, (vec![frozen.clone(), frozen], linear(2, 1))).expect("what is frozen has no gradient");
    });
}

#[test]
fn a_backward_that_is_refused_drops_the_gradients_of_those_before() {
    alone(|group| {
        let mut units = Units::new();
        let unit = units.add("unit", linear(4, 4));
        let mut model = FullyShard::new(group, Policy::default(), units).expect("a model");
        let x = || Tensor::<2>::ones([2, 4], &device());
        let loss = model.run(unit, x(), Linear::forward).expect("a unit").mean();
        model.backward(&loss).expect("backward");
        assert!(words(model.backward(&x().sum())).contains("must be computed from what units returned"));
        model.update(|_, _, gradient| assert!(gradient.is_none())).expect("values");
    });
}

/// Nobody would train it.
#[test]
fn a_function_that_has_captured_a_module_is_refused() {
    alone(|group| {
        let mut units = Units::new();
        let (first, last) = (units.add("first", linear(4, 4)), units.add("last", linear(4, 1)));
        let mut model = FullyShard::new(group, Policy::default(), units).expect("a model");
        let x = || Tensor::<2>::ones([2, 4], &device());
        let own = linear(4, 4);
        let captured = own.clone();
        let with = move |layer: &Linear, x: Tensor<2>| captured.forward(layer.forward(x));
        let told = words(model.run(first, x(), with));
        assert!(told.contains("for unit \"first\", computing with what has gradients outside of it"), "{told}");
        // A frozen one is a constant.
        let frozen = burn::module::Module::freeze(own);
        let with = move |layer: &Linear, x: Tensor<2>| frozen.forward(layer.forward(x));
        let y = model.run(first, x(), with).expect("a unit");
        let loss = model.run(last, y, Linear::forward).expect("a unit").mean();
        model.backward(&loss).expect("backward");
        assert_eq!(model.unused(), Vec::<String>::new());
        model.step(&mut AdamWConfig::new().init(), 1e-3).expect("a step");
    });
}

/// Its gradient would end there.
#[test]
fn a_function_that_has_captured_what_another_unit_returned_is_refused() {
    alone(|group| {
        let mut units = Units::new();
        let (first, second, last) =
            (units.add("first", linear(4, 4)), units.add("second", linear(4, 4)), units.add("last", linear(4, 1)));
        let mut model = FullyShard::new(group, Policy::default(), units).expect("a model");
        let skip = model.run(first, Tensor::<2>::ones([2, 4], &device()), Linear::forward).expect("a unit");
        let captured = skip.clone();
        let with = move |layer: &Linear, x: Tensor<2>| layer.forward(x) + captured.clone();
        let told = words(model.run(second, skip.clone(), with));
        assert!(told.contains("for unit \"second\"") && told.contains("part of its input, `(x, skip)`"), "{told}");
        // Given as it should be it is right at once.
        let with = |layer: &Linear, (x, skip): (Tensor<2>, Tensor<2>)| layer.forward(x) + skip;
        let y = model.run(second, (skip.clone(), skip), with).expect("a unit");
        let loss = model.run(last, y, Linear::forward).expect("a unit").mean();
        model.backward(&loss).expect("backward");
        assert_eq!(model.unused(), Vec::<String>::new());
    });
}

/// Gradients that miss those of one rank are no average.
#[test]
fn a_unit_that_fails_on_one_rank_is_an_error_on_all() {
    let told = |groups: Groups| {
        let is_odd = groups.shard().rank() == 1 && groups.replicas().is_none_or(|replicas| replicas.rank() == 1);
        let mut units = Units::new();
        let first = units.add("first", linear(4, 4));
        let counting = units.add_with("counting", linear(4, 4), Reshard::Yes);
        let mut model = FullyShard::new(groups, Policy::default(), units).expect("a model");
        let x = || Tensor::<2>::ones([2, 4], &device());
        let calls = Cell::new(0.0_f32);
        let count = move |layer: &Linear, x: Tensor<2>| {
            calls.set(calls.get() + if is_odd { 1.0 } else { 0.0 });
            layer.forward(x) + calls.get()
        };
        let y = model.run(first, x(), Linear::forward).expect("a unit");
        let loss = model.run(counting, y, count).expect("a unit").mean();
        let told = words(model.backward(&loss));
        model.update(|_, _, gradient| assert!(gradient.is_none())).expect("values");
        // They go on together.
        let y = model.run(first, x(), Linear::forward).expect("a unit");
        let loss = model.run(counting, y, Linear::forward).expect("a unit").mean();
        model.backward(&loss).expect("backward");
        model.step(&mut AdamWConfig::new().init(), 1e-3).expect("a step");
        (is_odd, told)
    };
    let two = Threads::new(2).run(|group| told(group.into())).expect("a world");
    for (is_odd, told) in two.into_iter().chain(of_two_replicas(told)) {
        let expected = if is_odd { "is added with Reshard::No" } else { r#""counting", which failed on rank 1"# };
        assert!(told.contains(expected), "{told}");
    }
}

/// A mask's infinities say nothing of how far the rest is apart.
#[test]
fn a_unit_that_draws_numbers_is_refused_behind_a_mask_too() {
    for draws in [true, false] {
        alone(|group| {
            let mut units = Units::new();
            let unit = units.add_with("masked", (linear(4, 64), DropoutConfig::new(0.5).init()), Reshard::Yes);
            let mut model = FullyShard::new(group, Policy::default(), units).expect("a model");
            let masked = move |(layer, dropout): &(Linear, Dropout), x: Tensor<2>| {
                let y = layer.forward(x);
                let y = if draws { dropout.forward(y) } else { y };
                y.mask_fill(Tensor::<2, Bool>::tril_mask([64, 64], 0, &device()), f32::NEG_INFINITY)
            };
            let x = Tensor::random([64, 4], Distribution::Default, &device());
            let loss = model.run(unit, x, masked).expect("a unit").exp().mean();
            match (draws, model.backward(&loss)) {
                (true, refused) => assert!(words(refused).contains("is added with Reshard::No")),
                (false, done) => done.expect("it returns the same, infinities and all"),
            }
        });
    }
}

#[test]
fn a_unit_that_draws_numbers_is_kept_or_refused() {
    #[derive(burn::module::Module, Debug)]
    struct Drawing {
        layer: Linear,
        dropout: Dropout,
    }
    let forward = |unit: &Drawing, x: Tensor<2>| unit.dropout.forward(unit.layer.forward(x));
    for reshard in [Reshard::Yes, Reshard::No] {
        let train = |group| {
            let mut units = Units::new();
            let drawing = Drawing { layer: linear(4, 64), dropout: DropoutConfig::new(0.5).init() };
            let unit = units.add_with("drawing", drawing, reshard);
            let mut model = FullyShard::new(group, Policy::default(), units).expect("a model");
            let x = || Tensor::random([64, 4], Distribution::Default, &device());
            let loss = model.run(unit, x(), forward).expect("a unit").powf_scalar(2.0).mean();
            match (reshard, model.backward(&loss)) {
                (Reshard::No, done) => done.expect("it is not run again"),
                (_, refused) => assert!(words(refused).contains("is added with Reshard::No")),
            }
            // The ranks are still together, and without gradients.
            let steady = |unit: &Drawing, x: Tensor<2>| unit.layer.forward(x);
            let loss = model.run(unit, x(), steady).expect("a unit").mean();
            model.backward(&loss).expect("nothing is drawn");
            model.step(&mut AdamWConfig::new().init(), 1e-3).expect("a step");
            // Evaluated, it draws nothing.
            model.set_training(false);
            let y = x();
            let [one, other] = [(); 2].map(|()| model.run(unit, y.clone(), forward).expect("a unit").into_data());
            assert_eq!(one, other);
        };
        Threads::new(2).run(train).expect("a world");
    }
}
