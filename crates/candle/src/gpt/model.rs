//! A small GPT, as units: an embedding, blocks, a head. No biases, exact GELU, layer norm before attention and before the two layers
//! that follow it.

use candle_core::{D, DType, Device, Module, Result, Tensor, Var};

use super::GptOptions;
use crate::ops::{causal_softmax, gelu, layer_norm, linear};
use crate::unit::Unit;

/// A GPT of plain modules, which runs as it is or [unit by unit](Gpt::into_units).
#[derive(Debug)]
pub struct Gpt {
    embedding: Embedding,
    blocks: Vec<Block>,
    head: Head,
}

#[derive(Debug)]
struct Embedding {
    tokens: Var,
    positions: Var,
}

#[derive(Debug)]
struct Block {
    heads: usize,
    before_attention: Var,
    query_key_value: Var,
    project: Var,
    before_layers: Var,
    widen: Var,
    narrow: Var,
}

#[derive(Debug)]
struct Head {
    norm: Var,
    project: Var,
}

impl Gpt {
    /// A GPT whose parameters are all zero, in the type in which it computes: `f32` or `bf16`. See [`initial`](super::initial).
    ///
    /// # Errors
    ///
    /// [`Error::Usage`](crate::Error::Usage) for sizes that cannot be.
    pub fn new(options: GptOptions, dtype: DType, device: &Device) -> crate::Result<Gpt> {
        options.check()?;
        let GptOptions { vocabulary, context, width, layers, heads } = options;
        let zeros = |shape: &[usize]| Var::zeros(shape, dtype, device);
        let block = |_| {
            Ok(Block {
                heads,
                before_attention: zeros(&[width])?,
                query_key_value: zeros(&[3 * width, width])?,
                project: zeros(&[width, width])?,
                before_layers: zeros(&[width])?,
                widen: zeros(&[4 * width, width])?,
                narrow: zeros(&[width, 4 * width])?,
            })
        };
        Ok(Gpt {
            embedding: Embedding { tokens: zeros(&[vocabulary, width])?, positions: zeros(&[context, width])? },
            blocks: (0..layers).map(block).collect::<Result<_>>()?,
            head: Head { norm: zeros(&[width])?, project: zeros(&[vocabulary, width])? },
        })
    }

    /// Its parts in the order in which they run, with parameters named as PyTorch would name them.
    pub fn into_units(self) -> Vec<Unit> {
        let Gpt { embedding, blocks, head } = self;
        let mut units = vec![embedding.into_unit()];
        units.extend(blocks.into_iter().enumerate().map(|(at, block)| block.into_unit(at)));
        units.push(head.into_unit());
        units
    }
}

impl Module for Gpt {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.blocks.iter().try_fold(self.embedding.forward(ids)?, |x, block| block.forward(&x))?;
        self.head.forward(&x)
    }
}

impl Embedding {
    fn into_unit(self) -> Unit {
        let (tokens, positions) = (self.tokens.clone(), self.positions.clone());
        Unit::new("embedding", self).parameter("tok.weight", &tokens).parameter("pos.weight", &positions)
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let (rows, positions) = ids.dims2()?;
        let width = self.tokens.dim(1)?;
        let tokens = self.tokens.index_select(&ids.flatten_all()?, 0)?.reshape((rows, positions, width))?;
        tokens.broadcast_add(&self.positions.narrow(0, 0, positions)?)
    }
}

impl Block {
    fn into_unit(self, at: usize) -> Unit {
        let named = [
            ("ln1", &self.before_attention),
            ("ln2", &self.before_layers),
            ("qkv", &self.query_key_value),
            ("proj", &self.project),
            ("fc", &self.widen),
            ("out", &self.narrow),
        ];
        let vars = named.map(|(name, var)| (format!("blocks.{at}.{name}.weight"), var.clone()));
        Unit::new(format!("block {at}"), self).parameters(vars)
    }

    fn attention(&self, x: &Tensor) -> Result<Tensor> {
        let (rows, positions, width) = x.dims3()?;
        let share = width / self.heads;
        // One copy brings the three to where the matrix products want them.
        let all = linear(x, &self.query_key_value)?.reshape((rows, positions, 3, self.heads, share))?;
        let all = all.permute((2, 0, 3, 1, 4))?.contiguous()?;
        let [query, key, value] = [all.get(0)?, all.get(1)?, all.get(2)?];
        let scores = query.matmul(&key.transpose(D::Minus2, D::Minus1)?)?;
        let mixed = causal_softmax(&scores, 1.0 / (share as f64).sqrt())?.matmul(&value)?;
        linear(&mixed.transpose(1, 2)?.reshape((rows, positions, width))?, &self.project)
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = (x + self.attention(&layer_norm(x, &self.before_attention, EPSILON)?)?)?;
        let wide = gelu(&linear(&layer_norm(&x, &self.before_layers, EPSILON)?, &self.widen)?)?;
        &x + linear(&wide, &self.narrow)?
    }
}

impl Head {
    fn into_unit(self) -> Unit {
        let (norm, project) = (self.norm.clone(), self.project.clone());
        Unit::new("head", self).parameter("ln.weight", &norm).parameter("head.weight", &project)
    }
}

impl Module for Head {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        linear(&layer_norm(x, &self.norm, EPSILON)?, &self.project)
    }
}

/// PyTorch's.
const EPSILON: f64 = 1e-5;
