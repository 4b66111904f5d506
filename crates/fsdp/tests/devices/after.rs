//! What is done with gradients as soon as they are reduced, where only some of a unit's are freed after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use phalanx_core::{DType, ErrorKind, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGroups, DeviceSharded};
use phalanx_fsdp::{Param, ParamSpec, Policy, Then, UnitSpec};
use phalanx_nccl::api::{Cuda, Stream};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, PinnedBuffer, Stack};
use phalanx_nccl::sim::{SimCuda, SimRank, Simulation};

use crate::job::{Model, downloaded};
use crate::seats::{DEVICE, clean, seeds};

const LEN: usize = 6;

fn model(rank: &SimRank) -> Result<(Model, Stream)> {
    let stack = Stack::new(Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE);
    let options = GroupOptions::default().timeout(Duration::from_secs(2));
    let layout = Layout::one_host(rank.rank, rank.size)?;
    let group = DeviceGroup::new(stack.clone(), layout, rank.store.clone(), NcclOptions::default(), options)?;
    let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    let param = |name: &str| ParamSpec::new(name, &[LEN], DType::F32);
    let params = || vec![param("freed"), param("kept"), param("frozen").trainable(false)];
    let units = ["unit", "other"].map(|name| UnitSpec::new(name, params())).to_vec();
    let model = DeviceSharded::new(stack, compute, DeviceGroups::new(group), units, Policy::default())?;
    Ok((model, compute))
}

/// The backward of a unit.
fn bring(
    rank: &SimRank,
    model: &mut Model,
    unit: usize,
    (ones, compute): (&PinnedBuffer<SimCuda>, Stream),
) -> Result<()> {
    model.before_backward(unit)?;
    let gradients = model.gradient_memory(unit, DType::F32)?;
    for gradient in &gradients {
        rank.cuda.copy(gradient.buffer().span(), ones.span(), compute).expect("copied");
    }
    model.gradients(unit, &gradients)
}

fn ones(rank: &SimRank) -> Result<PinnedBuffer<SimCuda>> {
    let ones = PinnedBuffer::new(&rank.cuda, LEN * 4)?;
    ones.write(&[1.0_f32; LEN].map(f32::to_ne_bytes).concat())?;
    Ok(ones)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|float| f32::from_ne_bytes(float.try_into().expect("4 bytes"))).collect()
}

/// Gradients of one, twice. What the one that is freed was each time, and both in the end.
fn twice(rank: &SimRank) -> Result<[Vec<f32>; 3]> {
    let (mut model, compute) = model(rank)?;
    let [freed, kept] = [0, 1].map(|index| Param { unit: 0, index });
    let seen = DeviceBuffer::new(&rank.cuda, DEVICE, 2 * LEN / rank.size * 4)?;
    let (cuda, place, mut times) = (Arc::clone(&rank.cuda), seen.clone(), 0);
    model.after_accumulate(freed, move |update, stream| {
        let gradient = update.gradient.expect("a gradient");
        let to = place.part(times * gradient.byte_len(), gradient.byte_len())?;
        times += 1;
        cuda.copy(to.span(), gradient.span(), stream).expect("copied");
        Ok(Then::Free)
    })?;
    model.after_accumulate(kept, |_, _| Ok(Then::Keep))?;
    let ones = ones(rank)?;
    for _ in 0..2 {
        bring(rank, &mut model, 0, (&ones, compute))?;
        model.finish_backward()?;
    }
    let [freed, kept] = [freed, kept].map(|param| model.update(param).map(|update| update.gradient));
    let read = |memory: &DeviceBuffer<_>| downloaded(&rank.cuda, memory, compute).map(|bytes| floats(&bytes));
    let ends = [read(&seen)?, read(&freed?.expect("zeros"))?, read(&kept?.expect("a gradient"))?];
    model.settle()?;
    Ok(ends)
}

#[test]
fn what_is_freed_begins_anew_beside_what_is_kept() {
    for (world, seed) in (1..=2).flat_map(|world| seeds(3).map(move |seed| (world, seed))) {
        let outcome = Simulation::new(world, seed).run(|rank| twice(&rank));
        clean(&outcome, seed);
        for end in outcome.results {
            let [seen, freed, kept] = end.expect("an end").expect("no error");
            let all = |values: &[f32], value: f32| values.iter().all(|one| *one == value);
            assert!(all(&seen, 1.0) && all(&freed, 0.0) && all(&kept, 2.0), "{seen:?}, {freed:?}, {kept:?}");
        }
    }
}

/// How often something was done with gradients of a unit that is used several times: when the last of its backwards began, and in the end.
fn counted(rank: &SimRank, forward: &[usize], backward: &[usize]) -> Result<[usize; 2]> {
    let (mut model, compute) = model(rank)?;
    let times = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&times);
    model.after_accumulate(Param { unit: 0, index: 0 }, move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Then::Free)
    })?;
    let (ones, mut before) = (ones(rank)?, 0);
    for unit in forward {
        model.before_forward(*unit)?;
        model.after_forward(*unit)?;
    }
    for unit in backward {
        before = times.load(Ordering::Relaxed);
        bring(rank, &mut model, *unit, (&ones, compute))?;
    }
    model.finish_backward()?;
    model.settle()?;
    Ok([before, times.load(Ordering::Relaxed)])
}

#[test]
fn a_unit_of_several_uses_has_it_done_once_after_all_of_them() {
    // The last has a use to which backward does not come.
    let ways: [[&[usize]; 2]; 3] = [[&[0, 1, 0], &[0, 1, 0]], [&[0, 0], &[0, 0]], [&[0, 0, 1], &[0, 1]]];
    for ([forward, backward], world) in ways.into_iter().flat_map(|way| [1, 2].map(|world| (way, world))) {
        let outcome = Simulation::new(world, 1).run(move |rank| counted(&rank, forward, backward));
        clean(&outcome, 1);
        for end in outcome.results {
            assert_eq!(end.expect("an end"), Ok([0, 1]), "{forward:?}, {backward:?}");
        }
    }
}

#[test]
fn what_is_not_trained_has_nothing_done() {
    let outcome = Simulation::new(1, 1).run(|rank| {
        let (mut model, _) = model(&rank)?;
        let error = model.after_accumulate(Param { unit: 0, index: 2 }, |_, _| Ok(Then::Keep)).expect_err("frozen");
        assert_eq!(error.kind(), ErrorKind::Usage);
        Ok::<_, phalanx_core::Error>(error.to_string())
    });
    clean(&outcome, 1);
    let said = "after_accumulate: param is \"frozen\", must be a trained one";
    assert_eq!(outcome.results, [Some(Ok(said.to_owned()))]);
}
