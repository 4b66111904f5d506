//! Communication hooks over devices: what they come to on the host, and what devices do not have is refused by name.

use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{DType, ErrorKind, GroupOptions, Layout, OpKind, Result};
use phalanx_fsdp::device::{DeviceGroups, DeviceSharded};
use phalanx_fsdp::hooks::{AllReduce, Bf16, F16, GradientHook, Int8, ReduceScatter, Size, Wire};
use phalanx_fsdp::{Offload, ParamSpec, Policy, UnitSpec};
use phalanx_nccl::api::Cuda;
use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::sim::{SimRank, Simulation};

use crate::company::Company;
use crate::job::{Job, Model};
use crate::model::mixed;
use crate::seats::{DEVICE, clean, seeds};
use crate::train::Task;

const CLOSE: f64 = 1e-6;

pub(crate) type Make = fn() -> Box<dyn GradientHook>;

pub(crate) const HOOKS: [Make; 4] =
    [|| Box::new(AllReduce), || Box::new(ReduceScatter), || Box::new(F16), || Box::new(Bf16)];

/// A job whose gradients travel as a hook says, from its first micro-batch on.
pub(crate) fn hooked(job: Job, hook: Make) -> Job {
    let before = Arc::clone(&job.before);
    job.before(move |model, step, micro| {
        if (step, micro) == (0, 0) {
            model.set_hook(Some(hook())).expect("gradients of f32");
        }
        before(model, step, micro);
    })
}

#[test]
fn training_with_every_hook_is_what_it_is_on_the_host() {
    let task = Task::new(mixed(), 10);
    let policy = Policy::default();
    for (world, hook) in (1..=4).flat_map(|world| HOOKS.map(|hook| (world, hook))) {
        let company = Company::of(world);
        let host = task.sharded(company, &policy, |model, step, _| {
            if step == 0 {
                model.set_hook(Some(hook())).expect("gradients of f32");
            }
        });
        let plain = task.sharded(company, &policy, |_, _, _| {});
        let is_short = hook().on_devices() != Some(DType::F32);
        assert!(!is_short || host.apart(&plain) > CLOSE, "{:?} changes nothing", hook());
        for seed in seeds(2) {
            let apart = hooked(Job::new(task.clone(), company, policy.clone()), hook).outcome(seed).apart(&host);
            assert!(apart <= CLOSE, "{:?}, world {world}, seed {seed}: {apart:e}", hook());
        }
    }
}

#[test]
fn hooks_go_with_replicas_accumulation_clipping_and_gradients_on_the_host() {
    let task = Task::new(mixed(), 3);
    let alone = task.alone();
    let policy = Policy::default();
    let check = |what: &str, alone: &crate::train::Outcome, job: Job| {
        for (hook, close) in [(HOOKS[1], CLOSE), (HOOKS[2], 2e-2)] {
            for seed in seeds(2) {
                let apart = hooked(job.clone(), hook).outcome(seed).apart(alone);
                assert!(apart <= close, "{what}, {:?}, seed {seed}: {apart:e}", hook());
            }
        }
    };
    check("replicas", &alone, Job::new(task.clone(), Company::of(2).replicas(2), policy.clone()));
    let offloaded = policy.clone().offload(Offload::Host);
    check("offloaded", &alone, Job::new(task.clone(), Company::of(3), offloaded));
    let apart = Job { reduces_apart: true, ..Job::new(task.clone(), Company::of(3), policy.clone()) };
    check("two communicators", &alone, apart);
    let micros = task.clone().micros(3);
    let last = Job::new(micros.clone(), Company::of(2), policy.clone()).before(|model, _, micro| {
        model.set_sync(micro == 2);
    });
    check("the last is reduced", &alone, last);
    let runs_on = Job::new(micros, Company::of(2).replicas(2), policy.clone()).before(|model, _, micro| {
        model.settings_mut().is_last_backward = micro == 2;
        model.settings_mut().all_reduces = micro == 2;
    });
    check("reductions run on", &alone, runs_on);
    let clipped = task.clipped(0.05, 2.0);
    check("clipped", &clipped.alone(), Job::new(clipped.clone(), Company::of(3), policy));
}

#[test]
fn a_hook_comes_and_goes_between_micro_batches() {
    let task = Task::new(mixed(), 2).micros(3);
    let alone = task.alone();
    for (first, last) in [(1, 9), (0, 2), (2, 9), (1, 2)] {
        let job = Job::new(task.clone(), Company::of(2), Policy::default()).before(move |model, _, micro| {
            model.set_sync(micro == 2);
            let hook = (first..last).contains(&micro).then(|| Box::new(Bf16) as Box<dyn GradientHook>);
            model.set_hook(hook).expect("gradients of f32");
        });
        for seed in seeds(2) {
            let apart = job.outcome(seed).apart(&alone);
            assert!(apart <= 2e-2 && (apart <= CLOSE) == (last == 2), "{first} to {last}, seed {seed}: {apart:e}");
        }
    }
}

/// A model of one unit, and its group.
fn one(rank: &SimRank, policy: Policy) -> Result<(Model, Arc<crate::seats::Group>)> {
    let stack = Stack::new(Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE);
    let options = GroupOptions::default().timeout(Duration::from_secs(2));
    let layout = Layout::one_host(rank.rank, rank.size)?;
    let group = DeviceGroup::new(stack.clone(), layout, rank.store.clone(), NcclOptions::default(), options)?;
    let group = Arc::new(group);
    let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    let unit = UnitSpec::new("unit", vec![ParamSpec::new("weight", &[64], DType::F32)]);
    let model = DeviceSharded::new(stack, compute, DeviceGroups::new(Arc::clone(&group)), vec![unit], policy)?;
    Ok((model, group))
}

/// One backward, which brings no gradient.
fn backward(model: &mut Model) -> Result<()> {
    model.before_backward(0)?;
    model.gradients(0, &[])?;
    model.finish_backward()
}

#[test]
fn what_travels_is_what_the_hook_says() {
    let wanted = [
        (OpKind::AllReduce, DType::F32),
        (OpKind::ReduceScatter, DType::F32),
        (OpKind::ReduceScatter, DType::F16),
        (OpKind::ReduceScatter, DType::BF16),
    ];
    for (hook, wanted) in HOOKS.into_iter().zip(wanted) {
        let outcome = Simulation::new(2, 1).run(move |rank| {
            let (mut model, group) = one(&rank, Policy::default())?;
            model.set_hook(Some(hook()))?;
            backward(&mut model)?;
            model.settle()?;
            let records = group.group().recorder().records();
            let reduced =
                records.iter().filter(|record| matches!(record.op, OpKind::AllReduce | OpKind::ReduceScatter));
            Ok::<_, phalanx_core::Error>(reduced.map(|record| (record.op, record.dtype)).next_back())
        });
        clean(&outcome, 1);
        assert!(outcome.results.iter().all(|end| *end == Some(Ok(Some(wanted)))), "{:?}", outcome.results);
    }
}

/// Says that devices do the same, and sends what they do not.
#[derive(Clone, Copy, Debug)]
struct Boastful;

impl GradientHook for Boastful {
    fn wire(&self, _: Size) -> Wire {
        Wire::AllGather(64)
    }

    fn pack(&mut self, _: usize, _: Size, _: &[f32], _: &mut [u8]) {}

    fn unpack(&mut self, _: usize, _: Size, _: &[u8], _: &mut [f32]) {}

    fn on_devices(&self) -> Option<DType> {
        Some(DType::F16)
    }
}

#[test]
fn hooks_that_devices_do_not_have_are_refused_by_name() {
    let outcome = Simulation::new(1, 1).run(|rank| {
        let (mut model, _) = one(&rank, Policy::default())?;
        for (hook, wanted) in [
            (
                Box::new(Int8::default()) as Box<dyn GradientHook>,
                "Int8 { has_feedback: true, .. } has no form for devices",
            ),
            (Box::new(Boastful), "Boastful sends what devices do not: AllGather(64)"),
        ] {
            let error = model.set_hook(Some(hook)).expect_err("refused");
            assert!(error.kind() == ErrorKind::Setup && error.to_string().contains(wanted), "{error}");
        }
        backward(&mut model)?;
        let (mut other, _) =
            one(&SimRank { store: rank.store.scope("other"), ..rank }, Policy::default().reduce(DType::BF16))?;
        let error = other.set_hook(Some(Box::new(F16))).expect_err("bf16");
        let words =
            "set_hook: reduce is bf16 for \"weight\" in unit \"unit\", must be f32, set by the policy or the unit";
        assert_eq!(error.to_string(), words);
        other.set_hook(None)
    });
    clean(&outcome, 1);
    assert_eq!(outcome.results, [Some(Ok(()))]);
}

#[test]
fn a_hook_and_a_divisor_are_not_changed_while_gradients_travel() {
    let outcome = Simulation::new(2, 1).run(|rank| {
        let (mut model, _) = one(&rank, Policy::default())?;
        model.set_hook(Some(Box::new(F16)))?;
        model.settings_mut().is_last_backward = false;
        backward(&mut model)?;
        let errors = [model.set_hook(None), model.set_gradient_divisor(Some(3.0))];
        let errors = errors.map(|refused| refused.expect_err("they travel").to_string());
        model.settings_mut().is_last_backward = true;
        model.finish_backward()?;
        model.set_hook(None)?;
        model.set_gradient_divisor(Some(3.0))?;
        backward(&mut model)?;
        Ok::<_, phalanx_core::Error>(errors)
    });
    clean(&outcome, 1);
    for end in outcome.results {
        let said = end.expect("an end").expect("no error");
        let words = ["set_hook", "set_gradient_divisor"];
        assert_eq!(
            said,
            words.map(|call| format!("{call}: gradients is being reduced in unit \"unit\", must be awaited first"))
        );
    }
}
