//! What is done with gradients as soon as they are reduced, where only some of a unit's are freed after it.

use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{DType, ErrorKind, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGroups, DeviceSharded};
use phalanx_fsdp::{Param, ParamSpec, Policy, Then, UnitSpec};
use phalanx_nccl::api::{Cuda, Stream};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, PinnedBuffer, Stack};
use phalanx_nccl::sim::{SimRank, Simulation};

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
    let unit = UnitSpec::new("unit", vec![param("freed"), param("kept"), param("frozen").trainable(false)]);
    let model = DeviceSharded::new(stack, compute, DeviceGroups::new(group), vec![unit], Policy::default())?;
    Ok((model, compute))
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
    let ones = PinnedBuffer::new(&rank.cuda, LEN * 4)?;
    ones.write(&[1.0_f32; LEN].map(f32::to_ne_bytes).concat())?;
    for _ in 0..2 {
        model.before_backward(0)?;
        let gradients = model.gradient_memory(0, DType::F32)?;
        for gradient in &gradients {
            rank.cuda.copy(gradient.buffer().span(), ones.span(), compute).expect("copied");
        }
        model.gradients(0, &gradients)?;
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
