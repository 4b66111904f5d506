//! What is refused by name, and what a failure of the group does to a model.

use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{DType, ErrorKind, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGradient, DeviceGroups, DeviceSharded};
use phalanx_fsdp::{Offload, Param, ParamSpec, Policy, Then, UnitSpec};
use phalanx_nccl::api::{Cuda, Process};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::sim::{Fault, SimRank, Simulation};

use crate::company::Company;
use crate::job::{Job, Model, model};
use crate::model::{WEIGHT, mixed};
use crate::seats::DEVICE;
use crate::train::Task;

/// What a model of one rank says.
fn alone(policy: Policy, said: impl Fn(&mut Model, &SimRank) + Send + Sync + 'static) {
    let job = Job::new(Task::new(mixed(), 1), Company::of(1), policy);
    let outcome = Simulation::new(1, 1).run(move |rank| {
        let (mut model, _) = model(&job, &rank).expect("a model");
        said(&mut model, &rank);
    });
    crate::seats::clean(&outcome, 1);
    assert_eq!(outcome.results, [Some(())]);
}

fn words<T>(refused: Result<T>) -> String {
    let error = refused.err().expect("an error");
    assert_eq!(error.kind(), ErrorKind::Usage);
    error.to_string()
}

#[test]
fn what_devices_cannot_is_refused_by_name() {
    let refused = |policy: Policy, wanted: &'static str| {
        let job = Job::new(Task::new(mixed(), 1), Company::of(2), policy);
        let outcome = Simulation::new(2, 1).run(move |rank| words(model(&job, &rank)));
        for said in outcome.results {
            assert!(said.expect("an end").contains(wanted), "{wanted}");
        }
    };
    refused(Policy::default().compute(DType::F64), "f64 for the policy, must be f32, f16 or bf16 on devices");
    refused(Policy::default().reduce(DType::F64), "f64 for the policy, must be f32, f16 or bf16 on devices");
    let mut blocks = mixed();
    blocks[3].compute = Some(DType::F64);
    let job = Job::new(Task::new(blocks, 1), Company::of(2), Policy::default());
    let outcome = Simulation::new(2, 1).run(move |rank| words(model(&job, &rank)));
    for said in outcome.results {
        let said = said.expect("an end");
        assert!(said.contains("f64 for unit \"block 3\", must be f32, f16 or bf16 on devices"), "{said}");
    }
}

/// Nothing of it comes to the device.
#[test]
fn what_is_ignored_may_be_of_any_type() {
    let values = [1.0_f32, 2.0, 3.0, 4.0];
    let outcome = Simulation::new(2, 1).run(move |rank| {
        let (nccl, cuda, process) = (Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process));
        let stack = Stack::new(nccl, cuda, process, DEVICE);
        let (layout, store) = (Layout::one_host(rank.rank, rank.size)?, rank.store.scope("model"));
        let group = DeviceGroup::new(stack.clone(), layout, store, NcclOptions::default(), GroupOptions::default())?;
        let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        let order = ParamSpec::new("order", &[5], DType::I64).ignored();
        let unit = UnitSpec::new("unit", vec![order, ParamSpec::new("weight", &[4], DType::F32)]);
        let mut model = DeviceSharded::new(stack, compute, DeviceGroups::new(group), vec![unit], Policy::default())?;
        let weight = Param { unit: 0, index: 1 };
        model.load_full(weight, &values)?;
        model.before_backward(0)?;
        model.gradients(0, &[])?;
        model.finish_backward()?;
        let mut full = [0.0_f32; 4];
        model.copy_full(weight, &mut full)?;
        model.settle()?;
        Ok::<_, phalanx_core::Error>(full)
    });
    crate::seats::clean(&outcome, 1);
    assert_eq!(outcome.results, [Some(Ok(values)), Some(Ok(values))]);
}

#[test]
fn calls_that_make_no_sense_change_nothing() {
    alone(Policy::default(), |model, rank| {
        let param = |unit, index| Param { unit, index };
        assert!(words(model.before_forward(9)).contains("must be below 5"));
        assert!(words(model.after_forward(0)).contains("must be one that was entered"));
        let keep = |_, _| Ok(Then::Keep);
        assert!(words(model.after_accumulate(param(9, 0), keep)).contains("must be below 5"));
        assert!(words(model.after_accumulate(param(0, 3), keep)).contains("must not be an ignored one"));
        assert!(words(model.update(param(0, 3))).contains("must not be an ignored one"));
        assert!(words(model.update(param(9, 0))).contains("must be below 5"));
        assert!(words(model.load_full(param(0, 0), &[1.0_f32])).contains("must be 35"));
        assert!(words(model.update_on_host::<f64>(param(0, 0), |_, _| {})).contains("must be f32"));
        assert!(words(model.gradient_memory(0, DType::I32)).contains("must be f32, f16 or bf16"));
        for divisor in [0.0, f64::NAN, f64::INFINITY] {
            assert!(words(model.set_gradient_divisor(Some(divisor))).contains("must be finite and not 0"));
        }
        let full = model.before_backward(0).expect("a unit");
        assert!(full.param(3).is_err() && full.param(99).is_err());
        let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 8).expect("memory");
        let short = DeviceGradient::new(WEIGHT, DType::F32, &memory);
        assert!(words(model.gradients(0, &[short])).contains("must be 35 elements"));
        // A kernel that reads them would be the end of the device's context.
        let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 36 * 4).expect("memory");
        let refused = |model: &mut Model, start: usize, byte_len: usize| {
            let part = memory.part(start, byte_len).expect("a part");
            words(model.gradients(0, &[DeviceGradient::new(WEIGHT, DType::F32, &part)]))
        };
        assert!(refused(model, 0, 35 * 4 + 2).contains("142 bytes long, must be a multiple of the 4 bytes of f32"));
        assert!(refused(model, 2, 35 * 4).contains("must lie at a multiple of 4 bytes for f32"));
        let lent = model.gradient_memory(0, DType::F32).expect("memory");
        assert_eq!(lent.iter().map(DeviceGradient::index).collect::<Vec<_>>(), [0, 1, 2]);
        model.gradients(0, &[]).expect("none");
        model.finish_backward().expect("the end");
    });
    alone(Policy::default().offload(Offload::Host), |model, _| {
        assert!(words(model.update(Param { unit: 0, index: 0 })).contains("update_on_host"));
        let refused = model.after_accumulate(Param { unit: 0, index: 0 }, |_, _| Ok(Then::Keep));
        assert!(words(refused).contains("must not be offloaded"));
    });
}

#[test]
fn a_kernel_that_never_ends_is_an_error_and_not_a_hang() {
    let job = Job::new(Task::new(mixed(), 1), Company::of(2), Policy::default());
    // Two for what ranks say of the model, a gather a unit each way but for the last, a reduction each; then full parameters are collected.
    for launch in 0..16 {
        let job = job.clone();
        let simulation = crate::kernels::known(Simulation::new(2, 1), &job.task.blocks);
        let outcome = simulation.fault(1, Fault::KernelNeverEnds { launch }).run(move |rank| job.on(&rank));
        for end in outcome.results {
            let error = end.expect("an end").map(drop).expect_err(&format!("operation {launch} never ended"));
            assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Aborted), "{error}");
        }
        assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
        // What ended the operation lets the streams go on, and all memory goes back.
        assert_eq!(outcome.not_freed, [(0, 0); 2], "operation {launch} never ended");
    }
}

#[test]
fn memory_that_is_out_is_an_error() {
    let job = Job::new(Task::new(mixed(), 1), Company::of(1), Policy::default());
    let mut refused = 0;
    for allocation in 0..60 {
        let job = job.clone();
        let simulation = crate::kernels::known(Simulation::new(1, 1), &job.task.blocks);
        let outcome = simulation.fault(0, Fault::OutOfMemory { allocation }).run(move |rank| job.on(&rank).err());
        assert!(outcome.findings.is_empty(), "{allocation}: {:?}", outcome.findings);
        if let Some(Some(Some(error))) = outcome.results.first() {
            assert_eq!(error.kind(), ErrorKind::Device, "{allocation}: {error}");
            refused += 1;
        }
    }
    assert!(refused > 30, "{refused}");
}

/// A backward without gradients, and whether there was one to use after it, long after the group has given up what never ended.
fn uses_a_gradient(model: &mut Model, rank: &SimRank) -> (bool, Result<()>) {
    let mut used = false;
    let mut run = || {
        for unit in (0..model.unit_count()).rev() {
            model.before_backward(unit)?;
            model.gradients(unit, &[])?;
        }
        model.finish_backward()?;
        let (bell, last) = (rank.process.bell(), rank.process.now() + Duration::from_secs(20));
        while rank.process.now() < last {
            bell.wait(bell.count(), Some(last));
        }
        let param = model.trained().next().expect("a trained parameter");
        model.update_on_host::<f32>(param, |_, gradient| used |= gradient.is_some())?;
        model.update_on_host::<f32>(param, |_, _| {})
    };
    let end = run();
    (used, end)
}

#[test]
fn a_gradient_whose_reduction_never_ended_is_not_used() {
    let job = Job::new(Task::new(mixed(), 1), Company::of(2), Policy::default().offload(Offload::Host));
    // One for what ranks say of the model, a gather and a reduction a unit.
    for launch in 0..11 {
        let job = job.clone();
        let simulation = Simulation::new(2, 1).fault(1, Fault::KernelNeverEnds { launch });
        let outcome = simulation.run(move |rank| {
            let (mut model, _) = model(&job, &rank)?;
            let (used, end) = uses_a_gradient(&mut model, &rank);
            assert!(!used, "operation {launch} never ended");
            let param = model.trained().next().expect("a trained parameter");
            let again = model.update_on_host::<f32>(param, |_, _| {});
            assert!(end.is_err() && again.is_err(), "operation {launch} never ended");
            end
        });
        assert!(outcome.results.iter().all(|end| matches!(end, Some(Err(_)))), "operation {launch} never ended");
    }
}

#[test]
fn a_model_that_failed_while_gradients_waited_stays_failed() {
    let job = Job::new(Task::new(mixed(), 1), Company::of(1), Policy::default());
    let mut failed = 0;
    for allocation in 0..80 {
        let job = job.clone();
        let simulation = Simulation::new(1, 1).fault(0, Fault::OutOfMemory { allocation });
        let outcome = simulation.run(move |rank| {
            let Ok((mut model, _)) = model(&job, &rank) else { return false };
            model.set_sync(false);
            for _micro in 0..2 {
                for unit in (0..model.unit_count()).rev() {
                    if model.before_backward(unit).is_err() {
                        return false;
                    }
                    if model.gradients(unit, &[]).is_err() {
                        assert!(model.before_backward(unit).is_err(), "allocation {allocation}");
                        return true;
                    }
                }
            }
            false
        });
        failed += usize::from(outcome.results == [Some(true)]);
    }
    assert!(failed > 0);
}

/// Each rank would get what was reduced of the other's part.
#[test]
fn reductions_by_another_order_of_ranks_are_refused() {
    let outcome = Simulation::new(2, 1).run(|rank| {
        let (nccl, cuda, process) = (Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process));
        let stack = Stack::new(nccl, cuda, process, DEVICE);
        let group = |scope: &str, at: usize| {
            let (layout, store) = (Layout::one_host(at, rank.size)?, rank.store.scope(scope));
            DeviceGroup::new(stack.clone(), layout, store, NcclOptions::default(), GroupOptions::default())
        };
        let shard = group("shard", rank.rank).expect("a group");
        let groups = DeviceGroups::new(shard).reductions(group("reductions", 1 - rank.rank).expect("a group"));
        let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        let unit = UnitSpec::new("unit", vec![ParamSpec::new("weight", &[4], DType::F32)]);
        words(DeviceSharded::new(stack, compute, groups, vec![unit], Policy::default()))
    });
    for (rank, said) in outcome.results.into_iter().enumerate() {
        let said = said.expect("an end");
        assert!(said.contains(&format!("must be rank {rank} of 2, as among the shards")), "{said}");
    }
}
