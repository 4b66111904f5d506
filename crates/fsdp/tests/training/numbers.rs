//! What gathers and reductions give, to the last bit.

use half::f16;
use phalanx_core::{DType, OpKind};
use phalanx_fsdp::{Class, Factors, Gradient, Param, ParamSpec, Policy, Sharded, UnitSpec};

use crate::company::Company;

/// Odd shapes, some of them smaller than any world, and a scalar.
const SHAPES: [&[usize]; 9] = [&[17, 57], &[17], &[64, 12], &[1, 8], &[5, 1, 3], &[2], &[], &[0, 4], &[13]];

fn unit(dtype: DType) -> UnitSpec {
    let param = |(index, shape): (usize, &&[usize])| ParamSpec::new(format!("p{index}"), shape, dtype);
    UnitSpec::new("unit", SHAPES.iter().enumerate().map(param).collect())
}

/// Small whole numbers, whose sums and halves are exact in every type.
fn values(rank: usize, index: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed((rank * 100 + index) as u64);
    (0..SHAPES[index].iter().product()).map(|_| random.i32(-64..=64) as f32).collect()
}

#[test]
fn gathered_is_what_was_loaded() {
    for (world, dtype) in (1..=5).flat_map(|world| [DType::F32, DType::BF16, DType::F16].map(|dtype| (world, dtype))) {
        Company::of(world).run(|groups, _| {
            let mut model =
                Sharded::new(groups, vec![unit(DType::F32)], Policy::default().compute(dtype)).expect("a model");
            let params: Vec<_> = model.params().collect();
            for param in &params {
                model.load_full(*param, &values(9, param.index)).expect("its values");
            }
            for _again in 0..2 {
                let full = model.before_forward(0).expect("a unit");
                for param in &params {
                    let mut out = vec![-1.0_f32; values(9, param.index).len()];
                    full.copy_out(param.index, &mut out).expect("its length");
                    assert_eq!(out, values(9, param.index), "{dtype}, world {world}: {param:?}");
                }
                model.after_forward(0).expect("its end");
            }
            for param in params {
                let mut out = vec![0.0_f64; values(9, param.index).len()];
                model.copy_full(param, &mut out).expect("its length");
                assert!(out.iter().zip(values(9, param.index)).all(|(x, y)| *x == f64::from(y)));
            }
        });
    }
}

#[test]
fn views_are_given_where_a_parameter_lies_in_one_piece() {
    Company::of(2).run(|groups, _| {
        let one = UnitSpec::new("one", vec![ParamSpec::new("weight", &[3, 2], DType::F32)]);
        let two = vec![ParamSpec::new("weight", &[3, 2], DType::F32), ParamSpec::new("gain", &[], DType::F32)];
        let units = vec![one, UnitSpec::new("two", two)];
        let mut model = Sharded::new(groups, units, Policy::default()).expect("a model");
        let values = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        for (unit, name) in [("one", "weight"), ("two", "weight")] {
            model.load_full(model.param(unit, name).expect("a name"), &values).expect("its values");
        }
        model.load_full(model.param("two", "gain").expect("a name"), &[7.0_f32]).expect("its value");
        let full = model.unshard(0).expect("a unit");
        assert_eq!((full.view::<f32>(0), full.view::<f64>(0)), (Some(&values[..]), None));
        let full = model.unshard(1).expect("a unit");
        assert_eq!((full.view::<f32>(0), full.view::<f32>(1)), (None, Some(&[7.0][..])));
        model.reshard(1).expect("a unit");
        assert!(model.gathered(1).is_none() && model.gathered(0).is_some());
    });
}

/// The gradients of one backward, of whole numbers that depend on the rank.
fn reduced(company: Company, policy: &Policy, divisor: Option<f64>) -> Vec<Vec<Vec<f32>>> {
    company.run(|groups, rank| {
        let mut model = Sharded::new(groups, vec![unit(DType::F32)], policy.clone()).expect("a model");
        model.set_gradient_divisor(divisor).expect("a divisor");
        bring(&mut model, rank);
        own(&model)
    })
}

/// A backward with the gradients of a rank.
fn bring(model: &mut Sharded, rank: usize) {
    model.before_backward(0).expect("a unit");
    let gradients: Vec<_> = (0..SHAPES.len()).map(|index| values(rank, index)).collect();
    let gradients: Vec<_> = gradients.iter().enumerate().map(|(index, g)| Gradient::new(index, g)).collect();
    model.gradients(0, &gradients).expect("gradients");
    model.finish_backward().expect("the end");
}

/// The gradients of this rank's rows.
fn own(model: &Sharded) -> Vec<Vec<f32>> {
    let own = |param| model.gradient::<f32>(param).expect("a type").expect("a gradient").to_vec();
    model.params().map(own).collect()
}

/// That every rank has its rows of `wanted`.
fn check(company: Company, got: &[Vec<Vec<f32>>], wanted: impl Fn(f32) -> f32, what: &str) {
    for index in 0..SHAPES.len() {
        let mut sum = vec![0.0_f32; SHAPES[index].iter().product()];
        for rank in 0..company.size() {
            sum.iter_mut().zip(values(rank, index)).for_each(|(sum, x)| *sum += x);
        }
        for replica in got.chunks(company.shards) {
            let full: Vec<f32> = replica.iter().flat_map(|rank| rank[index].clone()).collect();
            let wanted: Vec<f32> = sum.iter().map(|x| wanted(*x)).collect();
            assert_eq!(full, wanted, "{what}: parameter {index} of {company:?}");
        }
    }
}

#[test]
fn reductions_are_the_average_or_their_formula() {
    let companies = [Company::of(1), Company::of(2), Company::of(3), Company::of(4), Company::of(2).replicas(2)];
    for company in companies {
        let size = company.size() as f32;
        check(company, &reduced(company, &Policy::default(), None), |sum| sum / size, "f32");
        let policy = Policy::default().reduce(DType::F16);
        // The first division is by a power of two, and exact here; the second is rounded once, in f16.
        let Factors { before, after, .. } = Factors::two_steps(company.size() as f64);
        let halved = |sum: f32| f16::from_f32(sum / before as f32 / after as f32).to_f32();
        check(company, &reduced(company, &policy, None), halved, "f16");
    }
}

#[test]
fn gradients_are_summed_up_in_the_type_that_is_computed_in_unless_told() {
    let bf16 = Policy::default().compute(DType::BF16);
    for (policy, sum) in [(bf16.clone(), 256.0), (bf16.reduce(DType::F32), 259.0), (Policy::default(), 259.0)] {
        Company::of(2).run(|groups, _| {
            let one = UnitSpec::new("one", vec![ParamSpec::new("weight", &[2], DType::F32)]);
            let mut model = Sharded::new(groups, vec![one], policy.clone()).expect("a model");
            // Of `bf16` there are 8 digits, and half of the last goes to the even.
            for (gradient, syncs) in [(256.0_f32, false), (1.0, false), (1.0, false), (1.0, true)] {
                model.set_sync(syncs);
                model.before_backward(0).expect("a unit");
                model.gradients(0, &[Gradient::new(0, &[gradient; 2])]).expect("gradients");
                model.finish_backward().expect("the end");
            }
            let weight = model.param("one", "weight").expect("a name");
            assert_eq!(model.gradient::<f32>(weight), Ok(Some(&[sum][..])), "{policy:?}");
        });
    }
}

#[test]
fn a_divisor_takes_the_place_of_the_number_of_ranks() {
    for company in [Company::of(2), Company::of(4), Company::of(2).replicas(2)] {
        for times in [1.0, 2.0] {
            let divisor = times * company.size() as f64;
            for policy in [Policy::default(), Policy::default().reduce(DType::F16)] {
                let got = reduced(company, &policy, Some(divisor));
                check(company, &got, |sum| sum / divisor as f32, &format!("{policy:?} by {divisor}"));
            }
        }
    }
}

#[test]
fn a_divisor_that_nothing_divides_keeps_sums_of_a_short_exponent_finite() {
    for divisor in [8191.0, 4.5] {
        let ends = Company::of(8).run(|groups, _| {
            let one = UnitSpec::new("one", vec![ParamSpec::new("weight", &[8], DType::F32)]);
            let mut model = Sharded::new(groups, vec![one], Policy::default().reduce(DType::F16)).expect("a model");
            model.set_gradient_divisor(Some(divisor)).expect("a divisor");
            model.before_backward(0).expect("a unit");
            model.gradients(0, &[Gradient::new(0, &[20_000.0_f32; 8])]).expect("gradients");
            model.finish_backward().expect("the end");
            let weight = model.param("one", "weight").expect("a name");
            model.gradient::<f32>(weight).expect("a type").expect("a gradient").to_vec()
        });
        let wanted = 160_000.0 / divisor;
        let close = |got: &f32| (f64::from(*got) / wanted - 1.0).abs() < 2e-3;
        assert!(ends.iter().flatten().all(close), "{ends:?} for {wanted}");
    }
}

#[test]
fn a_divisor_is_not_changed_for_gradients_that_travel_or_wait_for_replicas() {
    let company = Company::of(2).replicas(2);
    let got = company.run(|groups, rank| {
        let mut model = Sharded::new(groups, vec![unit(DType::F32)], Policy::default()).expect("a model");
        let refused = |model: &mut Sharded| model.set_gradient_divisor(Some(8.0)).expect_err("refused").to_string();
        model.set_last_backward(false);
        bring(&mut model, rank);
        let words = "set_gradient_divisor: gradients is being reduced in unit \"unit\", must be awaited first";
        assert_eq!(refused(&mut model), words);
        model.set_last_backward(true);
        model.set_all_reduce(false);
        bring(&mut model, rank);
        let words = "set_gradient_divisor: gradients is kept for replicas in unit \"unit\", must be joined first";
        assert_eq!(refused(&mut model), words);
        assert_eq!(model.set_hook(None).expect_err("refused").to_string(), words.replace("gradient_divisor", "hook"));
        model.zero_gradients();
        model.set_all_reduce(true);
        // What is summed up in full is divided when it travels.
        model.set_sync(false);
        bring(&mut model, rank);
        model.set_gradient_divisor(Some(8.0)).expect("a divisor");
        model.set_sync(true);
        bring(&mut model, rank);
        own(&model)
    });
    check(company, &got, |sum| 2.0 * sum / 8.0, "twice by 8");
}

#[test]
fn a_divisor_that_means_nothing_is_refused() {
    Company::of(1).run(|groups, _| {
        let mut model = Sharded::new(groups, vec![unit(DType::F32)], Policy::default()).expect("a model");
        let odd = [(0.0, "0.0"), (f64::NAN, "NaN"), (f64::INFINITY, "inf"), (1e-300, "1e-300"), (1e300, "1e300")];
        for (divisor, name) in odd {
            let said = model.set_gradient_divisor(Some(divisor)).expect_err("refused").to_string();
            assert_eq!(said, format!("set_gradient_divisor: divisor is {name}, must be finite and not 0 as f32"));
        }
        model.set_gradient_divisor(Some(0.5)).expect("a divisor");
    });
}

/// How a model is told to hold gradients back, or not.
type Setting = fn(&mut Sharded, bool);

#[test]
fn gradients_of_a_backward_that_is_given_up_leave_nothing_behind() {
    let ways: [(&str, Setting); 3] = [
        ("in full", |model, waits| model.set_sync(!waits)),
        ("as parts that replicas have not joined", |model, waits| model.set_all_reduce(!waits)),
        ("on their way", |model, waits| model.set_last_backward(!waits)),
    ];
    held_back(&ways, 2, |model, rank, (what, wait), _| {
        wait(model, true);
        (0..2).for_each(|bad| bring(model, rank + 50 + bad));
        model.zero_gradients();
        assert_eq!(model.memory().of(Class::Accumulated).current, 0, "{what}");
        assert_eq!(model.unused().len(), SHAPES.len());
        wait(model, false);
        bring(model, rank);
    });
}

#[test]
fn gradients_of_a_unit_that_the_last_micro_batch_skips_are_reduced() {
    let ways: [(&str, Setting); 2] = [
        ("in full", |model, waits| model.set_sync(!waits)),
        ("as parts that replicas have not joined", |model, waits| model.set_all_reduce(!waits)),
    ];
    held_back(&ways, 3, |model, rank, (what, wait), company| {
        wait(model, true);
        bring(model, rank);
        wait(model, false);
        // One that is not the last may be followed by one that comes to the unit.
        model.set_last_backward(false);
        model.finish_backward().expect("the end");
        let waits = model.memory().of(Class::Accumulated).current > 0;
        assert_eq!(waits, what == "in full" || company.replicas > 1, "{what}, {company:?}");
        model.set_last_backward(true);
        model.finish_backward().expect("the end");
        assert_eq!(model.memory().of(Class::Accumulated).current, 0, "{what}, {company:?}");
    });
}

/// Has ranks alone, so many together, and replicas hold gradients back in each of these ways. In the end each has brought its own once.
fn held_back(
    ways: &[(&'static str, Setting)],
    shards: usize,
    steps: impl Fn(&mut Sharded, usize, (&str, Setting), Company) + Sync,
) {
    for way in ways {
        for company in [Company::of(1), Company::of(shards), Company::of(2).replicas(2)] {
            let got = company.run(|groups, rank| {
                let mut model = Sharded::new(groups, vec![unit(DType::F32)], Policy::default()).expect("a model");
                steps(&mut model, rank, *way, company);
                own(&model)
            });
            check(company, &got, |sum| sum / company.size() as f32, way.0);
        }
    }
}

#[test]
fn a_unit_may_have_types_of_its_own() {
    Company::of(2).run(|groups, _| {
        let unit = |name: &str| UnitSpec::new(name, vec![ParamSpec::new("weight", &[4], DType::F32)]);
        let units = vec![unit("narrow"), unit("wide").compute(DType::F32).reduce(DType::F64)];
        let policy = Policy::default().compute(DType::BF16).reduce(DType::F32);
        let mut model = Sharded::new(groups.clone(), units, policy).expect("a model");
        // bf16 has no room for the rest.
        let value = 1.0 + 2.0_f32.powi(-20);
        for unit in [0, 1] {
            model.load_full(Param { unit, index: 0 }, &[value; 4]).expect("its values");
        }
        for (unit, dtype, wanted) in [(0, DType::BF16, 1.0), (1, DType::F32, value)] {
            let (full, mut out) = (model.before_forward(unit).expect("a unit"), [0.0_f32; 4]);
            full.copy_out(0, &mut out).expect("its length");
            assert_eq!((full.dtype(0), out), (Ok(dtype), [wanted; 4]));
            model.after_forward(unit).expect("its end");
        }
        for unit in [1, 0] {
            model.before_backward(unit).expect("a unit");
            model.gradients(unit, &[Gradient::new(0, &[1.0_f32; 4])]).expect("a gradient");
        }
        model.finish_backward().expect("the end");
        let records = groups.shard().recorder().records();
        let reduced = records.iter().filter(|record| record.op == OpKind::ReduceScatter);
        assert_eq!(reduced.map(|record| record.dtype).collect::<Vec<_>>(), [DType::F64, DType::F32]);
        for unit in [0, 1] {
            let gradient = model.gradient::<f32>(Param { unit, index: 0 });
            assert_eq!(gradient, Ok(Some(&[1.0; 2][..])), "unit {unit}");
        }
    });
}

#[test]
fn what_cannot_be_sharded_is_refused_by_name() {
    Company::of(1).run(|groups, _| {
        let refused = |params: Vec<ParamSpec>, policy: Policy| {
            let unit = UnitSpec::new("block", params);
            Sharded::new(groups.clone(), vec![unit], policy).expect_err("a refusal").to_string()
        };
        let f32 = |name: &str| ParamSpec::new(name, &[2], DType::F32);
        let own = Policy::default;
        assert_eq!(
            refused(vec![f32("a"), f32("a")], own()),
            "Sharded::new: param is \"a\" twice in unit \"block\", must have a name of its own"
        );
        assert!(refused(vec![f32("a").tied_to("b")], own()).contains("\"a\" tied to \"b\" in unit \"block\""));
        let other = ParamSpec::new("b", &[3], DType::F32).tied_to("a");
        assert!(refused(vec![f32("a"), other], own()).contains("must have the shape and dtype"));
        assert!(refused(vec![f32("a").ignored(), f32("b").tied_to("a")], own()).contains("not ignored"));
        assert!(refused(vec![ParamSpec::new("a", &[2], DType::I32)], own()).contains("i32 for \"a\""));
        assert!(refused(vec![ParamSpec::new("a", &[usize::MAX, 2], DType::F32)], own()).contains("fits into memory"));
        assert!(refused(vec![f32("a")], own().reduce(DType::U8)).contains("u8 for the policy, must be"));
        let unit = UnitSpec::new("block", vec![f32("a")]);
        for unit in [unit.clone().compute(DType::U8), unit.reduce(DType::U8)] {
            // Whatever the policy says.
            let error = Sharded::new(groups.clone(), vec![unit], own().compute(DType::BF16)).expect_err("a refusal");
            assert!(error.to_string().contains("u8 for unit \"block\", must be"), "{error}");
        }
        let mixed = vec![f32("a"), ParamSpec::new("b", &[2], DType::BF16)];
        let told = refused(mixed.clone(), own());
        assert!(told.contains("\"a\" f32, \"b\" bf16") && told.ends_with("by the policy or the unit"), "{told}");
        let unit = UnitSpec::new("block", mixed);
        Sharded::new(groups.clone(), vec![unit], own().reduce(DType::F32)).expect("one type for gradients");
        let smaller = own().reshard_after_forward(phalanx_fsdp::Reshard::Smaller);
        assert!(refused(vec![f32("a")], smaller).contains("divided after forward"));
    });
}

#[test]
fn gradients_of_two_types_are_refused_by_name() {
    Company::of(1).run(|groups, _| {
        let params = vec![ParamSpec::new("a", &[1], DType::F32), ParamSpec::new("b", &[1], DType::F32)];
        let mut model = Sharded::new(groups, vec![UnitSpec::new("block", params)], Policy::default()).expect("a model");
        model.before_backward(0).expect("a unit");
        let both = [Gradient::new(0, &[1.0_f32]), Gradient::new(1, &[f16::ONE])];
        let error = model.gradients(0, &both).expect_err("two types");
        assert_eq!(error.to_string(), "gradients: dtype is \"a\" f32, \"b\" f16, must be one in unit \"block\"");
        // Nothing has happened: the right ones may still come.
        model.gradients(0, &both[..1]).expect("one type");
        model.finish_backward().expect("the end");
        assert_eq!(model.unused(), [model.param("block", "b").expect("a name")]);
        let gradient = model.gradient::<f32>(model.param("block", "b").expect("a name")).expect("a type");
        assert_eq!(gradient, Some(&[0.0][..]));
    });
}
