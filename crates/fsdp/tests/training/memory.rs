//! The memory of a rank: its share of everything, and a stated number of full units.

use phalanx_fsdp::{Bytes, Class, Policy, Reshard, Sharded, hooks};

use crate::company::Company;
use crate::model::{Block, mixed};
use crate::train::Task;

/// Bytes that a rank has of a model's parameters, rounded up to whole rows.
fn share(blocks: &[Block], world: usize) -> usize {
    let of = |block: &Block| {
        let rows = block.outputs.div_ceil(world);
        4 * (rows * block.inputs + rows + 1)
    };
    blocks.iter().map(of).sum()
}

/// Bytes of the largest unit's buffer.
fn largest(blocks: &[Block], world: usize) -> usize {
    blocks.iter().map(|block| share(std::slice::from_ref(block), world) * world).max().unwrap_or_default()
}

#[test]
fn a_rank_holds_its_share_and_the_units_in_use() {
    for (world, ahead) in (2..=8).flat_map(|world| [0, 1, 2].map(|ahead| (world, ahead))) {
        let task = Task { seed: world as u64, ..Task::new(mixed(), 1) };
        let policy = Policy::default().forward_prefetch(ahead).backward_prefetch(ahead);
        let most = (1 + ahead) * largest(&task.blocks, world);
        Company::of(world).run(|groups, rank| {
            let mut model = task.shard(groups, policy.clone()).expect("a model");
            let held = |model: &Sharded, class| model.memory().of(class);
            let watch = |model: &Sharded| {
                let Bytes { current, peak, idle } = held(model, Class::Gathered);
                assert!(current + idle <= most && peak <= most, "world {world}, {ahead} ahead: {peak} of {most}");
                let mine = held(model, Class::Sharded).current + held(model, Class::Gradients).current;
                assert!(mine <= 2 * share(&task.blocks, world), "world {world}: {mine}");
                assert!(held(model, Class::Reducing).peak <= largest(&task.blocks, world));
                assert_eq!(held(model, Class::Accumulated), Bytes::default());
                assert!(model.memory().total() <= 2 * share(&task.blocks, world) + most + largest(&task.blocks, world));
            };
            for unit in 0..task.blocks.len() {
                model.before_forward(unit).expect("a unit");
                watch(&model);
                model.after_forward(unit).expect("its end");
                watch(&model);
            }
            for unit in (0..task.blocks.len()).rev() {
                model.before_backward(unit).expect("a unit");
                watch(&model);
                model.gradients(unit, &[]).expect("its end");
                watch(&model);
            }
            model.finish_backward().expect("the end");
            watch(&model);
            assert_eq!(held(&model, Class::Gathered).current, 0);
            assert_eq!(held(&model, Class::Reducing).current, 0);
            assert!(held(&model, Class::Gathered).peak > 0 && rank < world);
            model.zero_gradients();
            let Bytes { current, idle, .. } = held(&model, Class::Gradients);
            assert_eq!((current, idle), (0, 0));
        });
    }
}

#[test]
fn shares_of_all_ranks_are_the_whole() {
    let task = Task::new(mixed(), 1);
    let whole: usize = task.blocks.iter().map(|block| 4 * block.lens().iter().sum::<usize>()).sum();
    for world in 1..=8 {
        let shares = Company::of(world).run(|groups, _| {
            let model = task.shard(groups, Policy::default()).expect("a model");
            model.memory().of(Class::Sharded).current
        });
        assert_eq!(shares.iter().sum::<usize>(), whole, "world {world}");
    }
}

#[test]
fn what_waits_to_be_reduced_is_counted_apart() {
    let task = Task::new(mixed(), 1).micros(2);
    Company::of(2).run(|groups, rank| {
        let mut model = task.shard(groups, Policy::default().reshard_after_forward(Reshard::No)).expect("a model");
        model.set_sync(false);
        task.pass(&mut model, 0, rank, 4).expect("a pass");
        let waiting = model.memory().of(Class::Accumulated).current;
        assert!(waiting > 0 && model.memory().of(Class::Gradients).current == 0, "{waiting}");
        model.set_sync(true);
        task.pass(&mut model, 0, 2 + rank, 4).expect("a pass");
        assert_eq!(model.memory().of(Class::Accumulated).current, 0);
        assert!(model.memory().of(Class::Gradients).current > 0);
    });
}

#[test]
fn steps_of_several_micro_batches_take_the_memory_of_the_one_before() {
    let classes = [Class::Sharded, Class::Gradients, Class::Gathered, Class::Reducing, Class::Accumulated];
    let task = Task::new(mixed(), 1).micros(2);
    for (world, is_hooked) in (1..=3).flat_map(|world| [false, true].map(|is_hooked| (world, is_hooked))) {
        Company::of(world).run(|groups, rank| {
            let mut model = task.shard(groups, Policy::default()).expect("a model");
            if is_hooked {
                model.set_hook(Some(Box::new(hooks::Bf16))).expect("a hook");
            }
            let mut after_two = 0;
            for step in 1..=6 {
                for (micro, syncs) in [false, true].into_iter().enumerate() {
                    model.set_sync(syncs);
                    task.pass(&mut model, 0, world * micro + rank, 2 * world).expect("a pass");
                }
                model.zero_gradients();
                for class in classes {
                    let Bytes { current, peak, idle } = model.memory().of(class);
                    assert!(current + idle <= peak, "world {world}, step {step}, {class:?}: {current} + {idle}");
                }
                match step {
                    2 => after_two = model.memory().total(),
                    6 => assert_eq!(model.memory().total(), after_two, "world {world}, hook {is_hooked}"),
                    _ => {}
                }
            }
        });
    }
}

#[test]
fn an_owner_that_copies_has_memory_for_one_unit_less() {
    for (world, ahead) in (2..=4).flat_map(|world| [1, 2].map(|ahead| (world, ahead))) {
        let task = Task::new(mixed(), 1);
        let policy = Policy::default().forward_prefetch(ahead).backward_prefetch(ahead);
        let most = ahead * largest(&task.blocks, world);
        Company::of(world).run(|groups, _| {
            let mut model = task.shard(groups, policy.clone()).expect("a model");
            model.set_copies(true);
            let watch = |model: &Sharded| {
                let Bytes { current, peak, idle } = model.memory().of(Class::Gathered);
                assert!(current + idle <= most && peak <= most, "world {world}, {ahead} ahead: {peak} of {most}");
            };
            for _step in 0..2 {
                for unit in 0..task.blocks.len() {
                    model.before_forward(unit).expect("a unit");
                    model.copied(unit).expect("a unit in use");
                    watch(&model);
                    model.after_forward(unit).expect("its end");
                }
                for unit in (0..task.blocks.len()).rev() {
                    model.before_backward(unit).expect("a unit");
                    model.copied(unit).expect("a unit in use");
                    watch(&model);
                    model.gradients(unit, &[]).expect("its end");
                }
                model.finish_backward().expect("the end");
            }
        });
    }
}
