//! The same losses as PyTorch from the same weights on the same batches. Needs a Python with PyTorch: see `interop/training`.

use std::path::PathBuf;
use std::process::Command;

use candle_core::{DType, Device, Tensor};
use phalanx_candle::gpt::{Gpt, GptOptions};
use phalanx_candle::ops::cross_entropy;
use phalanx_candle::{AdamW, FullyShard, Model, Optimizer, Policy, Single, Strategy};
use phalanx_checkpoint::Checkpoint;
use phalanx_comm::Threads;
use phalanx_core::{Group, ReduceOp};

const OPTIONS: GptOptions = GptOptions { vocabulary: 65, context: 32, width: 48, layers: 3, heads: 4 };
const ROWS: usize = 4;
const STEPS: usize = 20;

/// What PyTorch has written: a file that is removed in the end.
struct Exported(PathBuf);

impl Exported {
    fn new() -> Exported {
        let python = std::env::var("PHALANX_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let name = format!("phalanx-torch-{}-{:016x}.safetensors", std::process::id(), fastrand::u64(..));
        let exported = Exported(std::env::temp_dir().join(name));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/training.py");
        let ended = Command::new(python).arg(script).arg(&exported.0).status().expect("Python");
        assert!(ended.success(), "{ended}");
        exported
    }

    fn open(&self) -> Checkpoint {
        Checkpoint::open(&self.0).expect("a safetensors file")
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn batches(exported: &Exported) -> Vec<Tensor> {
    let width = OPTIONS.context + 1;
    let bytes = exported.open().bytes("batches", 0..STEPS * ROWS * width).expect("batches");
    let ids: Vec<u32> = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes) as u32).collect();
    let batch = |ids: &[u32]| Tensor::from_slice(ids, (ROWS, width), &Device::Cpu).expect("a batch");
    ids.chunks(ROWS * width).map(batch).collect()
}

fn train(exported: &Exported, dtype: DType, strategy: impl Strategy + 'static, group: Option<&Group>) -> Vec<f32> {
    let (rank, world) = group.map_or((0, 1), |group| (group.rank(), group.size()));
    let units = Gpt::new(OPTIONS, dtype, &Device::Cpu).expect("a model").into_units();
    let mut model = Model::new(units, strategy).expect("a model");
    let mut weights = exported.open();
    let load =
        |name: &str, shape: &[usize]| Ok(weights.floats(name, shape, 0..shape.iter().product()).expect("a weight"));
    model.load(load).expect("weights");
    let mut optimizer = AdamW::default();
    let mut step = |batch: &Tensor| {
        let own = batch.narrow(0, rank * ROWS / world, ROWS / world)?;
        let logits = model.forward(&own.narrow(1, 0, OPTIONS.context)?.contiguous()?)?;
        let loss = cross_entropy(&logits, &own.narrow(1, 1, OPTIONS.context)?)?;
        model.backward(&loss)?;
        optimizer.step(&mut model, 3e-4)?;
        model.zero_gradients();
        let mut mean = [loss.to_scalar::<f32>()?];
        group.map_or(Ok(()), |group| group.all_reduce(&mut mean, ReduceOp::Avg))?;
        Ok::<f32, phalanx_candle::Error>(mean[0])
    };
    batches(exported).iter().map(|batch| step(batch).expect("a step")).collect()
}

fn assert_close(losses: &[f32], expected: &[f32], within: f32) {
    for (step, (loss, expected)) in losses.iter().zip(expected).enumerate() {
        assert!((loss - expected).abs() <= within, "step {step}: {loss}, PyTorch has {expected}");
    }
}

#[test]
#[ignore = "needs PyTorch: interop/training"]
fn losses_are_those_of_pytorch() {
    let exported = Exported::new();
    let expected = exported.open().floats("losses", &[STEPS], 0..STEPS).expect("losses");
    assert_close(&train(&exported, DType::F32, Single::new(), None), &expected, 1e-4);
    for (dtype, within) in [(DType::F32, 1e-4), (DType::BF16, 2e-2)] {
        let rank = |group: Group| {
            let strategy = FullyShard::new(group.clone(), Policy::default());
            train(&exported, dtype, strategy, Some(&group))
        };
        let ranks = Threads::new(2).run(rank).expect("a world");
        ranks.iter().for_each(|losses| assert_close(losses, &expected, within));
    }
}
