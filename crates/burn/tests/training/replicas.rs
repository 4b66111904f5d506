//! Whole models on all ranks come to the losses of one rank.

use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor, TensorData};
use burn_nn::{Linear, LinearConfig};
use burn_optim::{AdamWConfig, GradientsParams};
use phalanx_burn::{Ddp, DdpOptions};
use phalanx_comm::Threads;
use phalanx_core::ErrorKind;

use crate::model::{Whole, batch, device};

#[test]
fn averaged_gradients_are_those_of_all_rows() {
    let train = |group: Option<phalanx_core::Group>| {
        let (rank, ranks) = group.as_ref().map_or((0, 1), |group| (group.rank(), group.size()));
        let (mut model, mut optimizer, mut losses) = (Whole::new(&device()), AdamWConfig::new().init(), vec![]);
        let mut ddp = None;
        if let Some(group) = group {
            // The second rank begins with other values.
            if rank == 1 {
                let (ids, targets) = batch(0, 0, 1, &device());
                let gradients = GradientsParams::from_grads(model.loss(ids, targets).backward(), &model);
                model = AdamWConfig::new().init().step(0.1, model, gradients);
            }
            let options = DdpOptions::default().first_byte_len(100).bucket_byte_len(400);
            let (made, same) = Ddp::with_options(group, model, options).expect("a model");
            (ddp, model) = (Some(made), same);
        }
        for step in 0..10 {
            let (ids, targets) = batch(step, rank, ranks, &device());
            let loss = model.loss(ids, targets);
            let mut gradients = GradientsParams::from_grads(loss.backward(), &model);
            if let Some(ddp) = &mut ddp {
                gradients = ddp.average(&model, gradients).expect("averages");
            }
            model = optimizer.step(2e-2, model, gradients);
            losses.push(loss.into_scalar::<f32>());
        }
        losses
    };
    let alone = train(None);
    for world in 1..=4 {
        let ends = Threads::new(world).run(|group| train(Some(group))).expect("a world");
        for (step, expected) in alone.iter().enumerate() {
            let mean = ends.iter().map(|losses| losses[step]).sum::<f32>() / world as f32;
            assert!((mean - expected).abs() < 1e-4 * expected.abs(), "world {world}, step {step}: {mean}, {expected}");
        }
    }
}

#[test]
fn gradients_that_are_missing_or_foreign_are_told_by_name() {
    Threads::new(1)
        .run(|group| {
            let (mut ddp, model) = Ddp::new(group, Whole::new(&device())).expect("a model");
            let error = ddp.average(&model, GradientsParams::new()).expect_err("there are none");
            assert!(error.kind() == ErrorKind::Usage && error.to_string().contains("blocks.0.wide.weight"), "{error}");
            let other = Whole::new(&device());
            let (ids, targets) = batch(0, 0, 1, &device());
            let foreign = GradientsParams::from_grads(other.loss(ids, targets).backward(), &other);
            let error = ddp.average(&model, foreign).expect_err("they are of another model");
            assert!(error.to_string().contains("must be of the model that Ddp was made of"), "{error}");
        })
        .expect("a world");
}

#[test]
fn gradients_that_were_refused_are_not_there_when_the_next_come() {
    Threads::new(1)
        .run(|group| {
            let layer = || LinearConfig::new(3, 3).init(&device());
            let layers: Vec<Linear> = vec![layer(), layer()];
            let (mut ddp, layers) = Ddp::new(group, layers).expect("a model");
            let x = || Tensor::<2>::ones([2, 3], &device());
            let last = GradientsParams::from_grads(layers[1].forward(x()).mean().backward(), &layers);
            let error = ddp.average(&layers, last).expect_err("the first has none");
            assert!(error.to_string().contains("0.weight"), "{error}");
            let both = || {
                let loss = layers[1].forward(layers[0].forward(x()).tanh()).mean();
                GradientsParams::from_grads(loss.backward(), &layers)
            };
            let averaged = ddp.average(&layers, both()).expect("all have one");
            let (averaged, own) = (values(&layers, &averaged), values(&layers, &both()));
            assert_eq!(averaged, own);
        })
        .expect("a world");
}

#[test]
fn gradients_of_wide_parameters_are_averaged_as_they_are() {
    #[derive(Module, Debug)]
    struct Wide {
        weight: Param<Tensor<1>>,
    }
    let slope = 1.0 + 2.0_f64.powi(-40);
    let wide = |value: f64| TensorData::new(vec![value; 3], [3]);
    let ends = Threads::new(2).run(|group| {
        let weight = Tensor::from_data(wide(0.0), (&device(), DType::F64));
        let (mut ddp, model) = Ddp::new(group, Wide { weight: Param::from_tensor(weight) }).expect("a model");
        let mut gradients = GradientsParams::new();
        let own = Tensor::<1>::from_data(wide(slope), (&device().without_autodiff(), DType::F64));
        gradients.register(model.weight.id, own);
        let averaged = ddp.average(&model, gradients).expect("averages");
        averaged.get::<1>(model.weight.id).expect("a gradient").into_data()
    });
    assert_eq!(ends.expect("a world"), [wide(slope), wide(slope)]);
}

fn values(layers: &[Linear], gradients: &GradientsParams) -> Vec<Vec<f32>> {
    let gradient = |layer: &Linear| gradients.get::<2>(layer.weight.id).expect("a gradient").into_data();
    layers.iter().map(|layer| gradient(layer).try_into_vec::<f32>().expect("floats")).collect()
}
