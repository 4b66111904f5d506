//! Communication hooks over real groups: their formulas, their bytes, and what training makes of them.

use half::{bf16, f16};
use phalanx_core::{DType, OpKind};
use phalanx_fsdp::hooks::{AllReduce, Bf16, F16, GradientHook, Int8, ReduceScatter, Size, Wire};
use phalanx_fsdp::{Ddp, DdpOptions, Factors, Gradient, Groups, ParamSpec, Policy, Sharded, UnitSpec};

use crate::company::Company;
use crate::model::mixed;
use crate::train::Task;

const LEN: usize = 4099;

/// Whole numbers, whose halves and sums are exact in every type.
fn values(rank: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(rank as u64);
    (0..LEN).map(|_| random.i32(-16..=16) as f32).collect()
}

/// The full gradient that ranks end with, and the bytes that one rank gave to the shard group.
fn reduced(company: Company, hook: impl Fn() -> Option<Box<dyn GradientHook>> + Sync) -> (Vec<f32>, usize) {
    let ends = company.run(|groups: Groups, rank| {
        let unit = UnitSpec::new("unit", vec![ParamSpec::new("weight", &[LEN], DType::F32)]);
        let mut model = Sharded::new(groups.clone(), vec![unit], Policy::default()).expect("a model");
        model.set_hook(hook()).expect("gradients of f32");
        model.before_backward(0).expect("a unit");
        model.gradients(0, &[Gradient::new(0, &values(rank))]).expect("a gradient");
        model.finish_backward().expect("the end");
        let records = groups.shard().recorder().records();
        let reductions = records.iter().filter(|record| record.op != OpKind::AllGather);
        let given = reductions.map(|record| record.input * record.dtype.byte_len()).sum::<usize>();
        let param = model.param("unit", "weight").expect("a name");
        (model.gradient::<f32>(param).expect("a type").expect("a gradient").to_vec(), given)
    });
    let first = ends[0].1;
    (ends.into_iter().take(company.shards).flat_map(|(rows, _)| rows).collect(), first)
}

fn sum(ranks: usize) -> Vec<f32> {
    let mut sum = vec![0.0; LEN];
    (0..ranks).for_each(|rank| sum.iter_mut().zip(values(rank)).for_each(|(sum, x)| *sum += x));
    sum
}

#[test]
fn hooks_are_their_formulas() {
    for ranks in 1..=4 {
        let Factors { before, after, .. } = Factors::two_steps(ranks as f64);
        let wanted = |round: fn(f32) -> f32| -> Vec<f32> {
            sum(ranks).into_iter().map(|x| round(x / before as f32 / after as f32)).collect()
        };
        let company = Company::of(ranks);
        assert_eq!(reduced(company, || Some(Box::new(AllReduce))).0, wanted(|x| x), "{ranks} ranks");
        assert_eq!(reduced(company, || Some(Box::new(ReduceScatter))).0, wanted(|x| x), "{ranks} ranks");
        assert_eq!(reduced(company, || Some(Box::new(F16))).0, wanted(|x| f16::from_f32(x).to_f32()), "{ranks} ranks");
        assert_eq!(
            reduced(company, || Some(Box::new(Bf16))).0,
            wanted(|x| bf16::from_f32(x).to_f32()),
            "{ranks} ranks"
        );
        let bound = ranks as f32 * 16.0 / 127.0 / 2.0 / ranks as f32 + 1e-4;
        let integers = reduced(company, || Some(Box::new(Int8::default()))).0;
        let exact = wanted(|x| x);
        assert!(integers.iter().zip(&exact).all(|(got, wanted)| (got - wanted).abs() <= bound), "{ranks} ranks");
    }
}

#[test]
fn replicas_join_what_a_hook_has_reduced() {
    let company = Company::of(2).replicas(2);
    let wanted: Vec<f32> = sum(4).into_iter().map(|x| x / 4.0).collect();
    assert_eq!(reduced(company, || Some(Box::new(F16))).0, wanted);
}

#[test]
fn what_travels_is_as_short_as_promised() {
    let plain = reduced(Company::of(2), || None).1;
    for hook in [|| Some(Box::new(F16) as Box<dyn GradientHook>), || Some(Box::new(Bf16) as _)] {
        assert_eq!(reduced(Company::of(2), hook).1 * 2, plain);
    }
    let integers = reduced(Company::of(2), || Some(Box::new(Int8::default()))).1;
    assert!(integers * 7 <= plain * 2, "{plain} bytes became {integers}");
}

#[test]
fn training_ends_as_well_with_every_hook() {
    let task = Task::new(mixed(), 200);
    let company = Company::of(3);
    let last = |losses: &[f64]| losses[190..].iter().sum::<f64>();
    let plain = last(&task.sharded(company, &Policy::default(), |_, _, _| {}).losses);
    let hooks: [fn() -> Box<dyn GradientHook>; 5] = [
        || Box::new(AllReduce),
        || Box::new(ReduceScatter),
        || Box::new(F16),
        || Box::new(Bf16),
        || Box::new(Int8::default()),
    ];
    for hook in hooks {
        let outcome = task.sharded(company, &Policy::default(), |model, step, _| {
            if step == 0 {
                model.set_hook(Some(hook())).expect("gradients of f32");
            }
        });
        let end = last(&outcome.losses);
        assert!((end / plain - 1.0).abs() < 0.02, "{:?}: {end} for {plain}", hook());
    }
}

/// `f32` in the first step and half of that afterwards. What came tells by its length which of them it is.
#[derive(Debug, Default)]
struct WarmUp {
    is_warm: bool,
}

impl GradientHook for WarmUp {
    fn wire(&self, size: Size) -> Wire {
        if self.is_warm { F16.wire(size) } else { ReduceScatter.wire(size) }
    }

    fn pack(&mut self, unit: usize, size: Size, gradients: &[f32], wire: &mut [u8]) {
        match std::mem::replace(&mut self.is_warm, true) {
            true => F16.pack(unit, size, gradients, wire),
            false => ReduceScatter.pack(unit, size, gradients, wire),
        }
    }

    fn unpack(&mut self, unit: usize, size: Size, wire: &[u8], reduced: &mut [f32]) {
        match wire.len() < size_of_val(reduced) {
            true => F16.unpack(unit, size, wire, reduced),
            false => ReduceScatter.unpack(unit, size, wire, reduced),
        }
    }
}

#[test]
fn a_hook_may_change_what_travels_from_one_step_to_the_next() {
    let wanted: Vec<f32> = sum(2).into_iter().map(|x| x / 2.0).collect();
    let warm_up = || Some(Box::new(WarmUp::default()) as Box<dyn GradientHook>);
    let ends = Company::of(2).run(|groups, rank| {
        let unit = UnitSpec::new("unit", vec![ParamSpec::new("weight", &[LEN], DType::F32)]);
        let mut model = Sharded::new(groups.clone(), vec![unit], Policy::default()).expect("a model");
        model.set_hook(warm_up()).expect("gradients of f32");
        let whole = [("weight", LEN, DType::F32)];
        let mut ddp = Ddp::new(groups.shard().clone(), &whole, DdpOptions::default()).expect("a model");
        ddp.set_hook(warm_up()).expect("gradients of f32");
        let weight = model.param("unit", "weight").expect("a name");
        [(); 2].map(|()| {
            model.before_backward(0).expect("a unit");
            model.gradients(0, &[Gradient::new(0, &values(rank))]).expect("a gradient");
            model.finish_backward().expect("the end");
            ddp.gradient(0, &values(rank)).expect("a gradient");
            ddp.finish_backward().expect("the end");
            assert_eq!(ddp.averaged::<f32>(0), Ok(Some(&wanted[..])));
            let rows = model.gradient::<f32>(weight).expect("a type").expect("a gradient").to_vec();
            model.zero_gradients();
            rows
        })
    });
    for step in [0, 1] {
        let full: Vec<f32> = ends.iter().flat_map(|steps| steps[step].clone()).collect();
        assert_eq!(full, wanted, "step {step}");
    }
}

#[test]
fn a_hook_is_refused_where_gradients_are_not_f32() {
    Company::of(1).run(|groups, _| {
        let unit = UnitSpec::new("unit", vec![ParamSpec::new("weight", &[3], DType::BF16)]);
        let mut model = Sharded::new(groups.clone(), vec![unit.clone()], Policy::default()).expect("a model");
        let error = model.set_hook(Some(Box::new(F16))).expect_err("bf16");
        let words =
            "set_hook: reduce is bf16 for \"weight\" in unit \"unit\", must be f32, set by the policy or the unit";
        assert_eq!(error.to_string(), words);
        let whole = [("a", 3, DType::F32), ("b", 3, DType::F64)];
        let mut ddp = Ddp::new(groups.shard().clone(), &whole, DdpOptions::default()).expect("a model");
        let error = ddp.set_hook(Some(Box::new(F16))).expect_err("f64");
        assert_eq!(error.to_string(), "set_hook: gradients is f64 for \"b\", must be f32");
        ddp.set_hook(None).expect("it is as it was");
        let policy = Policy::default().reduce(DType::F32);
        let mut model = Sharded::new(groups.clone(), vec![unit.clone()], policy).expect("a model");
        model.set_hook(Some(Box::new(F16))).expect("f32");
        let mut model = Sharded::new(groups, vec![unit.reduce(DType::F32)], Policy::default()).expect("a model");
        model.set_hook(Some(Box::new(F16))).expect("f32");
    });
}
