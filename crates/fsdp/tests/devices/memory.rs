//! The memory of a device: a rank's share of everything, a stated number of full units, and nothing new in the steady step.

use std::sync::Arc;

use phalanx_core::{DType, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGroups, DeviceSharded};
use phalanx_fsdp::hooks::F16;
use phalanx_fsdp::{Bytes, Class, Offload, Param, ParamSpec, Policy, Reshard, UnitSpec};
use phalanx_nccl::api::Cuda;
use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::sim::{SimRank, Simulation};

use crate::company::Company;
use crate::hooks::hooked;
use crate::job::{Job, Model};
use crate::model::{Block, mixed};
use crate::seats::DEVICE;
use crate::train::Task;

/// Bytes of a part that begins where 16 bytes go at a time.
fn placed(len: usize) -> usize {
    (len * 4).next_multiple_of(16)
}

/// Bytes that the rank which has most of it has of a unit's parameters.
fn share(block: &Block, world: usize) -> usize {
    let rows = block.outputs.div_ceil(world);
    placed(rows * block.inputs) + placed(rows) + placed(1)
}

/// Bytes of the largest unit as it is gathered, or as it lies once it was copied out.
fn largest(blocks: &[Block], world: usize) -> usize {
    let of = |block: &Block| {
        let rows = block.outputs.div_ceil(world);
        let gathered = 4 * world * (rows * block.inputs + rows + 1);
        gathered.max(block.lens().map(placed).iter().sum())
    };
    blocks.iter().map(of).max().unwrap_or_default()
}

fn looked_after(job: Job, watch: impl Fn(&Model, &Task) + Send + Sync + 'static) {
    let job = Job { watch: Arc::new(watch), ..job };
    let offloads = job.policy.chosen_offload() == Offload::Host;
    let outcome = job.run(3);
    crate::seats::clean(&outcome, 3);
    for end in outcome.results {
        let end = end.expect("an end").expect("no error");
        for [allocations, waits] in &end.costs[2..] {
            assert_eq!(*allocations, 0, "allocations of the third step and the fourth");
            assert!(*waits == 0 || offloads, "the host waited {waits} times");
        }
    }
}

#[test]
fn a_rank_holds_its_share_and_the_units_in_use() {
    for (world, ahead) in (1..=4).flat_map(|world| [0, 1, 2].map(|ahead| (world, ahead))) {
        let policy = Policy::default().forward_prefetch(ahead).backward_prefetch(ahead);
        let job = Job::new(Task::new(mixed(), 4), Company::of(world), policy);
        looked_after(job, move |model, task| {
            assert!(model.gathered() <= 1 + ahead, "world {world}: {} with {ahead} ahead", model.gathered());
            let held = |class| model.memory().of(class);
            // A unit is there twice while it is copied out.
            let most = (1 + ahead).max(2) * largest(&task.blocks, world);
            let Bytes { current, peak, idle } = held(Class::Gathered);
            assert!(current + idle <= peak && peak <= most, "world {world}, {ahead} ahead: {peak} of {most}");
            let mine: usize = task.blocks.iter().map(|block| share(block, world)).sum();
            assert!(held(Class::Sharded).current <= mine && held(Class::Gradients).peak <= mine, "world {world}");
            // What backward writes, and what travels.
            assert!(held(Class::Reducing).peak <= 2 * largest(&task.blocks, world) + 64);
            assert_eq!(held(Class::Accumulated), Bytes::default());
            assert_eq!(model.host_byte_len(), 0);
        });
    }
}

#[test]
fn a_device_holds_a_unit_at_a_time_of_what_lives_on_the_host() {
    for world in 1..=3 {
        let job = Job::new(Task::new(mixed(), 4), Company::of(world), Policy::default().offload(Offload::Host));
        looked_after(job, move |model, task| {
            let most = task.blocks.iter().map(|block| share(block, world)).max().unwrap_or_default();
            for class in [Class::Sharded, Class::Gradients] {
                let Bytes { current, peak, .. } = model.memory().of(class);
                assert!(current == 0 && peak <= most, "world {world}, {class:?}: {peak} of {most}");
            }
            assert!(model.host_byte_len() > 0);
        });
    }
}

#[test]
fn clipping_waits_for_nothing_and_allocates_nothing() {
    for (world, p) in (1..=3).flat_map(|world| [1.0, 2.0, f64::INFINITY].map(|p| (world, p))) {
        let job = Job::new(Task::new(mixed(), 4).clipped(0.05, p), Company::of(world), Policy::default());
        looked_after(job, |_, _| {});
    }
    let offloaded = Policy::default().offload(Offload::Host);
    looked_after(Job::new(Task::new(mixed(), 4).clipped(0.05, 2.0), Company::of(2), offloaded), |_, _| {});
}

#[test]
fn a_step_inside_backward_frees_each_gradient_and_waits_for_nothing() {
    for world in 1..=3 {
        let job = Job::new(Task::new(mixed(), 4), Company::of(world), Policy::default());
        looked_after(Job { steps_inside: true, ..job }, move |model, task| {
            let most = task.blocks.iter().map(|block| share(block, world)).max().unwrap_or_default();
            let Bytes { current, peak, .. } = model.memory().of(Class::Gradients);
            assert!(current == 0 && peak <= most, "world {world}: {peak} of {most}");
        });
    }
}

#[test]
fn a_hook_waits_for_nothing_and_allocates_nothing() {
    for world in 1..=3 {
        let job = Job::new(Task::new(mixed(), 4), Company::of(world), Policy::default());
        looked_after(hooked(job, || Box::new(F16)), |_, _| {});
    }
}

#[test]
fn what_is_kept_is_counted_by_what_it_is_for() {
    let policy = Policy::default().reshard_after_forward(Reshard::Smaller);
    looked_after(Job::new(Task::new(mixed(), 4), Company::of(2).smaller(2), policy), |model, task| {
        let whole: usize = task.blocks.iter().map(|block| share(block, 2)).sum();
        assert!(model.memory().of(Class::Narrow).peak <= whole);
    });
    let job = Job::new(Task::new(mixed(), 4).micros(2), Company::of(2), Policy::default());
    let job = job.before(|model, _, micro| model.set_sync(micro == 1));
    looked_after(job, |model, task| {
        let most: usize = task.blocks.iter().map(|block| largest(std::slice::from_ref(block), 2)).sum();
        assert!(model.memory().of(Class::Accumulated).peak <= most);
    });
}

/// How often each of three steps, after which the host looks at all shards and gradients, asks for pinned memory or gives some back.
fn pinned_calls(rank: &SimRank) -> Result<Vec<usize>> {
    let stack = Stack::new(Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE);
    let (layout, store) = (Layout::one_host(rank.rank, rank.size)?, rank.store.clone());
    let group = DeviceGroup::new(stack.clone(), layout, store, NcclOptions::default(), GroupOptions::default())?;
    let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    // Of lengths of which none has room for another.
    let unit = |name: &str, rows: usize| UnitSpec::new(name, vec![ParamSpec::new("w", &[rows, 3], DType::F32)]);
    let units = vec![unit("short", 4), unit("long", 64)];
    let mut model = DeviceSharded::new(stack, compute, DeviceGroups::new(group), units, Policy::default())?;
    let mut calls = Vec::new();
    for _ in 0..3 {
        let before = rank.cuda.pinned_calls();
        for unit in 0..2 {
            model.before_forward(unit)?;
            model.after_forward(unit)?;
        }
        for unit in (0..2).rev() {
            model.before_backward(unit)?;
            let gradients = model.gradient_memory(unit, DType::F32)?;
            rank.cuda.fill(gradients[0].buffer().span(), 0, compute).expect("filled");
            model.gradients(unit, &gradients)?;
        }
        model.finish_backward()?;
        for unit in 0..2 {
            model.update_on_host::<f32>(Param { unit, index: 0 }, |_, gradient| assert!(gradient.is_some()))?;
        }
        model.zero_gradients()?;
        model.settle()?;
        calls.push(rank.cuda.pinned_calls() - before);
    }
    Ok(calls)
}

#[test]
fn what_the_host_looks_at_goes_through_memory_that_is_there() {
    let outcome = Simulation::new(2, 3).run(|rank| pinned_calls(&rank));
    crate::seats::clean(&outcome, 3);
    for calls in outcome.results {
        let calls = calls.expect("an end").expect("no error");
        assert!(calls[0] > 0 && calls[1..] == [0, 0], "{calls:?}");
    }
}
