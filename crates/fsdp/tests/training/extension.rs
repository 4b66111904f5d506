//! Parameters that are gathered in another form: encoded by who holds them, decoded by who uses them.

use std::sync::Arc;

use phalanx_core::{DType, OpKind};
use phalanx_fsdp::{Extension, Gradient, ParamSpec, Policy, Reshard, Sharded, UnitSpec};

use crate::company::Company;

/// Bytes under one scale a rank, and how many there are.
#[derive(Debug)]
struct Quantised;

impl Extension for Quantised {
    fn inputs(&self, len: usize) -> Vec<(DType, usize)> {
        vec![(DType::I8, len), (DType::F32, 1), (DType::U16, 1)]
    }

    fn encode(&self, part: &[f32], inputs: &mut [&mut [u8]]) {
        let [bytes, scale, count] = inputs else { panic!("three inputs") };
        let largest = part.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        bytemuck::cast_slice_mut::<u8, f32>(scale)[0] = largest / 127.0;
        bytemuck::cast_slice_mut::<u8, u16>(count)[0] = part.len() as u16;
        bytes.iter_mut().zip(part).for_each(|(byte, x)| *byte = (rounded(*x, largest) as i8).cast_unsigned());
    }

    fn decode(&self, inputs: &[&[u8]], part: &mut [f32]) {
        let [bytes, scale, count] = inputs else { panic!("three inputs") };
        let scale = bytemuck::cast_slice::<u8, f32>(scale)[0];
        assert_eq!(usize::from(bytemuck::cast_slice::<u8, u16>(count)[0]), part.len());
        part.iter_mut().zip(*bytes).for_each(|(x, byte)| *x = f32::from(byte.cast_signed()) * scale);
    }
}

fn rounded(x: f32, largest: f32) -> f32 {
    if largest > 0.0 { (x * 127.0 / largest).round() } else { 0.0 }
}

#[test]
fn inputs_of_several_types_are_gathered_as_bytes() {
    let values: Vec<f32> = (0..7 * 3).map(|x| (x as f32 * 1.7).sin()).collect();
    for world in 1..=4 {
        Company::of(world).run(|groups, _| {
            let params = vec![
                ParamSpec::new("bias", &[5], DType::F32),
                ParamSpec::new("weight", &[7, 3], DType::F32).gathered_as(Arc::new(Quantised)),
                ParamSpec::new("gain", &[2], DType::F32),
            ];
            let unit = UnitSpec::new("unit", params);
            let mut model = Sharded::new(groups.clone(), vec![unit], Policy::default()).expect("a model");
            let [bias, weight, gain] =
                ["bias", "weight", "gain"].map(|name| model.param("unit", name).expect("a name"));
            model.load_full(bias, &[1.0_f32, 2.0, 3.0, 4.0, 5.0]).expect("its values");
            model.load_full(weight, &values).expect("its values");
            model.load_full(gain, &[6.0_f32, 7.0]).expect("its values");
            let division = model.division(weight).expect("a division");
            let full = model.before_forward(0).expect("a unit");
            let mut out = [0.0_f32; 21];
            full.copy_out(weight.index, &mut out).expect("its length");
            for rank in 0..world {
                let own = division.elements(rank);
                let largest = values[own.clone()].iter().fold(0.0_f32, |most, x| most.max(x.abs()));
                for at in own {
                    assert_eq!(
                        out[at],
                        rounded(values[at], largest) * (largest / 127.0),
                        "{world} ranks, element {at}"
                    );
                }
            }
            let (mut first, mut last) = ([0.0_f32; 5], [0.0_f32; 2]);
            full.copy_out(bias.index, &mut first).expect("its length");
            full.copy_out(gain.index, &mut last).expect("its length");
            assert_eq!((first, last), ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0]));
            assert_eq!(full.view::<f32>(weight.index), None);
            model.after_forward(0).expect("its end");
            // Its gradient is that of its elements, and its shard stays exact.
            model.before_backward(0).expect("a unit");
            let gradients =
                [Gradient::new(0, &[1.0_f32; 5]), Gradient::new(1, &values), Gradient::new(2, &[1.0_f32; 2])];
            model.gradients(0, &gradients).expect("gradients");
            model.finish_backward().expect("the end");
            let own = &values[division.elements(groups.shard().rank())];
            assert_eq!(model.shard::<f32>(weight), Ok(own));
            let gradient = model.gradient::<f32>(weight).expect("a type").expect("a gradient");
            assert!(gradient.iter().zip(own).all(|(got, wanted)| (got - wanted).abs() < 1e-6));
            let records = groups.shard().recorder().records();
            // The first is what the ranks told each other of the model.
            let gathers = records.iter().skip(1).filter(|record| record.op == OpKind::AllGather);
            assert!(gathers.clone().all(|record| record.dtype == DType::U8));
            assert_eq!(gathers.count(), if world > 1 { 2 } else { 0 });
        });
    }
}

#[test]
fn another_form_is_not_divided_twice() {
    Company::of(2).smaller(1).run(|groups, _| {
        let weight = ParamSpec::new("weight", &[7, 3], DType::F32).gathered_as(Arc::new(Quantised));
        let policy = Policy::default().reshard_after_forward(Reshard::Smaller);
        let error = Sharded::new(groups, vec![UnitSpec::new("unit", vec![weight])], policy).expect_err("a refusal");
        assert!(error.to_string().contains("\"weight\" in unit \"unit\", must not be gathered in another form"));
    });
}
