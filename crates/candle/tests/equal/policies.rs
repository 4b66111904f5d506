//! Every policy of sharding has the losses of one rank that does everything itself.

use phalanx_candle::hooks::{AllReduce, Bf16, F16, GradientHook, Int8, ReduceScatter};
use phalanx_candle::{Ddp, FullyShard, Offload, Policy, Reshard};
use phalanx_core::DType;

use crate::company::Company;
use crate::training::{PLAIN, Way, assert_equal, single, train, train_with};

fn check(what: &str, company: Company, policy: &Policy, expected: &[f64]) {
    let ranks = company.run(|groups, all| train(FullyShard::new(groups, policy.clone()), PLAIN, Some(&all)));
    for losses in ranks {
        assert_equal(&format!("{what}, {company:?}"), &losses, expected, 1e-6);
    }
}

#[test]
fn what_is_kept_after_forward_and_fetched_ahead_changes_nothing() {
    let expected = single(PLAIN);
    for world in 1..=4 {
        for (reshard, ahead) in [(Reshard::Yes, 0), (Reshard::Yes, 2), (Reshard::No, 0), (Reshard::No, 1)] {
            let policy = Policy::default().reshard_after_forward(reshard);
            let policy = policy.forward_prefetch(ahead).backward_prefetch(ahead);
            check(&format!("{reshard:?}, {ahead} ahead"), Company::of(world), &policy, &expected);
        }
        let host = Policy::default().offload(Offload::Host).reduce(DType::F32);
        check("offloaded", Company::of(world), &host, &expected);
    }
}

#[test]
fn replicas_of_shards_have_the_losses_of_one() {
    let expected = single(PLAIN);
    for (replicas, shards) in [(2, 1), (3, 1), (2, 2), (4, 1)] {
        let company = Company::of(shards).replicas(replicas);
        check("replicas", company, &Policy::default(), &expected);
    }
    let kept = Policy::default().reshard_after_forward(Reshard::No);
    check("replicas that are kept", Company::of(2).replicas(2), &kept, &expected);
}

#[test]
fn a_smaller_group_after_forward_changes_nothing() {
    let expected = single(PLAIN);
    for (world, part) in [(1, 1), (2, 1), (2, 2), (3, 1), (4, 2), (4, 4)] {
        let policy = Policy::default().reshard_after_forward(Reshard::Smaller);
        check("smaller", Company::of(world).smaller(part), &policy, &expected);
    }
    let policy = Policy::default().reshard_after_forward(Reshard::Smaller);
    check("smaller, replicas", Company::of(2).replicas(2).smaller(2), &policy, &expected);
}

#[test]
fn micro_batches_of_replicas_add_up() {
    let way = Way { micro_batches: 2, clips: Some(0.5), recomputes: true, ..PLAIN };
    let expected = single(Way { clips: Some(0.5), ..PLAIN });
    for company in [Company::of(2).replicas(2), Company::of(3)] {
        let ranks = company.run(|groups, all| train(FullyShard::new(groups, Policy::default()), way, Some(&all)));
        ranks.iter().for_each(|losses| assert_equal(&format!("{company:?}"), losses, &expected, 1e-6));
    }
}

type Make = fn() -> Box<dyn GradientHook>;

#[test]
fn hooks_train_as_their_types_allow() {
    let expected = single(PLAIN);
    let hooks: [(&str, f64, Make); 5] = [
        ("all-reduce", 1e-6, || Box::new(AllReduce)),
        ("reduce-scatter", 1e-6, || Box::new(ReduceScatter)),
        ("f16", 2e-2, || Box::new(F16)),
        ("bf16", 2e-2, || Box::new(Bf16)),
        ("int8", 2e-2, || Box::new(Int8::default())),
    ];
    for (name, within, hook) in hooks {
        for world in [2, 3] {
            let sharded = Company::of(world).run(|groups, all| {
                train_with(FullyShard::new(groups, Policy::default()), PLAIN, Some(&all), |model| {
                    let engine = model.strategy_mut().and_then(FullyShard::engine).expect("the engine");
                    engine.set_hook(Some(hook())).expect("gradients of f32");
                })
            });
            let replicated = Company::of(world).run(|_, all| {
                train_with(Ddp::new(all.clone()), PLAIN, Some(&all), |model| {
                    assert!(model.strategy_mut::<FullyShard>().is_none());
                    let engine = model.strategy_mut().and_then(Ddp::engine).expect("the engine");
                    engine.set_hook(Some(hook())).expect("gradients of f32");
                })
            });
            for losses in sharded.iter().chain(&replicated) {
                assert_equal(&format!("{name} among {world}"), losses, &expected, within);
            }
        }
    }
}
