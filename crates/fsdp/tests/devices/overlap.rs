//! What travels and what is computed go on beside each other: a unit is computed though the gather of the next, or the reduction of the
//! last, never ends.

use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{DType, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGroups, DeviceSharded};
use phalanx_fsdp::{Param, ParamSpec, Policy, UnitSpec};
use phalanx_nccl::api::{Argument, Cuda, Grid};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::kernels::SCALE;
use phalanx_nccl::sim::{Fault, SimRank, Simulation};

use crate::seats::{DEVICE, seeds};

/// Comes to as many units in forward, then to as many in backward, and waits after each for what was computed with it alone.
fn computed(rank: &SimRank, units: [usize; 2]) -> Result<()> {
    let stack = Stack::new(Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE);
    let layout = Layout::one_host(rank.rank, rank.size)?;
    let options = GroupOptions::default().timeout(Duration::from_millis(100));
    let group = DeviceGroup::new(stack.clone(), layout, rank.store.clone(), NcclOptions::default(), options)?;
    let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    let unit = |name: &str| UnitSpec::new(name, vec![ParamSpec::new("w", &[4, 3], DType::F32)]);
    let all = vec![unit("first"), unit("second")];
    let mut model = DeviceSharded::new(stack, compute, DeviceGroups::new(group), all, Policy::default())?;
    for unit in 0..2 {
        model.load_full(Param { unit, index: 0 }, &[1.0_f32; 12])?;
    }
    let used = |memory: &DeviceBuffer<_>| {
        let arguments = [Argument::Write(memory.span()), Argument::Real(1.0)];
        rank.cuda.launch(SCALE, Grid { blocks: 1, threads: 32 }, &arguments, compute).expect("launched");
        rank.cuda.synchronize_stream(compute).expect("an end");
    };
    for unit in 0..units[0] {
        used(&model.before_forward(unit)?.param(0)?);
        model.after_forward(unit)?;
    }
    for unit in (2 - units[1]..2).rev() {
        used(&model.before_backward(unit)?.param(0)?);
        let gradients = model.gradient_memory(unit, DType::F32)?;
        if unit > 0 {
            rank.cuda.fill(gradients[0].buffer().span(), 0, compute).expect("filled");
            model.gradients(unit, &gradients)?;
        }
    }
    // It was stuck all the time.
    let _ = (0..2).try_for_each(|unit| model.unshard(unit).map(drop)).and_then(|()| model.finish_backward());
    model.settle().expect_err("an operation never ends");
    Ok(())
}

/// The first operation is what ranks say of the model, then come a gather for each unit each way, and between those of backward a reduction.
#[test]
fn a_unit_is_computed_while_the_next_is_gathered_and_the_last_is_reduced() {
    // The second unit's gather in forward; the first one's in backward; the second one's reduction.
    for (launch, units) in [(2, [1, 0]), (4, [2, 1]), (5, [2, 2])] {
        for seed in seeds(3) {
            let stuck = (0..2).fold(Simulation::new(2, seed), |simulation, rank| {
                simulation.fault(rank, Fault::KernelNeverEnds { launch })
            });
            let outcome = stuck.run(move |rank| computed(&rank, units));
            assert!(outcome.findings.is_empty(), "operation {launch}, seed {seed}: {:?}", outcome.findings);
            assert!(
                outcome.results.iter().all(|end| end == &Some(Ok(()))),
                "operation {launch}: {:?}",
                outcome.results
            );
        }
    }
}
