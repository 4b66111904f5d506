//! Random models under random policies: every gradient is the right rows of the full one.

use phalanx_fsdp::{Policy, Reshard};

use crate::company::Company;
use crate::model::Block;
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

#[test]
fn gradients_of_random_models_are_rows_of_the_full_ones() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let task = Task { seed, ..Task::new(blocks(&mut random), 1) };
        let company = company(&mut random);
        let reshards = [Reshard::Yes, Reshard::No, Reshard::Smaller];
        let reshard = reshards[random.usize(..if company.smaller.is_some() { 3 } else { 2 })];
        let policy = Policy::default().reshard_after_forward(reshard);
        let policy = policy.forward_prefetch(random.usize(..4)).backward_prefetch(random.usize(..4));
        let (_, wanted) = task.full_gradients(&task.initial(), 0);
        company.run(|groups, rank| {
            let own = groups.shard().rank();
            let mut model = task.shard(groups, policy.clone()).expect("a model");
            task.pass(&mut model, 0, rank, company.size()).expect("a pass");
            assert_eq!(model.unused(), [], "seed {seed}");
            for param in model.trained().collect::<Vec<_>>() {
                let full = &wanted[param.unit][param.index];
                let rows = model.division(param).expect("a division").elements(own);
                let gradient = model.gradient::<f32>(param).expect("its type").expect("a gradient");
                assert_eq!(gradient.len(), rows.len(), "seed {seed}: {param:?}");
                for (got, wanted) in gradient.iter().zip(&full[rows]) {
                    let apart = (f64::from(*got) - wanted).abs();
                    assert!(apart <= 1e-6 * wanted.abs().max(1e-2), "seed {seed}: {param:?}: {got} for {wanted}");
                }
            }
        });
    }
}
