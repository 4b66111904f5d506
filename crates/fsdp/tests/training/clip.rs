//! Norms and clipping over shards: as of the whole gradient, in one small reduction.

use phalanx_comm::Threads;
use phalanx_core::{Group, OpKind};
use phalanx_fsdp::{Policy, Sharded};

use crate::company::Company;
use crate::model::mixed;
use crate::train::{Task, norm};

/// A model after one backward.
fn trained(task: &Task, groups: phalanx_fsdp::Groups, rank: usize, ranks: usize) -> Sharded {
    let mut model = task.shard(groups, Policy::default()).expect("a model");
    task.pass(&mut model, 0, rank, ranks).expect("a pass");
    model
}

#[test]
fn norms_are_those_of_the_whole_gradient() {
    let task = Task::new(mixed(), 1);
    let (_, full) = task.full_gradients(&task.initial(), 0);
    for company in [Company::of(1), Company::of(2), Company::of(4), Company::of(2).replicas(2)] {
        company.run(|groups, rank| {
            let mut model = trained(&task, groups.clone(), rank, company.size());
            for p in [1.0, 2.0, 3.0, f64::INFINITY] {
                let (got, wanted) = (model.gradient_norm(p).expect("a norm"), norm(&full, p));
                assert!((got / wanted - 1.0).abs() < 1e-6, "p {p}, {company:?}: {got} for {wanted}");
                let most = wanted / 3.0;
                assert_eq!(model.clip_gradients(most, p).expect("a norm"), got);
                let clipped = model.gradient_norm(p).expect("a norm");
                assert!(clipped <= most && clipped > most * 0.99, "p {p}: {clipped} of {most}");
                assert_eq!(model.clip_gradients(wanted, p).expect("a norm"), clipped);
                assert_eq!(model.gradient_norm(p).expect("a norm"), clipped);
                model.scale_gradients(got / clipped);
            }
            let records = groups.shard().recorder().records();
            let small = records.iter().filter(|record| record.op == OpKind::AllGather && record.input == 1);
            assert_eq!(small.count(), 4 * 5);
        });
    }
}

/// Replicas may lie on their hosts in other ways, and a sum in the order of their hosts has other bits.
#[test]
fn norms_are_the_same_however_ranks_lie_on_hosts() {
    let task = Task::new(mixed(), 1);
    let norms = [vec![0, 0, 0, 0], vec![0, 0, 0, 1], vec![0, 0, 1, 1], vec![0, 1, 1, 1]].map(|hosts| {
        let rank = |group: Group| {
            let rank = group.rank();
            let mut model = trained(&task, phalanx_fsdp::Groups::new(group), rank, 4);
            // Those that have travelled depend on the hosts too.
            model.scale_gradients(0.0);
            let params: Vec<_> = (0..6).filter_map(|block| model.param(&format!("block {block}"), "weight")).collect();
            let mut dice = fastrand::Rng::with_seed(rank as u64);
            params.iter().for_each(|param| {
                let gradient = model.gradient_mut::<f32>(*param).expect("a type").into_iter().flatten();
                gradient.for_each(|value| *value = dice.f32());
            });
            [1.0, 2.0, 3.0].map(|p| model.gradient_norm(p).expect("a norm").to_bits())
        };
        Threads::new(4).hosts(hosts).run(rank).expect("a world")
    });
    assert!(norms.iter().flatten().all(|norm| *norm == norms[0][0]), "{norms:?}");
}

#[test]
fn the_highest_power_has_room_for_large_gradients() {
    let task = Task::new(mixed(), 1);
    Company::of(2).run(|groups, rank| {
        let mut model = trained(&task, groups, rank, 2);
        let norm = model.gradient_norm(8.0).expect("a norm");
        model.scale_gradients(1e30);
        let scaled = model.gradient_norm(8.0).expect("a norm");
        assert!((scaled / norm / 1e30 - 1.0).abs() < 1e-6, "{scaled} of {norm}");
    });
}

#[test]
fn one_rank_that_overflows_is_known_to_all() {
    let task = Task::new(mixed(), 1);
    Company::of(3).run(|groups, rank| {
        let mut model = trained(&task, groups, rank, 3);
        assert_eq!(model.gradients_overflowed(), Ok(false));
        let param = model.param("block 0", "weight").expect("a name");
        let gradient = model.gradient_mut::<f32>(param).expect("a type").expect("a gradient");
        if rank == 2 {
            gradient[0] = f32::INFINITY;
        }
        assert_eq!(model.gradients_overflowed(), Ok(true));
        assert!(!model.gradient_norm(2.0).expect("a norm").is_finite());
    });
}

#[test]
fn bounds_that_mean_nothing_are_refused() {
    let task = Task::new(mixed(), 1);
    Company::of(1).run(|groups, _| {
        let mut model = task.shard(groups, Policy::default()).expect("a model");
        for p in [0.0, 0.5, -1.0, 8.5, 100.0, f64::NAN] {
            let refused = [model.gradient_norm(p), model.clip_gradients(1.0, p)];
            let told = refused.map(|end| end.expect_err("no norm").to_string());
            let words = |call: &str| format!("{call}: p is {p}, must be from 1 to 8, or infinite");
            assert_eq!(told, ["gradient_norm", "clip_gradients"].map(words));
        }
        for most in [0.0, -1.0, f64::NAN] {
            assert!(model.clip_gradients(most, 2.0).is_err());
        }
        assert_eq!(model.gradient_norm(2.0), Ok(0.0));
    });
}

#[test]
fn clipped_training_has_the_losses_of_training_alone() {
    for (p, most) in [(1.0, 0.3), (2.0, 0.05), (f64::INFINITY, 0.02)] {
        let task = Task::new(mixed(), 20).clipped(most, p);
        let alone = task.alone();
        for world in [1, 3] {
            let apart = task.sharded(Company::of(world), &Policy::default(), |_, _, _| {}).apart(&alone);
            assert!(apart <= 1e-6, "p {p}, world {world}: {apart:e}");
        }
    }
}
