//! Norms and clipping over devices: those of the engine on the host, in whatever order the seed decides.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use half::{bf16, f16};
use phalanx_core::{DType, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGradient, DeviceGroups, DeviceSharded};
use phalanx_fsdp::{Gradient, Offload, Param, ParamSpec, Policy, Sharded, UnitSpec};
use phalanx_nccl::api::Cuda;
use phalanx_nccl::group::{DeviceGroup, NcclOptions, PinnedBuffer, Stack};
use phalanx_nccl::sim::{SimRank, Simulation};

use crate::company::Company;
use crate::job::{Job, Model, downloaded};
use crate::model::mixed;
use crate::seats::{DEVICE, clean, seeds};
use crate::train::{Task, norm};

const CLOSE: f64 = 1e-6;
const NORMS: [f64; 4] = [1.0, 2.0, 3.0, f64::INFINITY];

#[test]
fn clipped_training_has_the_losses_of_training_alone_and_of_the_host() {
    for (p, most) in [(1.0, 0.3), (2.0, 0.05), (f64::INFINITY, 0.02)] {
        let task = Task::new(mixed(), 20).clipped(most, p);
        let (alone, plain) = (task.alone(), Task { clip: None, ..task.clone() }.alone());
        assert!(alone.apart(&plain) > 1e-3, "nothing was clipped");
        for world in 1..=4 {
            let (company, policy) = (Company::of(world), Policy::default());
            let host = task.sharded(company, &policy, |_, _, _| {});
            for offload in [Offload::No, Offload::Host] {
                let job = Job::new(task.clone(), company, policy.clone().offload(offload));
                for seed in seeds(2) {
                    let device = job.outcome(seed);
                    let apart = [device.apart(&alone), device.apart(&host)];
                    assert!(apart.iter().all(|apart| *apart <= CLOSE), "world {world}, p {p}, {offload:?}: {apart:?}");
                }
            }
        }
    }
}

#[test]
fn replicas_and_a_communicator_for_reductions_clip_alike() {
    let task = Task::new(mixed(), 4).clipped(0.05, 2.0);
    let alone = task.alone();
    let job = Job { reduces_apart: true, ..Job::new(task, Company::of(2).replicas(2), Policy::default()) };
    for seed in seeds(3) {
        let apart = job.outcome(seed).apart(&alone);
        assert!(apart <= CLOSE, "seed {seed}: {apart:e}");
    }
}

#[test]
fn the_norm_of_a_step_is_told_after_it_and_is_the_same_for_every_order() {
    for (p, offload) in NORMS.into_iter().flat_map(|p| [Offload::No, Offload::Host].map(|offload| (p, offload))) {
        let task = Task::new(mixed(), 3).clipped(0.05, p);
        let (_, first) = task.full_gradients(&task.initial(), 0);
        let wanted = norm(&first, p);
        let policy = Policy::default().offload(offload);
        let job = Job { reads_norms: true, ..Job::new(task, Company::of(3), policy) };
        let mut norms = Vec::new();
        for seed in seeds(3) {
            let outcome = job.run(seed);
            clean(&outcome, seed);
            norms.extend(outcome.results.into_iter().map(|end| end.expect("an end").expect("no error").norms));
        }
        assert!(norms.iter().all(|of_rank| of_rank.len() == 3 && *of_rank == norms[0]), "{norms:?}");
        assert!((norms[0][0] / wanted - 1.0).abs() <= CLOSE, "p {p}, {offload:?}: {} for {wanted}", norms[0][0]);
    }
}

/// Parameters of every type, some of which are larger than a tile.
fn units() -> Vec<UnitSpec> {
    let first = vec![
        ParamSpec::new("wide", &[7, 5], DType::F32),
        ParamSpec::new("half", &[9], DType::F16),
        ParamSpec::new("brain", &[3, 3], DType::BF16),
    ];
    let frozen = ParamSpec::new("frozen", &[4], DType::F32).trainable(false);
    vec![
        UnitSpec::new("first", first),
        UnitSpec::new("frozen", vec![frozen]),
        UnitSpec::new("last", vec![ParamSpec::new("long", &[40_001], DType::BF16)]),
    ]
}

/// The full gradients, of which each rank brings the same: averages of them are exact.
fn gradients(unit: usize, odd: Option<f32>) -> Vec<Vec<f32>> {
    let mut random = fastrand::Rng::with_seed(unit as u64);
    let mut draw = |len: usize| (0..len).map(|_| random.i32(-64..=64) as f32 / 8.0).collect::<Vec<_>>();
    match unit {
        0 => {
            let mut all = vec![draw(35), draw(9), draw(9)];
            all[0][34] = odd.unwrap_or(all[0][34]);
            all
        }
        1 => Vec::new(),
        _ => vec![draw(40_001)],
    }
}

fn policy(offload: Offload) -> Policy {
    Policy::default().reduce(DType::F32).offload(offload)
}

/// A model on devices after one backward.
fn trained(rank: &SimRank, offload: Offload, odd: Option<f32>) -> Result<Model> {
    let stack = Stack::new(Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE);
    let options = GroupOptions::default().timeout(Duration::from_secs(2));
    let layout = Layout::one_host(rank.rank, rank.size)?;
    let group = DeviceGroup::new(stack.clone(), layout, rank.store.clone(), NcclOptions::default(), options)?;
    let compute = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    let mut model = DeviceSharded::new(stack, compute, DeviceGroups::new(group), units(), policy(offload))?;
    for unit in (0..3).rev() {
        model.before_backward(unit)?;
        let memory: Vec<DeviceGradient<_>> = model.gradient_memory(unit, DType::F32)?;
        for (gradient, values) in memory.iter().zip(gradients(unit, odd.filter(|_| rank.rank == 0))) {
            let host = PinnedBuffer::new(&rank.cuda, values.len() * 4)?;
            host.write(&of_floats(&values))?;
            rank.cuda.copy(gradient.buffer().span(), host.span(), compute).expect("copied");
            rank.cuda.synchronize_stream(compute).expect("an end");
        }
        model.gradients(unit, &memory)?;
    }
    model.finish_backward()?;
    Ok(model)
}

fn of_floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// The bytes of a rank's gradients.
fn bytes(model: &mut Model, rank: &SimRank, offload: Offload) -> Result<Vec<Vec<u8>>> {
    let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    model.settle()?;
    let mut all = Vec::new();
    for param in model.trained().collect::<Vec<_>>() {
        all.push(match offload {
            Offload::Host => {
                let mut bytes = Vec::new();
                macro_rules! read {
                    ($T:ty) => {
                        model.update_on_host::<$T>(param, |_, gradient| {
                            bytes = gradient.unwrap_or_default().iter().flat_map(|x| x.to_ne_bytes()).collect();
                        })?
                    };
                }
                match model.spec(param)?.dtype() {
                    DType::F16 => read!(f16),
                    DType::BF16 => read!(bf16),
                    _ => read!(f32),
                }
                bytes
            }
            _ => downloaded(&rank.cuda, &model.update(param)?.gradient.expect("a gradient"), stream)?,
        });
    }
    Ok(all)
}

/// The same on the host.
fn host_bytes(model: &Sharded) -> Vec<Vec<u8>> {
    let bytes = |param: Param| match model.spec(param).expect("a parameter").dtype() {
        DType::F16 => bytes_of(model.gradient::<f16>(param), |x| x.to_ne_bytes()),
        DType::BF16 => bytes_of(model.gradient::<bf16>(param), |x| x.to_ne_bytes()),
        _ => bytes_of(model.gradient::<f32>(param), |x| x.to_ne_bytes()),
    };
    model.trained().map(bytes).collect()
}

fn bytes_of<T: Copy, const LEN: usize>(gradient: Result<Option<&[T]>>, bytes: impl Fn(T) -> [u8; LEN]) -> Vec<u8> {
    gradient.expect("a type").expect("a gradient").iter().flat_map(|x| bytes(*x)).collect()
}

/// What a rank is asked: its norms, then the gradients once they were clipped and multiplied.
type Answers = (Vec<f64>, Vec<Vec<u8>>);

#[test]
fn norms_and_clipped_gradients_of_every_type_are_those_of_the_host() {
    for (world, offload) in [1, 2, 4].into_iter().flat_map(|world| [Offload::No, Offload::Host].map(|way| (world, way)))
    {
        let host: Vec<Answers> = Company::of(world).run(|groups, _| {
            let mut model = Sharded::new(groups, units(), policy(offload)).expect("a model");
            for unit in (0..3).rev() {
                model.before_backward(unit).expect("a unit");
                let values = gradients(unit, None);
                let given: Vec<_> = values.iter().enumerate().map(|(index, all)| Gradient::new(index, all)).collect();
                model.gradients(unit, &given).expect("gradients");
            }
            model.finish_backward().expect("the end");
            let mut norms: Vec<f64> = NORMS.map(|p| model.gradient_norm(p).expect("a norm")).to_vec();
            norms.push(model.clip_gradients(20.0, 2.0).expect("a norm"));
            model.scale_gradients(3.7);
            norms.push(model.gradient_norm(2.0).expect("a norm"));
            norms.push(f64::from(u8::from(model.gradients_overflowed().expect("an answer"))));
            (norms, host_bytes(&model))
        });
        for seed in seeds(2) {
            let outcome = Simulation::new(world, seed).run(move |rank| {
                let mut model = trained(&rank, offload, None)?;
                assert_eq!(model.clipped_norm()?, None);
                let mut norms = NORMS.iter().map(|p| model.gradient_norm(*p)).collect::<Result<Vec<_>>>()?;
                model.clip_gradients(20.0, 2.0)?;
                model.scale_gradients(3.7)?;
                let after = model.gradient_norm(2.0)?;
                norms.extend([model.clipped_norm()?.expect("they were clipped"), after]);
                norms.push(f64::from(u8::from(model.gradients_overflowed()?)));
                Ok::<Answers, phalanx_core::Error>((norms, bytes(&mut model, &rank, offload)?))
            });
            clean(&outcome, seed);
            for (end, (norms, gradients)) in outcome.results.into_iter().zip(&host) {
                let (got, bytes) = end.expect("an end").expect("no error");
                let close = |(got, wanted): (&f64, &f64)| (got - wanted).abs() <= 1e-12 * wanted;
                assert!(got.iter().zip(norms).all(close), "world {world}, {offload:?}: {got:?} for {norms:?}");
                assert!(bytes == *gradients, "world {world}, {offload:?}: gradients differ");
            }
        }
    }
}

#[test]
fn one_rank_that_overflows_is_known_to_all() {
    for (odd, offload) in
        [f32::INFINITY, f32::NAN].map(|odd| [Offload::No, Offload::Host].map(|way| (odd, way))).concat()
    {
        let outcome = Simulation::new(3, 1).run(move |rank| {
            let mut model = trained(&rank, offload, Some(odd))?;
            let norms = [model.gradient_norm(2.0)?, model.gradient_norm(f64::INFINITY)?];
            Ok::<_, phalanx_core::Error>((model.gradients_overflowed()?, norms))
        });
        clean(&outcome, 1);
        for end in outcome.results {
            let (is_odd, norms) = end.expect("an end").expect("no error");
            assert!(is_odd && norms.iter().all(|norm| norm.is_nan() == odd.is_nan() && !norm.is_finite()), "{norms:?}");
        }
    }
}

#[test]
fn bounds_that_mean_nothing_are_refused_in_the_words_of_the_host() {
    let words = Arc::new(Mutex::new(Vec::new()));
    Company::of(1).run(|groups, _| {
        let mut model = Sharded::new(groups, units(), policy(Offload::No)).expect("a model");
        let mut words = words.lock().expect("a lock");
        words.extend([0.5, 100.0, f64::NAN].map(|p| model.gradient_norm(p).expect_err("no norm").to_string()));
        words.extend([0.0, f64::NAN].map(|most| model.clip_gradients(most, 2.0).expect_err("no bound").to_string()));
        words.push(model.clip_gradients(1.0, 0.0).expect_err("no norm").to_string());
    });
    let wanted = words.lock().expect("a lock").clone();
    let outcome = Simulation::new(1, 1).run(|rank| {
        let mut model = trained(&rank, Offload::No, None)?;
        model.zero_gradients()?;
        assert_eq!(model.gradient_norm(2.0)?, 0.0);
        let mut words: Vec<_> = [0.5, 100.0, f64::NAN].map(|p| model.gradient_norm(p).map(drop)).to_vec();
        words.extend([0.0, f64::NAN].map(|most| model.clip_gradients(most, 2.0)));
        words.push(model.clip_gradients(1.0, 0.0));
        Ok::<_, phalanx_core::Error>(words)
    });
    clean(&outcome, 1);
    let said = outcome.results.into_iter().next().flatten().expect("an end").expect("no error");
    let said: Vec<String> = said.into_iter().map(|refused| refused.expect_err("refused").to_string()).collect();
    assert_eq!(said, wanted);
}
