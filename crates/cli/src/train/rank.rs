//! The process of one rank: it joins the world, makes its steps, and the first of them says how it goes.

use std::io::{self, Write};
use std::time::Duration;

use phalanx::World;
use serde_json::{Value, json};

use super::hold::stopped;
use super::options::{Options, RankStep};
use super::sample::sample;
use super::trainer::Trainer;
use crate::burden::Burden;
use crate::failure::{Failure, printed};

/// One rank, from the meeting to the end.
pub(crate) fn rank(step: &RankStep) -> Result<(), Failure> {
    let options = &step.options;
    let world = phalanx::init()?;
    if world.size() != options.ranks() {
        return Err(Failure::Usage("a training starts its ranks itself".to_owned()));
    }
    let mut trainer = Trainer::new(options, &world)?;
    while !trainer.is_done() {
        let lap = trainer.step()?;
        say(&world, &lap.to_json())?;
    }
    trainer.finish()?;
    let written = sample(&mut trainer, options.sample.into(), options.seed).map_err(stopped)?;
    say(&world, &summary(options, &mut trainer, written)?)?;
    drop(trainer);
    Ok(world.leave(LEFT_WITHIN)?)
}

/// What the run came to, over all ranks.
fn summary(options: &Options, trainer: &mut Trainer<'_>, written: String) -> Result<Value, Failure> {
    let (lasting, passing) = trainer.state_bytes();
    let own = [lasting as u64, passing as u64, Burden::own()?.peak];
    let mut all = vec![0; own.len() * trainer.group().size()];
    trainer.group().all_gather(&own, &mut all)?;
    let each = |which: usize| all.chunks(own.len()).map(|rank| rank[which]).collect::<Vec<u64>>();
    let most = |which: usize| each(which).into_iter().max();
    Ok(json!({
        "params": trainer.sizes().parameters(),
        "ranks": options.ranks(),
        "state_bytes_per_rank": most(0),
        "passing_bytes_per_rank": most(1),
        "peak_rss_bytes": most(2),
        "peak_rss_bytes_by_rank": each(2),
        "sample": written,
    }))
}

fn say(world: &World, what: &Value) -> Result<(), Failure> {
    match world.rank() {
        0 => printed(writeln!(io::stdout().lock(), "{what}")),
        _ => Ok(()),
    }
}

/// The others may be a step behind.
const LEFT_WITHIN: Duration = Duration::from_secs(10);
