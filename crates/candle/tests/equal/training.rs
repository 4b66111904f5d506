//! The small GPT that is trained here, by one rank or by several.

use candle_core::{DType, Device, Tensor};
use phalanx_candle::gpt::{Gpt, GptOptions, initial};
use phalanx_candle::ops::cross_entropy;
use phalanx_candle::{AdamW, Model, Optimizer, Single, Strategy, Unit};
use phalanx_core::{Group, ReduceOp};

const OPTIONS: GptOptions = GptOptions { vocabulary: 13, context: 8, width: 12, layers: 2, heads: 2 };
/// Divided among one to four ranks.
const BATCH: usize = 24;
pub(crate) const STEPS: usize = 50;

fn units(dtype: DType) -> Vec<Unit> {
    Gpt::new(OPTIONS, dtype, &Device::Cpu).expect("a model").into_units()
}

/// The rows of a step's batch that belong to a rank of a world: inputs and targets.
fn batch(step: usize, rank: usize, world: usize) -> (Tensor, Tensor) {
    let mut draw = fastrand::Rng::with_seed(step as u64);
    let rows: Vec<Vec<u32>> = (0..BATCH)
        .map(|_| {
            let (first, stride) = (draw.u32(..13), draw.u32(1..4));
            (0..=OPTIONS.context as u32).map(|at| (first + at * stride) % 13).collect()
        })
        .collect();
    let own = &rows[rank * BATCH / world..(rank + 1) * BATCH / world];
    let part = |from: usize| {
        let values: Vec<u32> = own.iter().flat_map(|row| row[from..from + OPTIONS.context].to_vec()).collect();
        Tensor::from_vec(values, (own.len(), OPTIONS.context), &Device::Cpu).expect("a batch")
    };
    (part(0), part(1))
}

/// How training is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) dtype: DType,
    pub(crate) recomputes: bool,
    pub(crate) micro_batches: usize,
    pub(crate) clips: Option<f64>,
}

pub(crate) const PLAIN: Way = Way { dtype: DType::F32, recomputes: false, micro_batches: 1, clips: None };

/// The mean loss over all ranks of each step. The group is that of all ranks.
pub(crate) fn train(strategy: impl Strategy, way: Way, group: Option<&Group>) -> Vec<f64> {
    train_with(strategy, way, group, |_| {})
}

/// The same, after something was done with the model.
pub(crate) fn train_with(
    strategy: impl Strategy,
    way: Way,
    group: Option<&Group>,
    prepare: impl FnOnce(&mut Model),
) -> Vec<f64> {
    let (rank, world) = group.map_or((0, 1), |group| (group.rank(), group.size()));
    let mut model = Model::new(units(way.dtype), strategy).expect("a model").recompute(way.recomputes);
    model.load(|name, shape| Ok(initial(1, name, shape, OPTIONS.layers))).expect("initial values");
    prepare(&mut model);
    let mut optimizer = AdamW::default();
    let step = |step: usize| {
        let (inputs, targets) = batch(step, rank, world);
        let each = inputs.dim(0).expect("rows") / way.micro_batches;
        let mut mean = 0.0;
        for micro in 0..way.micro_batches {
            model.set_sync(micro + 1 == way.micro_batches);
            let part = |all: &Tensor| all.narrow(0, micro * each, each).expect("rows");
            let logits = model.forward(&part(&inputs)).expect("forward");
            let loss = cross_entropy(&logits, &part(&targets)).expect("a loss");
            mean += f64::from(loss.to_scalar::<f32>().expect("a number")) / way.micro_batches as f64;
            let loss = (loss / way.micro_batches as f64).expect("a share");
            model.backward(&loss).expect("backward");
        }
        assert_eq!(model.unused(), [""; 0]);
        if let Some(most) = way.clips {
            assert!(model.clip(most).expect("a norm") > 0.0);
        }
        optimizer.step(&mut model, 3e-3).expect("a step");
        model.zero_gradients();
        let mut sum = [mean / world as f64];
        if let Some(group) = group {
            group.all_reduce(&mut sum, ReduceOp::Sum).expect("a mean");
        }
        sum[0]
    };
    (0..STEPS).map(step).collect()
}

pub(crate) fn single(way: Way) -> Vec<f64> {
    train(Single::new(), way, None)
}

pub(crate) fn assert_equal(what: &str, losses: &[f64], expected: &[f64], within: f64) {
    for (step, (loss, expected)) in losses.iter().zip(expected).enumerate() {
        let relative = (loss - expected).abs() / expected;
        assert!(relative <= within, "{what}, step {step}: {loss}, not {expected}");
    }
}
