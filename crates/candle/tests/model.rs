//! What a model tells and refuses, whoever holds it.

use std::cell::Cell;
use std::rc::Rc;

use candle_core::{CpuStorage, DType, Device, Module, Result, Storage, Tensor, Var};
use phalanx_candle::ops::linear;
use phalanx_candle::{
    AdamW, Ddp, Error, FullyShard, Groups, Model, Optimizer, Policy, Reshard, Sgd, Single, Strategy, Unit,
};
use phalanx_comm::Threads;
use phalanx_core::{DType as Wire, ErrorKind, Group, OpKind};

struct Layer {
    weight: Var,
    is_cut: bool,
}

impl Module for Layer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = if self.is_cut { x.detach() } else { x.clone() };
        linear(&x, &self.weight)
    }
}

/// Four layers of which the third lets no gradient through and the last is frozen, and their weights.
fn units() -> (Vec<Unit>, Vec<Var>) {
    let weight = |seed: u64| {
        let mut draw = fastrand::Rng::with_seed(seed);
        Var::from_vec((0..25).map(|_| draw.f32()).collect(), (5, 5), &Device::Cpu).expect("a variable")
    };
    let weights: Vec<Var> = (0..4).map(weight).collect();
    let unit = |(at, weight): (usize, &Var)| {
        let unit = Unit::new(format!("layer {at}"), Layer { weight: weight.clone(), is_cut: at == 2 });
        if at == 3 { unit.frozen("3.weight", weight) } else { unit.parameter(format!("{at}.weight"), weight) }
    };
    (weights.iter().enumerate().map(unit).collect(), weights)
}

fn values(model: &mut Model) -> Vec<Vec<f32>> {
    let mut all = vec![];
    model.update(|_, values, _| all.push(values.to_vec())).expect("values");
    all
}

/// That one step changes what a gradient reaches, and the rest is told.
fn check(strategy: impl Strategy + 'static, mut optimizer: impl Optimizer) {
    let mut model = Model::new(units().0, strategy).expect("a model");
    let before = values(&mut model);
    let x = Tensor::ones((2, 5), DType::F32, &Device::Cpu).expect("an input");
    let loss = |model: &mut Model| model.forward(&x).and_then(|output| Ok(output.sqr()?.mean_all()?)).expect("a loss");
    let given_up = loss(&mut model);
    model.forward(&Tensor::ones((2, 4), DType::F32, &Device::Cpu).expect("an input")).expect_err("it does not fit");
    assert!(matches!(model.backward(&given_up), Err(Error::Usage(why)) if why.contains("no forward")));
    let (earlier, loss) = (loss(&mut model), loss(&mut model));
    assert!(matches!(model.backward(&earlier), Err(Error::Usage(why)) if why.contains("does not depend")));
    model.backward(&loss).expect("backward");
    assert_eq!(model.unused(), ["0.weight", "1.weight"]);
    optimizer.step(&mut model, 0.1).expect("a step");
    let after = values(&mut model);
    let parts = model.parts().to_vec();
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| !part.elements.is_empty()) {
        assert_eq!((before[at] != after[at], part.is_trained), (part.name == "2.weight", part.name != "3.weight"));
    }
    model.zero_gradients();
    assert_eq!(model.unused(), ["0.weight", "1.weight", "2.weight"]);
    assert!(matches!(model.backward(&loss), Err(Error::Usage(why)) if why.contains("no forward")));
}

#[test]
fn what_no_gradient_reaches_is_named_and_stays() {
    check(Single::new(), Sgd::new());
    let sharded = |group| check(FullyShard::new(group, Policy::default()), Sgd::new());
    Threads::new(2).run(sharded).expect("a world");
    Threads::new(2).run(|group| check(Ddp::new(group), Sgd::new())).expect("a world");
}

#[test]
fn what_no_gradient_reaches_decays_among_ranks_alone() {
    fn decays(strategy: impl Strategy) -> Vec<bool> {
        let mut model = Model::new(units().0, strategy).expect("a model");
        let before = values(&mut model);
        let x = Tensor::ones((2, 5), DType::F32, &Device::Cpu).expect("an input");
        let loss = model.forward(&x).and_then(|output| Ok(output.sqr()?.mean_all()?)).expect("a loss");
        model.backward(&loss).expect("backward");
        AdamW::default().step(&mut model, 0.1).expect("a step");
        let after = values(&mut model);
        // Nothing moves them but the decay: a thousandth.
        let is_decayed = |at: &usize| {
            let pairs = before[*at].iter().zip(&after[*at]);
            pairs.clone().all(|(before, after)| (after / before - 0.999).abs() < 1e-6)
        };
        let stays = |at: &usize| before[*at] == after[*at];
        assert!([0, 1].iter().all(|at| stays(at) != is_decayed(at)));
        [0, 1].iter().map(is_decayed).collect()
    }
    assert_eq!(decays(Single::new()), [false; 2]);
    let sharded = |group| decays(FullyShard::new(group, Policy::default()));
    assert_eq!(Threads::new(2).run(sharded).expect("a world"), [[true; 2]; 2]);
    assert_eq!(Threads::new(2).run(|group| decays(Ddp::new(group))).expect("a world"), [[true; 2]; 2]);
}

/// The gradients of this rank's parts after one backward, before which another one was given up whose gradients `wait` on this rank.
fn gradients(strategy: impl Strategy, rank: usize, wait: impl Fn(&mut Model, bool), gives_up: bool) -> Vec<Vec<f32>> {
    let mut model = Model::new(units().0, strategy).expect("a model");
    let pass = |model: &mut Model, by: f64| {
        let x = Tensor::full(by as f32, (2, 5), &Device::Cpu).expect("an input");
        let loss = model.forward(&x).and_then(|output| Ok(output.sqr()?.mean_all()?)).expect("a loss");
        model.backward(&loss).expect("backward");
    };
    if gives_up {
        wait(&mut model, true);
        (0..2).for_each(|_| pass(&mut model, 100.0));
        model.zero_gradients();
        wait(&mut model, false);
    }
    pass(&mut model, 1.0 + rank as f64);
    let mut all = vec![];
    model.update(|_, _, gradient| all.push(gradient.unwrap_or_default().to_vec())).expect("gradients");
    all
}

#[test]
fn gradients_of_a_backward_that_is_given_up_leave_nothing_behind() {
    fn check<S: Strategy>(rank: usize, strategy: impl Fn() -> S, wait: impl Fn(&mut Model, bool)) {
        let wanted = gradients(strategy(), rank, &wait, false);
        assert!(wanted.iter().flatten().any(|slope| *slope != 0.0));
        assert_eq!(gradients(strategy(), rank, &wait, true), wanted);
    }
    let stay = |model: &mut Model, waits: bool| model.set_sync(!waits);
    check(0, Single::new, stay);
    Threads::new(2).run(|group| check(group.rank(), || Ddp::new(group.clone()), stay)).expect("a world");
    let sharded = |group: &Group| FullyShard::new(group.clone(), Policy::default());
    Threads::new(2).run(|group| check(group.rank(), || sharded(&group), stay)).expect("a world");
    // Two replicas that one rank each holds.
    let replicated = |group: &Group| {
        let alone = Threads::new(1).groups().expect("a world").remove(0);
        FullyShard::new(Groups::new(alone).replicate(group.clone()), Policy::default())
    };
    let stay_apart = |model: &mut Model, waits: bool| {
        let engine = model.strategy_mut().and_then(FullyShard::engine).expect("the engine");
        engine.set_all_reduce(!waits);
    };
    Threads::new(2).run(|group| check(group.rank(), || replicated(&group), stay_apart)).expect("a world");
}

#[test]
fn sharded_variables_have_no_memory_between_steps() {
    let rank = |group| {
        let (units, weights) = units();
        let mut model = Model::new(units, FullyShard::new(group, Policy::default())).expect("a model");
        let held = || {
            let len = |weight: &Var| match &*weight.storage_and_layout().0 {
                Storage::Cpu(CpuStorage::F32(values)) => values.len(),
                // Of a type with which nothing is computed.
                Storage::Cpu(CpuStorage::F4(none)) => none.len(),
                _ => usize::MAX,
            };
            weights.iter().map(len).collect::<Vec<_>>()
        };
        assert_eq!(held(), [0; 4]);
        let x = Tensor::ones((2, 5), DType::F32, &Device::Cpu).expect("an input");
        let output = model.forward(&x).expect("forward");
        assert_eq!(held()[..3], [0; 3]);
        model.backward(&output.sum_all().expect("a loss")).expect("backward");
        AdamW::default().step(&mut model, 0.1).expect("a step");
        assert_eq!(held(), [0; 4]);
        // Three of five rows for the first rank, two for the second: shards of four weights, gradients of the trained.
        let own = model.parts()[0].elements.len() * 4;
        assert!(model.held().lasting >= 4 * own + own && model.held().lasting <= 7 * own, "{:?}", model.held());
    };
    Threads::new(2).run(rank).expect("a world");
}

/// candle's matrix product asks nobody how much memory there is.
#[test]
fn a_sharded_variable_is_nothing_to_compute_with_outside_its_unit() {
    let rank = |group: Group| {
        let (units, weights) = units();
        let mut model = Model::new(units, FullyShard::new(group.clone(), Policy::default())).expect("a model");
        let x = Tensor::ones((5, 5), DType::F32, &Device::Cpu).expect("an input");
        for _pass in 0..2 {
            for weight in &weights {
                assert!(linear(&x, weight).is_err() && weight.sqr().is_err() && weight.set(&x).is_err());
            }
            pass(&mut model).expect("a pass");
        }
        let unit = Unit::new("again", Layer { weight: weights[0].clone(), is_cut: false });
        let again = Model::new(vec![unit.parameter("again", &weights[0])], FullyShard::new(group, Policy::default()));
        let refused = again.expect_err("refused").to_string();
        assert_eq!(refused, "Model::new: a sharded model has the values of again: must be a new variable");
    };
    Threads::new(2).run(rank).expect("a world");
}

#[test]
fn what_is_loaded_into_the_engine_is_what_is_computed_with() {
    for reshard in [Reshard::Yes, Reshard::No] {
        for unshards in [false, true] {
            let rank = |group| {
                let policy = Policy::default().reshard_after_forward(reshard);
                let mut model = Model::new(units().0, FullyShard::new(group, policy)).expect("a model");
                let x = Tensor::ones((1, 5), DType::F32, &Device::Cpu).expect("an input");
                for value in [0.0_f32, 2.0, 3.0] {
                    model.predict(&x).expect("an output");
                    let engine = model.strategy_mut().and_then(FullyShard::engine).expect("the engine");
                    for param in engine.owned().collect::<Vec<_>>() {
                        engine.load_full(param, &[value; 25]).expect("its values");
                        if unshards {
                            engine.unshard(param.unit).expect("a unit");
                        }
                    }
                    let output = model.predict(&x).and_then(|y| Ok(y.to_vec2::<f32>()?)).expect("an output");
                    assert_eq!(output, [[(5.0 * value).powi(4); 5]], "{reshard:?}, unshards {unshards}");
                }
            };
            Threads::new(2).run(rank).expect("a world");
        }
    }
}

/// What a prediction of units that return part of their weights is, and what it is after those have changed: rows of the first weight, then
/// the product of those with the second, or rows of the second themselves.
fn views(strategy: impl Strategy, ends_in_view: bool) -> Vec<Vec<Vec<f32>>> {
    let weight = |value: f32| Var::from_tensor(&Tensor::full(value, (5, 5), &Device::Cpu)?);
    let (first, second) = (weight(2.0).expect("a variable"), weight(3.0).expect("a variable"));
    let (of_first, of_second) = (first.clone(), second.clone());
    let row = move |_: &Tensor| -> Result<Tensor> { of_first.narrow(0, 1, 1) };
    let end = move |x: &Tensor| -> Result<Tensor> {
        if ends_in_view { of_second.t()?.narrow(1, 0, 1)?.t() } else { linear(x, &of_second) }
    };
    let units =
        vec![Unit::new("row", row).parameter("first", &first), Unit::new("end", end).parameter("second", &second)];
    let mut model = Model::new(units, strategy).expect("a model");
    let x = Tensor::ones((1, 5), DType::F32, &Device::Cpu).expect("an input");
    let output = model.predict(&x).expect("an output");
    let before = output.to_vec2().expect("its values");
    model.update(|_, values, _| values.fill(9.0)).expect("other values");
    vec![before, output.to_vec2().expect("its values")]
}

#[test]
fn a_prediction_lasts_longer_than_the_weights_it_is_part_of() {
    for (ends_in_view, value) in [(false, 30.0), (true, 3.0)] {
        let check = |got| assert_eq!(got, [[[value; 5]], [[value; 5]]], "ends in a view: {ends_in_view}");
        check(views(Single::new(), ends_in_view));
        let sharded = |group| check(views(FullyShard::new(group, Policy::default()), ends_in_view));
        Threads::new(2).run(sharded).expect("a world");
    }
}

/// A module may need what forward hands over.
#[test]
fn a_model_predicts_whatever_it_can_be_trained_with() {
    fn check(strategy: impl Strategy) {
        let weight = Var::ones((2, 3, 5, 5), DType::F32, &Device::Cpu).expect("a variable");
        let used = weight.clone();
        let turn = Unit::new("turn", |x: &Tensor| x.transpose(1, 2));
        let times = Unit::new("times", move |x: &Tensor| x.matmul(&used)).parameter("weight", &weight);
        let mut model = Model::new(vec![turn, times], strategy).expect("a model");
        let x = Tensor::arange(0.0_f32, 120.0, &Device::Cpu).and_then(|x| x.reshape((2, 4, 3, 5))).expect("an input");
        let (trained, predicted) = (model.forward(&x).expect("an output"), model.predict(&x).expect("an output"));
        let values = |output: Tensor| output.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("values");
        assert_eq!(values(trained), values(predicted));
    }
    check(Single::new());
    Threads::new(2).run(|group| check(FullyShard::new(group, Policy::default()))).expect("a world");
}

/// What a variable is set to beside the model, as by `VarMap::load`, is what it is trained from.
#[test]
fn values_that_are_set_under_way_are_gone_on_with_in_narrow_types_too() {
    fn check(strategy: impl Strategy) {
        let weight = Var::ones((5, 5), DType::BF16, &Device::Cpu).expect("a variable");
        let unit = Unit::new("one", Layer { weight: weight.clone(), is_cut: false }).parameter("weight", &weight);
        let mut model = Model::new(vec![unit], strategy).expect("a model");
        // Less than a step of the type: the master has it, the variable has not.
        model.update(|_, values, _| values[0] += 1e-5).expect("an update");
        let other = Tensor::full(3.0_f32, (5, 5), &Device::Cpu).and_then(|full| full.to_dtype(DType::BF16));
        let looks = |model: &Model, expected: f32| {
            model.look(|_, values| assert_eq!(values[0], expected)).expect("a look");
        };
        looks(&model, 1.0 + 1e-5);
        weight.set(&other.expect("other values")).expect("set");
        looks(&model, 3.0);
        model.update(|_, values, _| assert_eq!(values, [3.0; 25])).expect("an update");
        looks(&model, 3.0);
    }
    check(Single::new());
    Threads::new(2).run(|group| check(Ddp::new(group))).expect("a world");
}

#[test]
fn a_variable_that_units_share_may_have_one_name() {
    let weight = Var::ones((5, 5), DType::F32, &Device::Cpu).expect("a variable");
    let unit = |name| Unit::new(name, Layer { weight: weight.clone(), is_cut: false }).parameter("weight", &weight);
    let mut model = Model::new(vec![unit("in"), unit("out")], Single::new()).expect("a model");
    pass(&mut model).expect("a pass");
    assert_eq!(model.parts().iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["weight"]);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let refused = |units: Vec<Unit>| Model::new(units, Single::new()).expect_err("refused").to_string();
    assert!(refused(vec![]).contains("no units"));
    let mut twice = units().0;
    twice.extend(units().0);
    assert!(refused(twice).contains("two parameters are named 0.weight"));
    let mut model = Model::new(units().0, Single::new()).expect("a model");
    let short = model.load(|_, _| Ok(vec![0.0; 3])).expect_err("refused").to_string();
    assert!(short.contains("3 values for 0.weight of 25"), "{short}");
    fn wide(strategy: impl Strategy) {
        let wide = Var::zeros((2, 2), DType::F64, &Device::Cpu).expect("a variable");
        let unit = Unit::new("wide", Layer { weight: wide.clone(), is_cut: false }).parameter("wide", &wide);
        let refused = Model::new(vec![unit], strategy).expect_err("refused").to_string();
        assert_eq!(refused, "wide is F64 on Cpu: must be f32 or bf16 on the CPU");
    }
    wide(Single::new());
    let rank = |group: Group| {
        wide(Ddp::new(group.clone()));
        wide(FullyShard::new(group, Policy::default()));
    };
    Threads::new(1).run(rank).expect("a world");
}

/// The others would wait for what it says of its model.
#[test]
fn a_model_that_one_rank_alone_refuses_is_told_to_the_others() {
    fn check<S: Strategy>(rank: usize, strategy: impl Fn() -> S) {
        let unit = |name: &str, dtype| {
            let weight = Var::zeros((2, 2), dtype, &Device::Cpu).expect("a variable");
            Unit::new(name, Layer { weight: weight.clone(), is_cut: false }).parameter("weight", &weight)
        };
        // What the model itself refuses, and what the strategy does.
        for odd in [vec![unit("one", DType::F32), unit("other", DType::F32)], vec![unit("one", DType::F64)]] {
            let units = if rank == 1 { odd } else { vec![unit("one", DType::F32)] };
            match (rank, Model::new(units, strategy()).expect_err("refused")) {
                (0, Error::Ranks(told)) => {
                    assert!(told.kind() == ErrorKind::Desync && told.to_string().contains("model refused: "), "{told}");
                }
                (rank, told) => assert!(rank == 1 && matches!(told, Error::Usage(_)), "{told}"),
            }
        }
    }
    Threads::new(2).run(|group| check(group.rank(), || Ddp::new(group.clone()))).expect("a world");
    let sharded = |group: Group| check(group.rank(), || FullyShard::new(group.clone(), Policy::default()));
    Threads::new(2).run(sharded).expect("a world");
}

/// One pass of a model and back.
fn pass(model: &mut Model) -> phalanx_candle::Result<()> {
    let loss = model.forward(Var::ones((2, 5), DType::F32, &Device::Cpu)?.as_tensor())?.sqr()?.mean_all()?;
    model.backward(&loss)
}

#[test]
fn a_variable_that_a_unit_was_not_given_is_refused_by_its_shape() {
    fn check(strategy: impl Strategy, rank: usize, recomputes: bool) {
        let weight = Var::ones((5, 5), DType::F32, &Device::Cpu).expect("a variable");
        let forgotten = Tensor::full(rank as f32, (5,), &Device::Cpu).and_then(|bias| Var::from_tensor(&bias));
        let (used, bias) = (weight.clone(), forgotten.expect("a variable"));
        let module = move |x: &Tensor| -> Result<Tensor> { linear(x, &used)?.broadcast_add(&bias) };
        let unit = Unit::new("forgetful", module).parameter("weight", &weight).recompute(recomputes);
        let mut model = Model::new(vec![unit], strategy).expect("a model");
        let told = "backward: unit forgetful computes with a variable of shape [5]: must be given to it by ";
        let refused = pass(&mut model);
        assert!(matches!(&refused, Err(Error::Usage(why)) if why.starts_with(told)), "{refused:?}");
        assert_eq!(model.unused(), ["weight"]);
    }
    for recomputes in [false, true] {
        check(Single::new(), 0, recomputes);
        let rank = |group: Group| {
            check(Ddp::new(group.clone()), group.rank(), recomputes);
            check(FullyShard::new(group.clone(), Policy::default()), group.rank(), recomputes);
        };
        Threads::new(2).run(rank).expect("a world");
    }
}

#[test]
fn what_loses_no_gradient_need_not_be_given() {
    let ones = |rows: usize| Var::ones((rows, 5), DType::F32, &Device::Cpu).expect("a variable");
    let (weight, fixed, average) = (ones(5), ones(1), ones(1));
    let order = Var::new(&[1_u32, 0], &Device::Cpu).expect("a variable");
    let constant = Tensor::full(2.0_f32, (1, 5), &Device::Cpu).expect("a constant");
    let (used, of_first) = (weight.clone(), fixed.clone());
    let first = move |x: &Tensor| -> Result<Tensor> {
        let x = linear(&x.index_select(&order, 0)?, &used)?.broadcast_mul(&of_first)?;
        x.broadcast_add(&average.as_detached_tensor())?.broadcast_mul(&constant)
    };
    let of_second = fixed.clone();
    let second = move |x: &Tensor| -> Result<Tensor> { x.broadcast_mul(&of_second) };
    let first = Unit::new("first", first).parameter("weight", &weight).frozen("fixed", &fixed);
    let mut model = Model::new(vec![first, Unit::new("second", second)], Single::new()).expect("a model");
    pass(&mut model).expect("a pass");
    assert_eq!(model.unused(), [""; 0]);
}

#[test]
fn a_variable_that_another_unit_trains_is_given_to_each_that_uses_it() {
    let shared = Var::ones((5, 5), DType::F32, &Device::Cpu).expect("a variable");
    let unit = |name: &str| Unit::new(name, Layer { weight: shared.clone(), is_cut: false });
    let first = || unit("first").parameter("first.weight", &shared);
    let mut model = Model::new(vec![first(), unit("second")], Single::new()).expect("a model");
    let refused = pass(&mut model).expect_err("its gradient would be lost").to_string();
    assert!(refused.contains("unit second computes with first.weight of shape [5, 5]: must be given"), "{refused}");
    let second = unit("second").parameter("second.weight", &shared);
    let mut model = Model::new(vec![first(), second], Single::new()).expect("a model");
    pass(&mut model).expect("a pass");
}

/// Its memory is taken when its own unit has run.
#[test]
fn a_sharded_variable_that_a_unit_was_not_given_fails_its_forward() {
    let rank = |group: Group| {
        for is_frozen in [false, true] {
            let ones = || Var::ones((5, 5), DType::F32, &Device::Cpu).expect("a variable");
            let (of_first, own) = (ones(), ones());
            let first = Unit::new("first", Layer { weight: of_first.clone(), is_cut: false });
            let first = match is_frozen {
                true => first.frozen("first.weight", &of_first),
                false => first.parameter("first.weight", &of_first),
            };
            let used = own.clone();
            let both = move |x: &Tensor| -> Result<Tensor> { linear(&linear(x, &used)?, &of_first) };
            let second = Unit::new("second", both).parameter("second.weight", &own);
            let sharded = FullyShard::new(group.clone(), Policy::default());
            let mut model = Model::new(vec![first, second], sharded).expect("a model");
            let x = Tensor::ones((2, 5), DType::F32, &Device::Cpu).expect("an input");
            let refused = if is_frozen { model.predict(&x) } else { model.forward(&x) };
            let told = refused.expect_err("refused").to_string();
            assert!(told.starts_with("forward: unit second computes with a variable of another unit"), "{told}");
        }
    };
    Threads::new(2).run(rank).expect("a world");
}

/// Whatever it says: where every variable has its memory nothing else can be meant.
#[test]
fn an_error_of_a_unit_stays_its_own_where_models_are_whole() {
    fn check(strategy: impl Strategy) {
        let weight = Var::ones((5, 5), DType::F32, &Device::Cpu).expect("a variable");
        let broken = |_: &Tensor| -> Result<Tensor> { candle_core::bail!("no F4 on this piano") };
        let unit = Unit::new("broken", broken).parameter("weight", &weight);
        let mut model = Model::new(vec![unit], strategy).expect("a model");
        let x = Tensor::ones((2, 5), DType::F32, &Device::Cpu).expect("an input");
        for refused in [model.forward(&x), model.predict(&x)] {
            assert!(matches!(&refused, Err(Error::Tensor(why)) if why.to_string().contains("piano")), "{refused:?}");
        }
    }
    check(Single::new());
    Threads::new(2).run(|group| check(Ddp::new(group))).expect("a world");
}

#[test]
fn a_loss_that_computes_with_a_variable_is_refused_and_another_may_follow() {
    let refused = |model: &mut Model, loss: Tensor, what: &str| {
        let refused = model.backward(&loss).expect_err("refused").to_string();
        let how = "must be given to a unit that does so, or be detached";
        assert_eq!(refused, format!("backward: the loss computes with {what}: {how}"));
    };
    let x = Tensor::ones((2, 5), DType::F32, &Device::Cpu).expect("an input");
    let (units, weights) = units();
    let mut model = Model::new(units, Single::new()).expect("a model");
    let output = model.forward(&x).expect("an output");
    let plain = output.sum_all().expect("a loss");
    let with = |term: Result<Tensor>| term.and_then(|term| &plain + term.sqr()?.sum_all()?).expect("a loss");
    refused(&mut model, with(Ok(weights[2].as_tensor().clone())), "2.weight of shape [5, 5]");
    let temperature = Var::ones((5,), DType::F32, &Device::Cpu).expect("a variable");
    refused(&mut model, with(output.broadcast_mul(&temperature)), "a variable of shape [5]");
    // What is frozen, or a constant, has no gradient that could be lost.
    let constants = weights[3].add(&weights[2].as_detached_tensor());
    model.backward(&with(constants)).expect("backward");
    let mut fresh = Model::new(self::units().0, Single::new()).expect("a model");
    let loss = fresh.forward(&x).and_then(|output| Ok(output.sum_all()?)).expect("a loss");
    fresh.backward(&loss).expect("backward");
    assert_eq!(slopes(&mut model), slopes(&mut fresh));
}

/// The gradients of this rank's parts.
fn slopes(model: &mut Model) -> Vec<Vec<f32>> {
    let mut all = vec![];
    model.update(|_, _, gradient| all.push(gradient.unwrap_or_default().to_vec())).expect("gradients");
    all
}

/// The gradients of a pass through two layers, before which the backward of another one got as far as the second.
fn slopes_after(fails: bool, strategy: impl Strategy) -> Vec<Vec<f32>> {
    let ones = || Var::ones((5, 5), DType::F32, &Device::Cpu).expect("a variable");
    let (of_first, of_second) = (ones(), ones());
    let (used, is_broken) = (of_first.clone(), Rc::new(Cell::new(false)));
    let breaks = is_broken.clone();
    let first = move |x: &Tensor| -> Result<Tensor> {
        if breaks.get() {
            candle_core::bail!("broken");
        }
        linear(x, &used)
    };
    let first = Unit::new("first", first).parameter("first.weight", &of_first).recompute(true);
    let second = Unit::new("second", Layer { weight: of_second.clone(), is_cut: false });
    let mut model = Model::new(vec![first, second.parameter("second.weight", &of_second)], strategy).expect("a model");
    if fails {
        let x = Tensor::full(7.0_f32, (2, 5), &Device::Cpu).expect("an input");
        let loss = model.forward(&x).and_then(|output| Ok(output.sum_all()?)).expect("a loss");
        is_broken.set(true);
        assert!(
            matches!(model.backward(&loss), Err(Error::Tensor(why)) if why.to_string().starts_with("unit first\nbroken"))
        );
        assert_eq!(model.unused(), ["first.weight", "second.weight"]);
        is_broken.set(false);
    }
    pass(&mut model).expect("a pass");
    slopes(&mut model)
}

#[test]
fn a_backward_that_fails_half_way_leaves_no_gradients_behind() {
    fn check<S: Strategy>(strategy: impl Fn() -> S) {
        let wanted = slopes_after(false, strategy());
        assert!(wanted.iter().flatten().any(|slope| *slope != 0.0));
        assert_eq!(slopes_after(true, strategy()), wanted);
    }
    check(Single::new);
    Threads::new(2).run(|group| check(|| Ddp::new(group.clone()))).expect("a world");
    let sharded = |group: Group| check(|| FullyShard::new(group.clone(), Policy::default()));
    Threads::new(2).run(sharded).expect("a world");
}

#[test]
fn the_first_unit_is_given_the_batch_itself() {
    let x = Tensor::ones((2, 5), DType::F32, &Device::Cpu).expect("an input");
    let weight = Var::ones((5, 5), DType::F32, &Device::Cpu).expect("a variable");
    let (batch, used) = (x.clone(), weight.clone());
    let first = move |x: &Tensor| -> Result<Tensor> {
        // As a variable it would be a copy, and have a gradient that nobody wants.
        assert!(!x.is_variable() && x.id() == batch.id());
        linear(x, &used)
    };
    let unit = Unit::new("first", first).parameter("weight", &weight);
    let mut model = Model::new(vec![unit], Single::new()).expect("a model");
    let loss = model.forward(&x).and_then(|output| Ok(output.sum_all()?)).expect("a loss");
    model.backward(&loss).expect("backward");
    assert_eq!(slopes(&mut model), [[2.0; 25]]);
}

#[test]
fn a_model_of_which_nothing_is_trained_is_refused() {
    let weight = Var::ones((5, 5), DType::F32, &Device::Cpu).expect("a variable");
    let unit = || Unit::new("unit", Layer { weight: weight.clone(), is_cut: false });
    for unit in [unit(), unit().frozen("weight", &weight)] {
        let refused = Model::new(vec![unit], Single::new()).expect_err("refused").to_string();
        assert!(refused.starts_with("Model::new: no trained parameter"), "{refused}");
    }
}

#[test]
fn a_bound_of_no_norm_is_refused_whoever_holds_the_model() {
    fn check(strategy: impl Strategy) {
        let mut model = Model::new(units().0, strategy).expect("a model");
        let x = Tensor::ones((2, 5), DType::F32, &Device::Cpu).expect("an input");
        let loss = model.forward(&x).and_then(|output| Ok(output.sqr()?.mean_all()?)).expect("a loss");
        model.backward(&loss).expect("backward");
        let norm = model.clip(f64::INFINITY).expect("nothing is clipped");
        for most in [-1.0, 0.0, f64::NAN] {
            let refused = model.clip(most).expect_err("refused").to_string();
            assert_eq!(refused, format!("clip: most is {most}: must be above zero"));
        }
        assert_eq!(model.clip(f64::INFINITY).expect("gradients are as they were"), norm);
    }
    check(Single::new());
    Threads::new(2).run(|group| check(Ddp::new(group))).expect("a world");
    Threads::new(2).run(|group| check(FullyShard::new(group, Policy::default()))).expect("a world");
}

#[test]
fn the_type_of_a_policy_is_that_of_the_variables_or_refused() {
    let told = Threads::new(2).run(|group| {
        let with = |policy| Model::new(units().0, FullyShard::new(group.clone(), policy));
        let refused = |policy| with(policy).expect_err("refused").to_string();
        let told = refused(Policy::default().compute(Wire::BF16));
        let why = "computing in bf16 by the policy asks for variables of bf16, those of unit layer 0 are f32";
        assert!(told.contains(why), "{told}");
        assert!(refused(Policy::default().output(Wire::I32)).contains("outputs of i32: must be"));
        let (mut units, _) = units();
        let narrow = Var::zeros((5, 5), DType::BF16, &Device::Cpu).expect("a variable");
        let wide = Var::zeros((5, 5), DType::F32, &Device::Cpu).expect("a variable");
        let layer = Layer { weight: narrow.clone(), is_cut: false };
        let unit = Unit::new("narrow", layer).parameter("narrow.weight", &narrow);
        units.push(unit.parameter("narrow.wide", &wide));
        let mixed = Model::new(units, FullyShard::new(group.clone(), Policy::default()));
        let told = mixed.expect_err("refused").to_string();
        let why = "narrow.weight is bf16 and narrow.wide is f32";
        assert_eq!(told, format!("FullyShard: {why}: must be of one type in unit narrow"));
        with(Policy::default().compute(Wire::F32)).map(drop).expect("what it is anyway");
    });
    told.expect("a world");
}

/// The gradients of a pass through units of two types.
fn slopes_of_two_types(strategy: impl Strategy) -> Vec<Vec<f32>> {
    let unit = |(at, dtype): (usize, DType)| {
        let values = (0..25).map(|value| ((value * 7 + at * 3) % 11) as f32 / 8.0 - 0.6).collect::<Vec<_>>();
        let narrow = Tensor::from_vec(values, (5, 5), &Device::Cpu).and_then(|wide| wide.to_dtype(dtype));
        let weight = narrow.and_then(|values| Var::from_tensor(&values)).expect("a variable");
        let used = weight.clone();
        let module = move |x: &Tensor| -> Result<Tensor> { linear(&x.to_dtype(dtype)?, &used) };
        Unit::new(format!("layer {at}"), module).parameter(format!("{at}.weight"), &weight)
    };
    let types = [DType::BF16, DType::F32, DType::BF16, DType::F32];
    let mut model = Model::new(types.into_iter().enumerate().map(unit).collect(), strategy).expect("a model");
    pass(&mut model).expect("a pass");
    slopes(&mut model)
}

#[test]
fn units_of_two_types_are_sharded_each_in_its_own() {
    let alone = slopes_of_two_types(Single::new());
    assert!(alone.iter().all(|slopes| slopes.iter().any(|slope| *slope != 0.0)), "{alone:?}");
    let sharded = |group: Group| {
        let slopes = slopes_of_two_types(FullyShard::new(group.clone(), Policy::default()));
        // There and back, where the last is kept. What ranks say of the model before is no numbers.
        let gathered = group.recorder().records().into_iter().filter(|record| record.op == OpKind::AllGather);
        let types: Vec<Wire> = gathered.map(|record| record.dtype).filter(|dtype| *dtype != Wire::U64).collect();
        assert_eq!(types, [Wire::BF16, Wire::F32, Wire::BF16, Wire::F32, Wire::BF16, Wire::F32, Wire::BF16]);
        slopes
    };
    let ends = Threads::new(2).run(sharded).expect("a world");
    for (at, wanted) in alone.iter().enumerate() {
        assert_eq!([ends[0][at].as_slice(), ends[1][at].as_slice()].concat(), *wanted, "layer {at}");
    }
}

/// Each has as many elements as the other.
#[test]
fn frozen_variables_of_another_shape_are_told_by_name_where_models_are_whole() {
    let ends = Threads::new(2).run(|group| {
        let ones = |shape: (usize, usize)| Var::ones(shape, DType::F32, &Device::Cpu).expect("a variable");
        let (weight, fixed) = (ones((5, 5)), ones(if group.rank() == 0 { (2, 3) } else { (3, 2) }));
        let unit = Unit::new("unit", Layer { weight: weight.clone(), is_cut: false }).parameter("weight", &weight);
        let refused = Model::new(vec![unit.frozen("fixed", &fixed)], Ddp::new(group)).expect_err("refused");
        assert!(matches!(&refused, Error::Ranks(why) if why.kind() == ErrorKind::Desync), "{refused}");
        refused.to_string()
    });
    for told in ends.expect("a world") {
        assert!(told.contains("\"fixed\", [2, 3] f32, Frozen"), "{told}");
    }
}

/// Each rank would compute with other numbers.
#[test]
fn variables_of_another_type_on_one_rank_are_told() {
    fn check(strategy: impl Strategy, [dtype, fixed]: [DType; 2], words: &str) {
        let ones = |dtype| Var::ones((5, 5), dtype, &Device::Cpu).expect("a variable");
        let (weight, fixed) = (ones(dtype), ones(fixed));
        let unit = Unit::new("unit", Layer { weight: weight.clone(), is_cut: false }).parameter("weight", &weight);
        let other = Unit::new("other", Layer { weight: fixed.clone(), is_cut: false }).frozen("fixed", &fixed);
        let refused = Model::new(vec![unit, other], strategy).expect_err("refused");
        assert!(matches!(&refused, Error::Ranks(why) if why.kind() == ErrorKind::Desync), "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let cases = [
        (
            [DType::BF16, DType::F32],
            "\"weight as it is computed with\", [5, 5] bf16",
            "\"unit\", reshard after forward Yes",
        ),
        ([DType::F32, DType::BF16], "\"fixed\", [5, 5] bf16, Frozen", "\"other\", reshard after forward No"),
    ];
    for (odd, whole, sharded) in cases {
        let rank = |group: Group| {
            let types = if group.rank() == 0 { [DType::F32; 2] } else { odd };
            check(Ddp::new(group.clone()), types, whole);
            check(FullyShard::new(group, Policy::default()), types, &format!("{sharded}, compute Some(BF16)"));
        };
        Threads::new(2).run(rank).expect("a world");
    }
}

#[test]
fn outputs_are_cast_to_the_type_of_the_policy() {
    let rank = |group: Group| {
        let x = Tensor::ones((1, 5), DType::F32, &Device::Cpu).expect("an input");
        let gradients = |policy| {
            let mut model = Model::new(units().0, FullyShard::new(group.clone(), policy)).expect("a model");
            let outputs = [model.predict(&x).expect("an output"), model.forward(&x).expect("an output")];
            model.backward(&outputs[1].sum_all().expect("a loss")).expect("backward");
            let mut all = vec![];
            model.update(|_, _, gradient| all.push(gradient.unwrap_or_default().to_vec())).expect("gradients");
            (outputs.map(|output| output.dtype()), all)
        };
        let (plain, wanted) = gradients(Policy::default());
        let (wide, got) = gradients(Policy::default().output(Wire::F64));
        assert_eq!((plain, wide), ([DType::F32; 2], [DType::F64; 2]));
        assert!(got == wanted && got[2].iter().any(|slope| *slope != 0.0));
    };
    Threads::new(2).run(rank).expect("a world");
}

/// What 512 micro-batches sum up to, of which each has a gradient of one in 512.
fn summed(strategy: impl Strategy) -> Vec<f32> {
    let weight = Var::zeros((4, 4), DType::BF16, &Device::Cpu).expect("a variable");
    let unit = Unit::new("unit", Layer { weight: weight.clone(), is_cut: true }).parameter("weight", &weight);
    let mut model = Model::new(vec![unit], strategy).expect("a model");
    let x = Tensor::full(half::bf16::from_f32(1.0 / 512.0), (1, 4), &Device::Cpu).expect("an input");
    for micro_batch in 1..=512 {
        model.set_sync(micro_batch == 512);
        let loss = model.forward(&x).and_then(|output| Ok(output.sum_all()?)).expect("a loss");
        model.backward(&loss).expect("backward");
    }
    let mut all = vec![];
    model.update(|_, _, gradient| all.extend_from_slice(gradient.unwrap_or_default())).expect("gradients");
    all
}

#[test]
fn micro_batches_of_sixteen_bits_add_up_whoever_holds_the_model() {
    assert_eq!(summed(Single::new()), [1.0; 16]);
    let sharded = |group| summed(FullyShard::new(group, Policy::default()));
    assert_eq!(Threads::new(2).run(sharded).expect("a world"), [[1.0; 8]; 2]);
    assert_eq!(Threads::new(2).run(|group| summed(Ddp::new(group))).expect("a world"), [[1.0; 16]; 2]);
}

/// Nothing that a rank does alone is missed by the others.
#[test]
fn a_rank_may_look_at_values_alone() {
    fn check(rank: usize, strategy: impl Strategy) {
        let mut model = Model::new(units().0, strategy).expect("a model");
        let x = Tensor::ones((1, 5), DType::F32, &Device::Cpu).expect("an input");
        let values = values(&mut model);
        let wanted = model.predict(&x).and_then(|y| Ok(y.to_vec2::<f32>()?)).expect("an output");
        for pass in 0..4 {
            if rank == 0 {
                let mut seen = vec![];
                model.look(|at, values| seen.push((at, values.to_vec()))).expect("values");
                assert_eq!(seen, values.iter().cloned().enumerate().collect::<Vec<_>>());
            }
            let output = if pass < 3 { model.predict(&x) } else { model.forward(&x) };
            assert_eq!(output.and_then(|y| Ok(y.to_vec2::<f32>()?)).expect("an output"), wanted, "pass {pass}");
        }
    }
    check(0, Single::new());
    Threads::new(2).run(|group| check(group.rank(), Ddp::new(group))).expect("a world");
    for reshard in [Reshard::Yes, Reshard::No] {
        let policy = Policy::default().reshard_after_forward(reshard);
        let sharded = |group: Group| check(group.rank(), FullyShard::new(group, policy.clone()));
        Threads::new(2).run(sharded).expect("a world");
    }
}
