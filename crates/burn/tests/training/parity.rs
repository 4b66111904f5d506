//! Sharded training comes to the losses and parameters of training alone.

use std::thread;

use burn::tensor::Tensor;
use burn_optim::{AdamWConfig, GradientsAccumulator, GradientsParams};
use phalanx_burn::{FullyShard, Groups, Policy, Reshard, Unit, Units};
use phalanx_comm::Threads;
use phalanx_core::{DType, Group};

use crate::model::{Block, Whole, batch, device, embed, loss, scores};

const STEPS: usize = 12;
const RATE: f64 = 1e-2;

/// What training came to: the losses of all steps, and the parameters in the end.
type End = (Vec<f32>, Vec<Vec<f32>>);

/// One rank, with burn alone. Each step has so many micro-batches.
fn alone(micros: usize) -> End {
    let (mut model, mut optimizer) = (Whole::new(&device()), AdamWConfig::new().init());
    let mut losses = vec![];
    for step in 0..STEPS {
        let (mut gradients, mut sum) = (GradientsAccumulator::new(), 0.0);
        for micro in 0..micros {
            let (ids, targets) = batch(step, micro, micros, &device());
            let loss = model.loss(ids, targets).div_scalar(micros as f32);
            gradients.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
            sum += loss.into_scalar::<f32>();
        }
        model = optimizer.step(RATE, model, gradients.grads());
        losses.push(sum);
    }
    (losses, values(&model.embedding, &model.blocks))
}

fn values(embedding: &burn_nn::Embedding, blocks: &[Block]) -> Vec<Vec<f32>> {
    #[derive(Default)]
    struct Collect(Vec<Vec<f32>>);
    impl burn::module::ModuleVisitor for Collect {
        fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<D>>) {
            self.0.push(param.to_data().try_to_vec::<f32>().expect("floats"));
        }
    }
    use burn::module::Module;
    let mut collect = Collect::default();
    embedding.visit(&mut collect);
    blocks.iter().for_each(|block| block.visit(&mut collect));
    collect.0
}

pub(crate) struct Sharded {
    pub(crate) model: FullyShard,
    pub(crate) embedding: Unit<burn_nn::Embedding>,
    pub(crate) blocks: Vec<Unit<Block>>,
}

impl Sharded {
    pub(crate) fn new(groups: impl Into<Groups>, policy: Policy) -> phalanx_core::Result<Sharded> {
        let (Whole { embedding, blocks, .. }, mut units) = (Whole::new(&device()), Units::new());
        let embedding = units.add("embedding", embedding);
        let named = |(at, block)| units.add(format!("block {at}"), block);
        let blocks = blocks.into_iter().enumerate().map(named).collect();
        Ok(Sharded { model: FullyShard::new(groups, policy, units)?, embedding, blocks })
    }

    /// A forward and a backward; the loss.
    pub(crate) fn pass(&mut self, step: usize, part: usize, parts: usize, share: f32) -> phalanx_core::Result<f32> {
        let Sharded { model, embedding, blocks } = self;
        let (ids, targets) = batch(step, part, parts, &device());
        let mut x = model.run(*embedding, ids, embed)?;
        for block in blocks {
            x = model.run(*block, x, Block::forward)?;
        }
        let loss = loss(model.run(*embedding, x, scores)?, targets).mul_scalar(share);
        model.backward(&loss)?;
        Ok(loss.into_scalar::<f32>())
    }

    fn end(&mut self, losses: Vec<f32>) -> phalanx_core::Result<End> {
        let embedding = self.model.module(self.embedding)?;
        let blocks =
            self.blocks.iter().map(|block| self.model.module(*block)).collect::<phalanx_core::Result<Vec<_>>>()?;
        Ok((losses, values(&embedding, &blocks)))
    }
}

/// So many ranks, each step in so many micro-batches, of which all but the last wait where they may.
fn together(groups: Groups, policy: Policy, (micros, waits): (usize, bool)) -> phalanx_core::Result<End> {
    let all = groups.data_parallel_size();
    let at = groups.replicas().map_or(0, Group::rank) * groups.shard().size() + groups.shard().rank();
    let (mut sharded, mut optimizer) = (Sharded::new(groups, policy)?, AdamWConfig::new().init());
    let mut losses = vec![];
    for step in 0..STEPS {
        let mut sum = 0.0;
        for micro in 0..micros {
            sharded.model.set_sync(!waits || micro + 1 == micros);
            sum += sharded.pass(step, micro * all + at, micros * all, 1.0 / micros as f32)?;
        }
        sharded.model.step(&mut optimizer, RATE)?;
        losses.push(sum);
    }
    sharded.end(losses)
}

/// That ranks came to what one alone comes to.
#[track_caller]
fn assert_equal(ends: &[phalanx_core::Result<End>], alone: &End, most: f32) {
    let ends: Vec<&End> = ends.iter().map(|end| end.as_ref().expect("no error")).collect();
    for (step, expected) in alone.0.iter().enumerate() {
        let mean = ends.iter().map(|(losses, _)| losses[step]).sum::<f32>() / ends.len() as f32;
        assert!((mean - expected).abs() <= most * expected.abs(), "step {step}: {mean}, not {expected}");
    }
    for (_, params) in &ends {
        assert_eq!(params, &ends[0].1, "ranks have other parameters");
        for (at, (values, expected)) in params.iter().zip(&alone.1).enumerate() {
            let far = values.iter().zip(expected).map(|(value, expected)| (value - expected).abs()).fold(0.0, f32::max);
            assert!(values.len() == expected.len() && far < 40.0 * most, "parameter {at} is {far} away");
        }
    }
}

fn run(world: usize, policy: &Policy, micros: (usize, bool)) -> Vec<phalanx_core::Result<End>> {
    Threads::new(world).run(|group| together(group.into(), policy.clone(), micros)).expect("a world")
}

#[test]
fn every_world_comes_to_the_losses_of_one_rank() {
    let alone = alone(1);
    assert!(alone.0[STEPS - 1] < 0.9 * alone.0[0], "it learns: {:?}", alone.0);
    for world in [1, 2, 3, 4, 8] {
        for reshard in [Reshard::Yes, Reshard::No] {
            assert_equal(&run(world, &Policy::default().reshard_after_forward(reshard), (1, false)), &alone, 1e-4);
        }
    }
}

#[test]
fn micro_batches_add_up() {
    for world in [1, 2, 4] {
        for waits in [false, true] {
            assert_equal(&run(world, &Policy::default(), (3, waits)), &alone(3), 1e-4);
        }
    }
}

/// Runs four ranks, of which two share a model each, with their groups.
pub(crate) fn of_two_replicas<R: Send>(rank: impl Fn(Groups) -> R + Sync) -> [R; 4] {
    let pairs = || (0..2).map(|_| Threads::new(2).groups().expect("a world")).collect::<Vec<_>>();
    let (shards, replicas) = (pairs(), pairs());
    // Ranks of one replica share a model, and those of one number have the same part of it.
    let groups = |replica: usize, shard: usize| {
        Groups::new(shards[replica][shard].clone()).replicate(replicas[shard][replica].clone())
    };
    let (all, rank) = ([groups(0, 0), groups(0, 1), groups(1, 0), groups(1, 1)], &rank);
    thread::scope(|scope| {
        let ranks = all.map(|groups| scope.spawn(move || rank(groups)));
        ranks.map(|rank| rank.join().expect("no panic"))
    })
}

#[test]
fn replicas_of_a_sharded_model_come_to_the_same() {
    let ends = of_two_replicas(|groups| together(groups, Policy::default(), (1, false)));
    assert_equal(&ends, &alone(1), 1e-4);
}

#[test]
fn sixteen_bits_are_close() {
    let ends = run(2, &Policy::default().compute(DType::BF16), (1, false));
    let alone = alone(1);
    let last = |losses: &[f32]| losses[STEPS - 1];
    let mean = ends.iter().map(|end| last(&end.as_ref().expect("no error").0)).sum::<f32>() / 2.0;
    assert!((mean - last(&alone.0)).abs() < 0.1 * last(&alone.0), "{mean}, not {}", last(&alone.0));
}
