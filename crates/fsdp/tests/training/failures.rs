//! A rank that goes away in the middle: the others end with an error that names it, and stay ended.

use phalanx_core::{DType, ErrorKind};
use phalanx_fsdp::{Gradient, ParamSpec, Policy, Sharded, UnitSpec};

use crate::company::Company;

#[test]
fn a_rank_that_leaves_ends_the_training_of_all() {
    for leaves_after in [0, 1, 2, 3] {
        let ends = Company::of(3).run(|groups, rank| {
            let unit = |name: &str| UnitSpec::new(name, vec![ParamSpec::new("weight", &[300, 100], DType::F32)]);
            let mut model = Sharded::new(groups, vec![unit("a"), unit("b")], Policy::default()).expect("a model");
            let gradient = vec![1.0_f32; 300 * 100];
            let mut step = 0;
            let mut pass = |model: &mut Sharded| {
                for unit in [0, 1] {
                    model.before_forward(unit)?;
                    model.after_forward(unit)?;
                }
                for unit in [1, 0] {
                    model.before_backward(unit)?;
                    model.gradients(unit, &[Gradient::new(0, &gradient)])?;
                }
                step += 1;
                model.finish_backward()
            };
            for _ in 0..leaves_after {
                pass(&mut model).expect("a pass with all");
            }
            if rank == 1 {
                return None;
            }
            let error = pass(&mut model).expect_err("a rank is gone");
            let again = model.before_forward(0).expect_err("the group has failed");
            assert_eq!(again.kind(), ErrorKind::Aborted, "{again}");
            let param = model.param("a", "weight").expect("a name");
            assert_eq!(model.shard::<f32>(param).expect("a shard").len(), 100 * 100);
            Some(error)
        });
        for error in ends.into_iter().flatten() {
            assert_eq!(error.culprits(), [1], "{error}");
        }
    }
}

#[test]
fn ranks_that_come_to_different_units_are_told() {
    let ends = Company::of(2).run(|groups, rank| {
        let unit =
            |name: &str, rows: usize| UnitSpec::new(name, vec![ParamSpec::new("weight", &[rows, 10], DType::F32)]);
        let mut model = Sharded::new(groups, vec![unit("a", 10), unit("b", 20)], Policy::default()).expect("a model");
        let error = model.before_forward(rank).expect_err("another unit");
        assert_eq!(model.before_forward(0).expect_err("the model has failed").kind(), ErrorKind::Desync);
        error
    });
    for error in ends {
        assert_eq!(error.kind(), ErrorKind::Desync, "{error}");
        assert!(error.to_string().contains("all_gather") || error.to_string().contains("count"), "{error}");
    }
}
