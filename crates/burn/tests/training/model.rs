//! The model of the tests: an embedding, two blocks, an output layer that is the embedding. No length is divisible by every world's size.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::activation::{gelu, log_softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};

/// One block: its layers as burn has them.
#[derive(Module, Debug)]
pub(crate) struct Block {
    norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
    /// It is used twice.
    gate: Linear,
}

/// What several units are, and what one rank trains with burn alone.
#[derive(Module, Debug)]
pub(crate) struct Whole {
    pub(crate) embedding: Embedding,
    pub(crate) blocks: Vec<Block>,
}

pub(crate) const VOCABULARY: usize = 11;
const WIDTH: usize = 7;

impl Block {
    fn new(device: &Device) -> Block {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Block {
            norm: LayerNormConfig::new(WIDTH).init(device),
            wide: linear(WIDTH, 3 * WIDTH),
            narrow: linear(3 * WIDTH, WIDTH),
            gate: linear(WIDTH, WIDTH),
        }
    }

    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let inner = self.narrow.forward(gelu(self.wide.forward(self.norm.forward(x.clone()))));
        x + self.gate.forward(self.gate.forward(inner).tanh())
    }
}

impl Whole {
    /// The same on every rank: values follow from names.
    pub(crate) fn new(device: &Device) -> Whole {
        let embedding = EmbeddingConfig::new(VOCABULARY, WIDTH).init(device);
        settled(Whole { embedding, blocks: (0..2).map(|_| Block::new(device)).collect() })
    }

    pub(crate) fn loss(&self, ids: Tensor<2, Int>, targets: Tensor<1, Int>) -> Tensor<1> {
        let x = embed(&self.embedding, ids);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        loss(scores(&self.embedding, x), targets)
    }
}

/// The mean of the ids' rows.
pub(crate) fn embed(embedding: &Embedding, ids: Tensor<2, Int>) -> Tensor<2> {
    embedding.forward(ids).mean_dim(1).squeeze_dim(1)
}

/// A score for each id: the embedding once more.
pub(crate) fn scores(embedding: &Embedding, x: Tensor<2>) -> Tensor<2> {
    x.matmul(embedding.weight.val().transpose())
}

pub(crate) fn loss(scores: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let [rows, _] = scores.dims();
    let logs = log_softmax(scores, 1);
    logs.gather(1, targets.reshape([rows, 1])).mean().neg()
}

/// The rows of a step that a rank computes.
pub(crate) fn batch(step: usize, rank: usize, ranks: usize, device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let rows = ROWS / ranks;
    let id = |row: usize, at: usize| ((step * 31 + row * 7 + at * 5 + row * at) % VOCABULARY) as i64;
    let own = rank * rows..(rank + 1) * rows;
    let ids: Vec<i64> = own.clone().flat_map(|row| (0..3).map(move |at| id(row, at))).collect();
    let targets: Vec<i64> = own.map(|row| id(row, 0)).collect();
    (
        Tensor::from_data(TensorData::new(ids, [rows, 3]), device),
        Tensor::from_data(TensorData::new(targets, [rows]), device),
    )
}

/// Rows of a step of all ranks.
pub(crate) const ROWS: usize = 24;

pub(crate) fn device() -> Device {
    Device::flex().autodiff()
}

/// Gives each parameter values that follow from its place.
fn settled(whole: Whole) -> Whole {
    struct Settle(usize);
    impl ModuleMapper for Settle {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            self.0 += 1;
            let (seed, shape) = (self.0, param.dims());
            let len: usize = shape.iter().product();
            let values = (0..len).map(|at| ((seed * 53 + at * 37) % 101) as f32 / 101.0 - 0.45).collect::<Vec<_>>();
            let device = param.lazy_device();
            param.map(|_| Tensor::from_data(TensorData::new(values, shape), &device).require_grad())
        }
    }
    whole.map(&mut Settle(0))
}
