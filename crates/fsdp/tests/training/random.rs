//! Random models under random policies: every gradient is the right rows of the full one.

use crate::draw;
use crate::train::Task;

#[test]
fn gradients_of_random_models_are_rows_of_the_full_ones() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let task = Task { seed, ..Task::new(draw::blocks(&mut random), 1) };
        let company = draw::company(&mut random);
        let policy = draw::policy(&mut random, &company);
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
