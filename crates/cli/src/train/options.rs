//! The flags of `phalanx train`, and what they may be together.

use std::path::PathBuf;

use candle_core::DType;
use clap::{Args, ValueEnum};
use phalanx_candle::Schedule;
use phalanx_candle::gpt::GptOptions;
use phalanx_checkpoint::Checkpoint;

use crate::failure::Failure;

/// Train a small GPT on a text with several ranks, each of which holds its part of it
///
/// Ranks are processes of this machine, one thread each unless RAYON_NUM_THREADS says otherwise. With --save they are started again after
/// one of them was lost, and go on from the last checkpoint as if nothing had happened.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER, args_override_self = true)]
pub(crate) struct Options {
    /// Sizes of model and batch: tiny has 0.8 million parameters, baby 10.7
    #[arg(long, value_name = "NAME", value_enum, default_value = "tiny")]
    preset: Preset,

    /// Number of blocks, in place of the preset's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    layers: Option<u16>,

    /// Number of attention heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    heads: Option<u16>,

    /// Numbers a position has between blocks, a multiple of the heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32768))]
    width: Option<u16>,

    /// Characters that are looked back at
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32768))]
    context: Option<u16>,

    /// Rows of text each rank takes at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    batch: Option<u16>,

    /// How often each rank does that before a step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) accumulate: u16,

    /// Text to learn, in place of the book of Genesis
    #[arg(long, value_name = "FILE")]
    pub(super) text: Option<PathBuf>,

    /// Number of ranks; 2, or 1 with --mode single
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    np: Option<u16>,

    /// How the model is held by the ranks
    #[arg(long, value_name = "MODE", value_enum, default_value = "fsdp")]
    pub(super) mode: Mode,

    /// Type that is computed in; what ranks keep is f32
    #[arg(long, value_name = "TYPE", value_enum, default_value = "f32")]
    dtype: Compute,

    /// Steps to train
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) steps: u64,

    /// Highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 1e-3, value_parser = rate, allow_negative_numbers = true)]
    rate: f64,

    /// What initial weights and the order of the text follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Run each block again in backward rather than keep what it has computed
    #[arg(long)]
    pub(super) recompute: bool,

    /// Save checkpoints into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) save: Option<PathBuf>,

    /// Steps from one checkpoint to the next
    #[arg(long, value_name = "N", default_value_t = 100, requires = "save", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) save_every: u64,

    /// With --save, start the ranks again after a failure, at most this often
    #[arg(long, value_name = "K", default_value_t = 3, requires = "save")]
    max_restarts: u32,

    /// Go on from the newest checkpoint in this directory, from that of one step (DIR/step-000000000200), or from one safetensors file
    #[arg(long, value_name = "DIR")]
    pub(super) resume: Option<PathBuf>,

    /// Characters to write in the end
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u16).range(0..=10_000), allow_negative_numbers = true)]
    pub(super) sample: u16,

    /// Also draw the loss over the steps into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,

    /// Print one JSON object a step and one in the end
    #[arg(long)]
    pub(super) json: bool,
}

/// What a rank is told: the flags that the user gave.
#[derive(Args, Debug)]
pub(crate) struct RankStep {
    #[command(flatten)]
    pub(super) options: Options,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Preset {
    /// 4 layers, 4 heads, 128 wide, context 64, batch 12
    Tiny,
    /// 6 layers, 6 heads, 384 wide, context 128, batch 4
    Baby,
}

/// How the model is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Each rank holds its part
    Fsdp,
    /// Two replicas, each held by half of the ranks
    Hsdp,
    /// Each rank holds everything
    Ddp,
    /// One rank
    Single,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Compute {
    F32,
    Bf16,
}

impl Options {
    /// Refuses what makes no sense together, before anything is started.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::Usage(why));
        match (self.mode, self.ranks()) {
            (Mode::Single, ranks) if ranks != 1 => return refuse(format!("--np {ranks}: --mode single is one rank")),
            (Mode::Hsdp, ranks) if ranks % 2 != 0 => {
                return refuse(format!("--np {ranks}: --mode hsdp needs an even number of ranks"));
            }
            _ => {}
        }
        self.sizes(1).check().map_err(|error| Failure::Usage(error.to_string()))?;
        if let (Some(save), resume) = (&self.save, &self.resume) {
            let held = Checkpoint::latest(save).map_err(|error| Failure::Stopped(error.to_string()))?;
            if let Some(held) = held.filter(|_| resume.as_ref() != Some(save)) {
                let (place, step) = (save.display(), held.step());
                return refuse(format!("--save {place}: it holds step {step} already; go on with --resume {place}"));
            }
        }
        Ok(())
    }

    pub(super) fn ranks(&self) -> usize {
        self.np.map_or(if self.mode == Mode::Single { 1 } else { 2 }, usize::from)
    }

    /// How often ranks are started again: where there is nothing to go on from, not at all.
    pub(super) fn restarts(&self) -> u32 {
        if self.save.is_some() { self.max_restarts } else { 0 }
    }

    pub(super) fn sizes(&self, vocabulary: usize) -> GptOptions {
        let [layers, heads, width, context] = match self.preset {
            Preset::Tiny => [4, 4, 128, 64],
            Preset::Baby => [6, 6, 384, 128],
        };
        let or = |given: Option<u16>, preset: usize| given.map_or(preset, usize::from);
        GptOptions {
            vocabulary,
            context: or(self.context, context),
            width: or(self.width, width),
            layers: or(self.layers, layers),
            heads: or(self.heads, heads),
        }
    }

    pub(super) fn rows(&self) -> usize {
        let preset = match self.preset {
            Preset::Tiny => 12,
            Preset::Baby => 4,
        };
        self.batch.map_or(preset, usize::from)
    }

    pub(super) fn dtype(&self) -> DType {
        match self.dtype {
            Compute::F32 => DType::F32,
            Compute::Bf16 => DType::BF16,
        }
    }

    /// The rate follows from the step alone, not from how many there are to be: a run that is extended stays the same run.
    pub(super) fn schedule(&self) -> Schedule {
        Schedule { peak: self.rate, least: self.rate / 10.0, warmup: 20, steps: 5000 }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.0..=1.0).contains(rate));
    rate.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

const AFTER: &str = "\
Examples:
  phalanx train                                     2 ranks, a small model, two minutes
  phalanx train --mode single                       the same model by one rank
  phalanx train --np 4 --mode hsdp --dtype bf16     two replicas of two ranks each, computing in 16 bits
  phalanx train --preset baby --steps 2000          a larger model
  phalanx train --save DIR --save-every 20          checkpoints; ranks that are lost are started again
  phalanx train --save DIR --resume DIR             goes on where that ended, with as many ranks as there are now
  phalanx train --text FILE --plot loss.svg         another text, and a picture
  phalanx train --json                              for another program to read

Losses are means over all ranks, in nats a character. The rows of a step follow from --seed and the step, so a run that was interrupted
has the losses of one that was not.

Each line of --json has the keys step, loss, tokens_per_s, and of the first rank comm_wait_ms, step_ms and memory_bytes.
The last has params, state_bytes_per_rank (parameters, gradients, optimizer), passing_bytes_per_rank (the most that full parameters and
gradients on their way took besides), peak_rss_bytes (the most of any rank), peak_rss_bytes_by_rank, and sample.";
