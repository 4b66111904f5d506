//! `phalanx simulate`: worlds with faults from seeds, and whether planted bugs would be found.

mod report;

use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use phalanx_sim::{Mutation, Tally, campaign};

use crate::failure::{Failure, printed};
use report::Outcome;

/// Play worlds with delays, cuts, flipped bytes and killed ranks from seeds, and count wrong answers and hangs
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// How many seeds to play
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "seed", value_parser = seeds, allow_negative_numbers = true)]
    seeds: u64,

    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with = "seed", value_parser = seed, allow_negative_numbers = true)]
    first_seed: u64,

    /// Play this one seed and tell what happened in it
    #[arg(long, value_name = "SEED", value_parser = seed, allow_negative_numbers = true)]
    seed: Option<u64>,

    /// Plant a bug in every seed that has a place for it, or each bug of the list in turn with `all`, until it is found
    #[arg(long, value_name = "BUG", value_parser = mutations())]
    mutate: Option<Mutations>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The planted bugs of one run.
type Mutations = Vec<Mutation>;

/// Plays the seeds and prints what they came to.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mutations = options.mutate.as_deref().unwrap_or_default();
    if let Some(seed) = options.seed {
        if mutations.len() > 1 {
            return Err(Failure::Usage("--seed plays one planted bug: name it instead of 'all'".to_owned()));
        }
        let report = phalanx_sim::run(seed, mutations.first().copied());
        printed(report::story(&report, options.json))?;
        // A planted bug that shows is what was asked for.
        return found(report.is_bug_of_ours());
    }
    if mutations.is_empty() { options.play() } else { options.hunt(mutations) }
}

impl Options {
    /// Plays all seeds: every violation is a bug of ours.
    fn play(&self) -> Result<(), Failure> {
        let outcome = self.campaign(None);
        printed(report::tally(&outcome, self.json))?;
        found(!outcome.tally.violations().is_empty())
    }

    /// Plays seeds with each planted bug until it shows: a bug that does not show is a hole in the simulator, and what shows in a seed
    /// that has no place for it is a bug of ours.
    fn hunt(&self, mutations: &[Mutation]) -> Result<(), Failure> {
        let mut failed = false;
        for &mutation in mutations {
            let outcome = self.campaign(Some(mutation));
            failed |= outcome.tally.caught().is_empty() || !outcome.tally.violations().is_empty();
            printed(report::catch(mutation, &outcome, self.json))?;
        }
        found(failed)
    }

    fn campaign(&self, mutation: Option<Mutation>) -> Outcome {
        let options = phalanx_sim::Options::default()
            .first_seed(self.first_seed)
            .seeds(self.seeds)
            .mutation(mutation)
            .until_caught(mutation.is_some());
        let progress = progress_bar(self.seeds, mutation);
        let began = Instant::now();
        let tally: Tally = campaign(&options, |tally| progress.set_position(tally.seeds()));
        let elapsed: Duration = began.elapsed();
        progress.finish_and_clear();
        Outcome { tally, elapsed }
    }
}

fn found(anything: bool) -> Result<(), Failure> {
    if anything { Err(Failure::Found) } else { Ok(()) }
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "must be a whole number".to_owned())
}

fn seeds(text: &str) -> Result<u64, String> {
    seed(text).ok().filter(|seeds| *seeds > 0).ok_or_else(|| "must be a whole number, at least 1".to_owned())
}

/// The names of the planted bugs, each with what it does, and `all`.
fn mutations() -> impl TypedValueParser<Value = Mutations> {
    let named = Mutation::ALL.iter().map(|bug| PossibleValue::new(bug.name()).help(bug.summary()));
    let names = named.chain([PossibleValue::new("all").help("each of them in turn")]);
    PossibleValuesParser::new(names)
        .map(|name| Mutation::ALL.into_iter().filter(|bug| name == "all" || bug.name() == name).collect())
}

/// Shown on a terminal only, and gone at the end.
fn progress_bar(seeds: u64, mutation: Option<Mutation>) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} seeds {msg}");
    let bar = ProgressBar::new(seeds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(mutation.map_or(String::new(), |mutation| format!("with {mutation}")))
}

const EXAMPLES: &str = "\
Examples:
  phalanx simulate --seeds 10000               ten thousand worlds, half of them with a fault
  phalanx simulate --seed 123                  what happens in one of them
  phalanx simulate --mutate all                would each planted bug be found?
  phalanx simulate --mutate double_fold        one planted bug";
