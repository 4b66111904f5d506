//! One rank's steps: its rows forward and backward, the optimizer, checkpoints.

use std::time::{Duration, Instant};

use phalanx::{Group, ReduceOp, World};
use phalanx_candle::gpt::GptOptions;
use phalanx_candle::ops::cross_entropy;
use phalanx_candle::{AdamW, Model, Optimizer};
use phalanx_checkpoint::Saver;
use phalanx_comm::Wiring;

use super::corpus::Corpus;
use super::hold::{self, stopped};
use super::laps::Lap;
use super::options::Options;
use super::saving;
use crate::burden::Burden;
use crate::failure::Failure;

/// A rank at work.
pub(super) struct Trainer<'a> {
    options: &'a Options,
    corpus: Corpus,
    sizes: GptOptions,
    all: Group,
    model: Model,
    optimizer: AdamW,
    saver: Option<Saver>,
    step: u64,
}

impl<'a> Trainer<'a> {
    /// Gets ready for the step after the last checkpoint, or for the first.
    pub(super) fn new(options: &'a Options, world: &World) -> Result<Trainer<'a>, Failure> {
        let corpus = Corpus::read(options.text.as_deref())?;
        let sizes = options.sizes(corpus.vocabulary());
        corpus.check(sizes.context)?;
        let all = world.group()?;
        let mut model = hold::model(options, sizes, world, &all)?;
        let mut optimizer = AdamW::default().betas(0.9, 0.99).decay(0.1);
        let step = saving::resume(options, &corpus, &all, &mut model, &mut optimizer)?;
        let saver = options.save.as_ref().map(|place| {
            let group = world.wire(&Wiring::default().named("checkpoint"))?;
            Ok::<_, Failure>(Saver::new(place).group(group))
        });
        Ok(Trainer { options, corpus, sizes, all, model, optimizer, saver: saver.transpose()?, step })
    }

    /// Whether all steps have been made.
    pub(super) fn is_done(&self) -> bool {
        self.step >= self.options.steps
    }

    /// Makes a step.
    pub(super) fn step(&mut self) -> Result<Lap, Failure> {
        let (began, waited) = (Instant::now(), self.model.waited());
        let loss = self.learn().map_err(stopped)?;
        self.model.clip(1.0).map_err(stopped)?;
        self.optimizer.step(&mut self.model, self.options.schedule().rate(self.step)).map_err(stopped)?;
        self.model.zero_gradients();
        self.step += 1;
        let (loss, waited) = self.mean(loss, self.model.waited().saturating_sub(waited))?;
        let took = began.elapsed().as_secs_f64();
        let tokens = self.all.size() * self.rows() * usize::from(self.options.accumulate) * self.sizes.context;
        self.save()?;
        Ok(Lap {
            step: self.step,
            loss,
            tokens_per_s: tokens as f64 / took,
            comm_wait_ms: waited.as_secs_f64() * 1e3,
            step_ms: took * 1e3,
            memory_bytes: Burden::own()?.resident,
        })
    }

    /// Waits for the last checkpoint.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.saver.as_mut().map_or(Ok(()), Saver::finish).map_err(stopped)
    }

    pub(super) fn model(&mut self) -> &mut Model {
        &mut self.model
    }

    pub(super) fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    pub(super) fn group(&self) -> &Group {
        &self.all
    }

    pub(super) fn sizes(&self) -> GptOptions {
        self.sizes
    }

    /// Bytes of parameters, gradients and optimizer state on this rank, and of what passed through at most.
    pub(super) fn state_bytes(&mut self) -> (usize, usize) {
        let held = self.model.held();
        let remembered = self.optimizer.state(&self.model).into_iter().flat_map(|(_, values)| values);
        (held.lasting + remembered.map(|values| size_of_val(values)).sum::<usize>(), held.passing_peak)
    }

    /// Runs this rank's rows forward and backward; their mean loss.
    fn learn(&mut self) -> phalanx_candle::Result<f64> {
        let turns = usize::from(self.options.accumulate);
        let mut mean = 0.0;
        for turn in 0..turns {
            let first = (turn * self.all.size() + self.all.rank()) * self.rows();
            let rows = first..first + self.rows();
            let (seen, next) = self.corpus.rows(self.options.seed, self.step, rows, self.sizes.context)?;
            self.model.set_sync(turn + 1 == turns);
            let logits = self.model.forward(&seen)?;
            let loss = (cross_entropy(&logits, &next)? / turns as f64)?;
            mean += f64::from(loss.to_scalar::<f32>()?);
            self.model.backward(&loss)?;
        }
        Ok(mean)
    }

    /// The mean loss of all ranks, and how long this one has waited, for that as well.
    fn mean(&self, loss: f64, waited: Duration) -> Result<(f64, Duration), Failure> {
        let began = Instant::now();
        let mut mean = [loss];
        self.all.all_reduce(&mut mean, ReduceOp::Avg)?;
        Ok((mean[0], waited + began.elapsed()))
    }

    /// Begins a checkpoint where one is due.
    fn save(&mut self) -> Result<(), Failure> {
        let is_due = self.step.is_multiple_of(self.options.save_every) || self.is_done();
        let Some(saver) = self.saver.as_mut().filter(|_| is_due) else { return Ok(()) };
        let pieces = saving::pieces(&self.model, &mut self.optimizer)?;
        let progress = saving::progress(self.options, &self.corpus, &self.optimizer);
        saver.save(self.step, pieces, progress).map_err(stopped)
    }

    fn rows(&self) -> usize {
        self.options.rows()
    }
}
