//! Random models under random policies, in random orders: the losses of training alone, and nothing unordered.

use phalanx_fsdp::{Offload, Policy, Reshard};

use crate::company::Company;
use crate::job::Job;
use crate::model::Block;
use crate::seats::seeds;
use crate::train::Task;

/// A chain of one to five blocks, some of which are narrower than any world.
fn blocks(random: &mut fastrand::Rng) -> Vec<Block> {
    let (count, mut width) = (random.usize(1..6), random.usize(1..9));
    let block = |_| {
        let inputs = width;
        width = if random.u8(..3) == 0 { inputs } else { random.usize(1..9) };
        let has_again = width == inputs && random.bool();
        let trains_weight = has_again || random.u8(..4) > 0;
        Block { inputs, outputs: width, trains_bias: random.u8(..3) > 0, trains_weight, has_again }
    };
    (0..count).map(block).collect()
}

fn company(random: &mut fastrand::Rng) -> Company {
    let companies = [
        Company::of(1),
        Company::of(2),
        Company::of(3),
        Company::of(4),
        Company::of(4).smaller(2),
        Company::of(2).smaller(1).replicas(2),
        Company::of(2).replicas(3),
    ];
    companies[random.usize(..companies.len())]
}

fn job(seed: u64) -> Job {
    let mut random = fastrand::Rng::with_seed(seed);
    let task = Task { seed, ..Task::new(blocks(&mut random), 2) };
    let company = company(&mut random);
    let reshards = [Reshard::Yes, Reshard::No, Reshard::Smaller];
    let reshard = reshards[random.usize(..if company.smaller.is_some() { 3 } else { 2 })];
    let policy = Policy::default().reshard_after_forward(reshard);
    let policy = policy.forward_prefetch(random.usize(..4)).backward_prefetch(random.usize(..4));
    let policy = policy.offload(if random.u8(..3) == 0 { Offload::Host } else { Offload::No });
    // So many that every world divides their samples.
    let micros = [1, 1, 2, 3][random.usize(..4)];
    let (syncs_last, all_reduces_last, keeps, runs_on) = (random.bool(), random.bool(), random.bool(), random.bool());
    let (has_own_gradients, reduces_apart) = (random.bool(), random.bool());
    let job = Job { has_own_gradients, reduces_apart, ..Job::new(task.micros(micros), company, policy) };
    job.before(move |model, _, micro| {
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
