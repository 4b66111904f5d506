//! What a checkpoint of a training run holds: this rank's parts of parameters and of what the optimizer remembers, and which run it is.

use std::path::Path;

use phalanx::Group;
use phalanx_candle::{AdamW, Model, Optimizer, Part};
use phalanx_checkpoint::{Checkpoint, Disk, Piece, Progress, SystemDisk};

use super::corpus::Corpus;
use super::hold::stopped;
use super::options::Options;
use crate::failure::{Failure, tell};

/// Copies this rank's pieces. Of what several ranks hold alike, the first brings it.
pub(super) fn pieces(model: &Model, optimizer: &mut AdamW) -> Result<Vec<Piece>, Failure> {
    let parts = model.parts().to_vec();
    let mut pieces = vec![];
    let piece = |name: String, part: &Part, values: &[f32]| {
        let own = if part.is_first { values } else { &[] };
        Piece::floats(name, &part.shape, part.elements.start, own)
    };
    model.look(|at, values| pieces.push(piece(parts[at].name.clone(), &parts[at], values))).map_err(stopped)?;
    for (quantity, values) in optimizer.state(model) {
        let of_part = parts.iter().zip(values).filter(|(part, _)| part.is_trained);
        pieces.extend(of_part.map(|(part, values)| piece(state_name(quantity, &part.name), part, values)));
    }
    Ok(pieces)
}

/// Which run this is, and how far it has come: all that a step follows from besides.
pub(super) fn progress(options: &Options, corpus: &Corpus, optimizer: &AdamW) -> Progress {
    let run = run(options, corpus).map(|(name, _, value)| (name.to_owned(), value));
    run.into_iter().chain([(STEPS.to_owned(), optimizer.steps().to_string())]).collect()
}

/// Which run this is: what a checkpoint calls it, what the command line does, and how it is here.
fn run(options: &Options, corpus: &Corpus) -> [(&'static str, &'static str, String); 7] {
    let sizes = options.sizes(corpus.vocabulary());
    let rows = options.rows() * options.ranks() * usize::from(options.accumulate);
    [
        ("layers", "--layers", sizes.layers.to_string()),
        ("heads", "--heads", sizes.heads.to_string()),
        ("width", "--width", sizes.width.to_string()),
        ("context", "--context", sizes.context.to_string()),
        ("seed", "--seed", options.seed.to_string()),
        ("text_crc32c", "the checksum of --text", corpus.mark()),
        ("rows_a_step", "--batch times --np and --accumulate", rows.to_string()),
    ]
}

/// Takes this rank's part of the newest checkpoint there is to go on from, the same on all ranks; the step to begin with.
pub(super) fn resume(
    options: &Options,
    corpus: &Corpus,
    all: &Group,
    model: &mut Model,
    optimizer: &mut AdamW,
) -> Result<u64, Failure> {
    let Some(mut checkpoint) = found(options, |place| Checkpoint::latest_among(all, place))? else { return Ok(0) };
    for error in checkpoint.passed_over() {
        tell(&format!("a checkpoint after step {} is damaged: {error}", checkpoint.step()));
    }
    check(&checkpoint, options, corpus)?;
    let parts = model.parts().to_vec();
    let mut failed = None;
    let mut load =
        |name: &str, part: &Part, into: &mut [f32]| match checkpoint.floats(name, &part.shape, part.elements.clone()) {
            Ok(values) => into.copy_from_slice(&values),
            Err(error) => failed = failed.take().or(Some(error)),
        };
    model.update(|at, values, _| load(&parts[at].name, &parts[at], values)).map_err(stopped)?;
    for (quantity, values) in optimizer.state(model) {
        let of_part = parts.iter().zip(values).filter(|(part, _)| part.is_trained);
        of_part.for_each(|(part, values)| load(&state_name(quantity, &part.name), part, values));
    }
    if let Some(error) = failed {
        return Err(stopped(error));
    }
    let steps = checkpoint.progress().get(STEPS).and_then(|steps| steps.parse().ok());
    optimizer.resume(steps.unwrap_or(checkpoint.step()));
    Ok(checkpoint.step())
}

/// What was saved by this run, else what it is to go on from.
pub(super) fn newest(options: &Options) -> Result<Option<Checkpoint>, Failure> {
    found(options, Checkpoint::latest)
}

fn found(
    options: &Options,
    latest: impl Fn(&Path) -> phalanx_checkpoint::Result<Option<Checkpoint>>,
) -> Result<Option<Checkpoint>, Failure> {
    let saved = options.save.as_deref().map(&latest).transpose().map_err(stopped)?.flatten();
    match (saved, options.resume.as_deref()) {
        (Some(saved), _) => Ok(Some(saved)),
        (None, Some(place)) if is_one(place) => Checkpoint::open(place).map(Some).map_err(stopped),
        (None, Some(place)) => {
            let found = latest(place).map_err(stopped)?;
            found.map(Some).ok_or_else(|| nothing(place))
        }
        (None, None) => Ok(None),
    }
}

/// Whether it is one checkpoint, by its file or the directory of its step, rather than a place with several.
fn is_one(place: &Path) -> bool {
    place.is_file() || place.join(INDEX).is_file()
}

/// Makes the directory for checkpoints, and tries to write there.
pub(super) fn probe(place: &Path) -> Result<(), Failure> {
    let (disk, file) = (SystemDisk, place.join(format!(".probe.{}", std::process::id())));
    let tried =
        disk.make_lasting_directory(place).and_then(|()| disk.create(&file)).and_then(|()| disk.remove_file(&file));
    tried.map_err(|error| Failure::Stopped(format!("--save {}: cannot be written: {error}", place.display())))
}

fn nothing(place: &Path) -> Failure {
    Failure::Stopped(format!("--resume {}: there is no checkpoint", place.display()))
}

/// That it is of the same run. What it does not say may be anything.
fn check(checkpoint: &Checkpoint, options: &Options, corpus: &Corpus) -> Result<(), Failure> {
    for (name, flag, own) in run(options, corpus) {
        if let Some(saved) = checkpoint.progress().get(name).filter(|saved| **saved != own) {
            let place = checkpoint.path().display();
            return Err(Failure::Stopped(format!("{place}: {flag} was {saved}, is {own}")));
        }
    }
    Ok(())
}

fn state_name(quantity: &str, name: &str) -> String {
    format!("optimizer.{quantity}.{name}")
}

/// Without it there is no checkpoint.
const INDEX: &str = "index.json";
const STEPS: &str = "optimizer_steps";
