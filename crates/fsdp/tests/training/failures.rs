//! A rank that goes away in the middle: the others end with an error that names it, and stay ended.

use phalanx_core::{DType, Error, ErrorKind, Result};
use phalanx_fsdp::hooks::{AllReduce, GradientHook, Int8};
use phalanx_fsdp::{Ddp, DdpOptions, Gradient, ParamSpec, Policy, Reshard, Sharded, UnitSpec, refuse};

use crate::company::Company;

#[test]
fn a_rank_that_leaves_ends_the_training_of_all() {
    for leaves_after in [0, 1, 2, 3] {
        let ends = Company::of(3).run(|groups, rank| {
            let unit = |name: &str| UnitSpec::new(name, vec![ParamSpec::new("weight", &[300, 100], DType::F32)]);
            let mut model = Sharded::new(groups, vec![unit("a"), unit("b")], Policy::default()).expect("a model");
            let gradient = vec![1.0_f32; 300 * 100];
            let mut step = 0;
            let mut pass = |model: &mut Sharded| {
                for unit in [0, 1] {
                    model.before_forward(unit)?;
                    model.after_forward(unit)?;
                }
                for unit in [1, 0] {
                    model.before_backward(unit)?;
                    model.gradients(unit, &[Gradient::new(0, &gradient)])?;
                }
                step += 1;
                model.finish_backward()
            };
            for _ in 0..leaves_after {
                pass(&mut model).expect("a pass with all");
            }
            if rank == 1 {
                return None;
            }
            let error = pass(&mut model).expect_err("a rank is gone");
            let again = model.before_forward(0).expect_err("the group has failed");
            assert_eq!(again.kind(), ErrorKind::Aborted, "{again}");
            let param = model.param("a", "weight").expect("a name");
            assert_eq!(model.shard::<f32>(param).expect("a shard").len(), 100 * 100);
            Some(error)
        });
        for error in ends.into_iter().flatten() {
            assert_eq!(error.culprits(), [1], "{error}");
        }
    }
}

#[test]
fn ranks_that_come_to_different_units_are_told() {
    // Also where they gather as much.
    for rows in [20, 10] {
        let ends = Company::of(2).run(|groups, rank| {
            let mut model = Sharded::new(groups, pair(rows), Policy::default()).expect("a model");
            let error = model.before_forward(rank).expect_err("another unit");
            assert_eq!(model.before_forward(0).expect_err("the model has failed").kind(), ErrorKind::Desync);
            error
        });
        ends.iter().for_each(assert_names_units);
    }
}

#[test]
fn ranks_that_bring_gradients_of_different_units_are_told() {
    type Make = fn() -> Option<Box<dyn GradientHook>>;
    let hooks: [Make; 3] = [|| None, || Some(Box::new(AllReduce)), || Some(Box::new(Int8::default()))];
    for hook in hooks {
        let ends = Company::of(2).run(|groups, rank| {
            let policy = Policy::default().reshard_after_forward(Reshard::No);
            let mut model = Sharded::new(groups, pair(10), policy).expect("a model");
            model.set_hook(hook()).expect("gradients of f32");
            for unit in [0, 1] {
                model.before_forward(unit).expect("a unit");
                model.after_forward(unit).expect("its end");
            }
            model.before_backward(rank).expect("a unit that is there");
            model.gradients(rank, &[Gradient::new(0, &[1.0_f32; 100])]).expect("begun");
            model.finish_backward().expect_err("another unit")
        });
        ends.iter().for_each(assert_names_units);
    }
}

/// A rank whose norm or broadcast met something else would wait for the others in what comes next.
#[test]
fn a_failure_outside_forward_and_backward_is_remembered() {
    type Call = fn(&mut Sharded) -> Result<()>;
    let norm: Call = |model| model.clip_gradients(1.0, 2.0).map(drop);
    let overflow: Call = |model| model.gradients_overflowed().map(drop);
    let gather: Call = |model| model.before_forward(0).map(drop);
    let replicas: Call = Sharded::broadcast_replicas;
    let largest: Call = |model| model.largest(0).map(drop);
    let two = Company::of(2);
    for (company, calls) in
        [(two, [norm, gather]), (two, [overflow, gather]), (Company::of(1).replicas(2), [largest, replicas])]
    {
        company.run(|groups, rank| {
            let mut model = Sharded::new(groups, pair(10), Policy::default()).expect("a model");
            let told = calls[rank](&mut model).expect_err("another call");
            assert_eq!(told.kind(), ErrorKind::Desync, "{told}");
            let weight = model.param("a", "weight").expect("a name");
            let after = [model.before_forward(0).map(drop), model.copy_full(weight, &mut [0.0_f32; 100])];
            for end in after {
                assert_eq!(end.expect_err("the model has failed").kind(), ErrorKind::Desync);
            }
        });
    }
}

#[test]
fn what_one_rank_has_come_to_know_all_learn() {
    let company = Company::of(2).replicas(2);
    for knows in 0..company.size() {
        let ends = company.run(|groups, rank| {
            let mut model = Sharded::new(groups, pair(10), Policy::default()).expect("a model");
            model.largest(if rank == knows { 7 } else { rank as u64 })
        });
        assert!(ends.iter().all(|end| *end == Ok(7)), "{knows}: {ends:?}");
    }
}

/// Two units, the second of so many rows.
fn pair(rows: usize) -> Vec<UnitSpec> {
    let unit = |(name, rows)| UnitSpec::new(name, vec![ParamSpec::new("weight", &[rows, 10], DType::F32)]);
    [("a", 10), ("b", rows)].map(unit).to_vec()
}

fn assert_names_units(error: &Error) {
    let Error::Desync(desync) = error else { panic!("{error}") };
    let units = [desync.ours.as_str(), desync.theirs.as_str()];
    assert!(desync.field == "unit" && (units == ["0", "1"] || units == ["1", "0"]), "{error}");
}

#[test]
fn ranks_whose_replicas_hold_another_part_are_told() {
    for shards in [2, 3] {
        let company = Company::of(shards).replicas(2);
        let mut groups = company.groups();
        // The last two of the second replica: the ranks beside them have the right partners.
        let [before, last] = [2 * shards - 2, 2 * shards - 1];
        let partners = [last, before].map(|rank| groups[rank].replicas().expect("replicas").clone());
        for (rank, partner) in [before, last].into_iter().zip(partners) {
            groups[rank] = groups[rank].clone().replicate(partner);
        }
        let ends = Company::run_with(groups, |groups, _| {
            Sharded::new(groups, pair(10), Policy::default()).map(drop).expect_err("another part")
        });
        for (rank, error) in ends.iter().enumerate() {
            let Error::Desync(desync) = error else { panic!("rank {rank} of {company:?}: {error}") };
            let expected = if rank % shards + 2 < shards { "model" } else { "policy" };
            assert_eq!(desync.field, expected, "rank {rank} of {company:?}: {error}");
        }
    }
}

/// A model of two units, and what another rank may say in its place.
fn models() -> Vec<(&'static str, &'static str, Vec<UnitSpec>, Policy)> {
    let weight = |rows: usize| ParamSpec::new("weight", &[rows, 3], DType::F32);
    let unit = |name: &str, params: Vec<ParamSpec>| UnitSpec::new(name, params);
    let with = |second: Vec<ParamSpec>| vec![unit("a", vec![weight(4)]), unit("b", second)];
    let plain = Policy::default();
    vec![
        ("", "", with(vec![weight(5)]), plain.clone()),
        ("unit", "\"c\"", vec![unit("a", vec![weight(4)]), unit("c", vec![weight(5)])], plain.clone()),
        ("unit", "nothing more", vec![unit("a", vec![weight(4)])], plain.clone()),
        ("parameter", "[6, 3]", with(vec![weight(6)]), plain.clone()),
        ("parameter", "f64", with(vec![ParamSpec::new("weight", &[5, 3], DType::F64)]), plain.clone()),
        ("parameter", "Frozen", with(vec![weight(5).trainable(false)]), plain.clone()),
        ("parameter", "\"bias\"", with(vec![ParamSpec::new("bias", &[5, 3], DType::F32)]), plain.clone()),
        (
            "unit",
            "compute Some(BF16)",
            vec![unit("a", vec![weight(4)]), unit("b", vec![weight(5)]).compute(DType::BF16)],
            plain.clone(),
        ),
        ("unit", "reshard after forward No", with(vec![weight(5)]), plain.clone().reshard_after_forward(Reshard::No)),
        ("policy", "compute Some(BF16)", with(vec![weight(5)]), plain.clone().compute(DType::BF16)),
        ("policy", "2 ahead in forward", with(vec![weight(5)]), plain.clone().forward_prefetch(2)),
        ("model", "refused", with(vec![weight(5), weight(5)]), plain),
    ]
}

#[test]
fn ranks_that_shard_different_models_are_told_what_differs() {
    let models = models();
    for (case, (field, value, ..)) in models.iter().enumerate().skip(1) {
        for company in [Company::of(2), Company::of(3), Company::of(1).replicas(2), Company::of(2).replicas(2)] {
            let odd = company.size() - 1;
            let ends = company.run(|groups, rank| {
                let (.., units, policy) = &models[if rank == odd { case } else { 0 }];
                Sharded::new(groups, units.clone(), policy.clone()).expect_err("another model")
            });
            for (rank, error) in ends.iter().enumerate() {
                if rank == odd && *field == "model" {
                    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
                    continue;
                }
                let Error::Desync(desync) = error else { panic!("case {case}, rank {rank} of {company:?}: {error}") };
                let by_counterpart = desync.field == "model" && desync.ours.len() + desync.theirs.len() > 0;
                assert!(desync.field == *field || by_counterpart, "case {case}, {company:?}: {error}");
                assert!(error.to_string().contains(value), "case {case}, {company:?}: {error}");
            }
        }
    }
}

#[test]
fn a_model_that_an_adapter_refuses_on_one_rank_is_told_to_the_others() {
    for company in [Company::of(2), Company::of(1).replicas(2), Company::of(2).replicas(2)] {
        let odd = company.size() - 1;
        let ends = company.run(|groups, rank| match rank == odd {
            true => refuse(&groups, "FullyShard: it has none".to_owned()),
            false => Sharded::new(groups, pair(10), Policy::default()).map(drop).expect_err("a refusal").to_string(),
        });
        assert_eq!(ends[odd], "FullyShard: it has none");
        assert!(ends.iter().all(|told| told.contains("FullyShard: it has none")), "{company:?}: {ends:?}");
    }
}

/// What ranks say of a model of many parameters is longer than what they would send each other.
#[test]
fn a_difference_at_the_end_of_a_long_model_is_named() {
    let name = |at: usize| format!("{at}{}", "long".repeat(60));
    let names: Vec<String> = (0..10_000).map(name).collect();
    let ends = Company::of(3).run(|groups, rank| {
        let mut params: Vec<_> = names.iter().map(|name| (name.as_str(), 1, DType::F32)).collect();
        let last = &mut params[9_998 - rank / 2];
        last.1 = if rank > 0 { 7 + rank } else { 1 };
        Ddp::new(groups.shard().clone(), &params, DdpOptions::default()).map(drop).expect_err("another model")
    });
    // The first line in which any two differ is that of the last rank.
    let [one, nine] = [", [1] f32, Trained", ", [9] f32, Trained"];
    let told = [(2, one, nine), (2, one, nine), (0, nine, one)];
    for (error, (peer, ours, theirs)) in ends.iter().zip(told) {
        let Error::Desync(desync) = error else { panic!("{error}") };
        assert_eq!((desync.peer, desync.field), (peer, "parameter"), "{error}");
        assert!(desync.ours.starts_with("\"9997long") && desync.ours.ends_with(ours), "{error}");
        assert!(desync.theirs.starts_with("\"9997long") && desync.theirs.ends_with(theirs), "{error}");
    }
}

#[test]
fn ranks_that_average_different_models_are_told_what_differs() {
    let models: [&[(&str, usize, DType)]; 5] = [
        &[("a", 3, DType::F32), ("b", 5, DType::F32)],
        &[("a", 3, DType::F32), ("c", 5, DType::F32)],
        &[("a", 3, DType::F32), ("b", 6, DType::F32)],
        &[("a", 3, DType::F32)],
        &[("a", 3, DType::F32), ("b", 5, DType::I32)],
    ];
    for (case, odd) in models.iter().enumerate().skip(1) {
        let ends = Company::of(3).run(|groups, rank| {
            let params = if rank == 1 { odd } else { models[0] };
            let model = Ddp::new(groups.shard().clone(), params, DdpOptions::default());
            model.map(|_| ()).expect_err("another model").kind()
        });
        let own = if case == 4 { ErrorKind::Usage } else { ErrorKind::Desync };
        assert_eq!(ends, [ErrorKind::Desync, own, ErrorKind::Desync], "case {case}");
    }
}

/// Broadcasts of as many bytes would mix them.
#[test]
fn ranks_whose_models_differ_in_what_is_not_trained_are_told_what_differs() {
    let weight = || ParamSpec::new("weight", &[4], DType::F32);
    let table = |shape: &[usize], dtype: DType| ParamSpec::new("table", shape, dtype).ignored();
    let odd = [
        (vec![table(&[3, 2], DType::I64), weight()], "\"table\", [3, 2] i64, Ignored"),
        (vec![table(&[2, 3], DType::U64), weight()], "\"table\", [2, 3] u64, Ignored"),
        (vec![weight(), table(&[2, 3], DType::I64)], "\"weight\", [4] f32, Trained"),
        (vec![table(&[2, 3], DType::I64), weight(), weight().trainable(false)], "\"weight\", [4] f32, Frozen"),
    ];
    let plain = || vec![table(&[2, 3], DType::I64), weight()];
    for (params, words) in odd {
        let ends = Company::of(2).run(|groups, rank| {
            let own = if rank == 1 { params.clone() } else { plain() };
            Ddp::of_model(groups.shard().clone(), &own, DdpOptions::default()).map(drop).expect_err("another model")
        });
        for error in ends {
            assert!(error.kind() == ErrorKind::Desync && error.to_string().contains(words), "{error}");
        }
    }
    Company::of(2).run(|groups, rank| {
        let mut ddp = Ddp::of_model(groups.shard().clone(), &plain(), DdpOptions::default()).expect("a model");
        // It is the first that is trained.
        ddp.gradient(0, &[2.0 * rank as f32; 4]).expect("a gradient");
        ddp.finish_backward().expect("the end");
        assert_eq!(ddp.averaged::<f32>(0), Ok(Some(&[1.0; 4][..])));
    });
}
