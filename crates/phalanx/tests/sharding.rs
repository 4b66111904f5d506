//! The engine of sharded training by the front's own name, over its groups.
#![cfg(feature = "fsdp")]

use phalanx::DType;
use phalanx::fsdp::{Gradient, ParamSpec, Policy, Sharded, UnitSpec};

#[test]
fn a_model_is_sharded_over_a_group_of_the_front() {
    let ends = phalanx::threads(2, |group| {
        let unit = UnitSpec::new("unit", vec![ParamSpec::new("weight", &[3], DType::F32)]);
        let mut model = Sharded::new(group, vec![unit], Policy::default())?;
        let weight = model.param("unit", "weight").expect("it was just named");
        model.load_full(weight, &[1.0_f32, 2.0, 3.0])?;
        model.before_backward(0)?;
        model.gradients(0, &[Gradient::new(0, &[4.0_f32; 3])])?;
        model.finish_backward()?;
        let (shard, gradient) = model.update::<f32>(weight)?;
        Ok::<_, phalanx::Error>((shard.to_vec(), gradient.map(<[f32]>::to_vec)))
    });
    let wanted = [(vec![1.0, 2.0], Some(vec![4.0; 2])), (vec![3.0], Some(vec![4.0]))];
    assert_eq!(ends.expect("a world"), wanted.map(Ok));
}
