//! Two gradients of one parameter, one in memory that was lent and one in the program's own: both count, as they do on the host.

use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{DType, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGradient, DeviceGroups, DeviceSharded};
use phalanx_fsdp::{Param, ParamSpec, Policy, UnitSpec};
use phalanx_nccl::api::Cuda;
use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::sim::{SimRank, Simulation};

use crate::job::{downloaded, uploaded};
use crate::seats::{DEVICE, clean, seeds};

const LEN: usize = 6;

/// What becomes of ones where memory was lent and twos beside them, whichever is named first.
fn both(rank: &SimRank, own_first: bool) -> Result<Vec<u8>> {
    let stack = Stack::new(Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE);
    let options = GroupOptions::default().timeout(Duration::from_secs(2));
    let layout = Layout::one_host(rank.rank, rank.size)?;
    let group = DeviceGroup::new(stack.clone(), layout, rank.store.clone(), NcclOptions::default(), options)?;
    let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    let unit = UnitSpec::new("unit", vec![ParamSpec::new("weight", &[LEN], DType::F32)]);
    let mut model = DeviceSharded::new(stack, compute, DeviceGroups::new(group), vec![unit], Policy::default())?;
    let filled = |value: f32| uploaded(&rank.cuda, &bytes(value, LEN), compute);
    let (ones, twos) = (filled(1.0)?, filled(2.0)?);
    model.before_backward(0)?;
    let mut gradients = model.gradient_memory(0, DType::F32)?;
    rank.cuda.copy(gradients[0].buffer().span(), ones.span(), compute).expect("copied");
    gradients.push(DeviceGradient::new(0, DType::F32, &twos));
    if own_first {
        gradients.reverse();
    }
    model.gradients(0, &gradients)?;
    model.finish_backward()?;
    let gradient = model.update(Param { unit: 0, index: 0 })?.gradient.expect("a gradient");
    let came = downloaded(&rank.cuda, &gradient, compute)?;
    model.settle()?;
    Ok(came)
}

fn bytes(value: f32, len: usize) -> Vec<u8> {
    value.to_ne_bytes().repeat(len)
}

#[test]
fn two_gradients_of_one_parameter_are_added_wherever_they_lie() {
    for (world, own_first) in [1, 2].into_iter().flat_map(|world| [false, true].map(|first| (world, first))) {
        for seed in seeds(2) {
            let outcome = Simulation::new(world, seed).run(move |rank| both(&rank, own_first));
            clean(&outcome, seed);
            for end in outcome.results {
                assert_eq!(end.expect("an end"), Ok(bytes(3.0, LEN / world)), "world {world}, own first {own_first}");
            }
        }
    }
}
