//! Random models under random policies, in random orders: the losses of training alone, and nothing unordered.

use std::sync::Arc;

use phalanx_fsdp::Offload;

use crate::draw;
use crate::hooks::{HOOKS, Make, hooked};
use crate::job::Job;
use crate::seats::seeds;
use crate::train::Task;

fn job(seed: u64) -> Job {
    let mut random = fastrand::Rng::with_seed(seed);
    let task = Task { seed, ..Task::new(draw::blocks(&mut random), 2) };
    let company = draw::company(&mut random);
    let policy = draw::policy(&mut random, &company);
    let policy = policy.offload(if random.u8(..3) == 0 { Offload::Host } else { Offload::No });
    // So many that every world divides their samples.
    let micros = [1, 1, 2, 3][random.usize(..4)];
    let (syncs_last, all_reduces_last, keeps, runs_on) = (random.bool(), random.bool(), random.bool(), random.bool());
    let (has_own_gradients, reduces_apart) = (random.bool(), random.bool());
    let p = [1.0, 2.0, 2.5, f64::INFINITY][random.usize(..4)];
    let task = Task { clip: random.bool().then(|| (random.f64() + 0.01, p)), ..task.micros(micros) };
    let job = Job { has_own_gradients, reduces_apart, ..Job::new(task, company, policy) };
    let hook: Option<Make> = [None, None, Some(HOOKS[0]), Some(HOOKS[1])][random.usize(..4)];
    let job = hook.map_or(job.clone(), |hook| hooked(job, hook));
    let before = Arc::clone(&job.before);
    job.before(move |model, step, micro| {
        before(model, step, micro);
        let is_last = micro + 1 == micros;
        model.set_sync(is_last || !syncs_last);
        let settings = model.settings_mut();
        settings.all_reduces = is_last || !all_reduces_last;
        settings.reshards_after_backward = is_last || !keeps;
        settings.is_last_backward = is_last || !runs_on;
    })
}

#[test]
fn random_models_have_the_losses_of_training_alone() {
    for seed in seeds(60) {
        let job = job(seed);
        let apart = job.outcome(seed).apart(&job.task.alone());
        // Some models have a small loss, of which roundings of f32 are a larger part.
        assert!(apart <= 1e-5, "seed {seed}: {apart:e}");
    }
}
