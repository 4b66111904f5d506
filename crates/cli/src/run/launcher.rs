//! The launcher proper: it brings up what a job needs, runs epoch after epoch, and tells the verdict.

use std::path::PathBuf;

use clap::Args;

use super::Options;
use super::company::{Company, Place};
use super::epoch::{self, Outcome};
use super::events::Events;
use super::plan::Plan;
use super::process::signals;
use super::scratch::Scratch;
use super::spawn::Recipe;
use super::stores::{Addresses, Stores};
use super::verdict::Verdict;
use crate::counted::counted;
use crate::failure::{Failure, tell};
use crate::open_files;

/// What the guard tells the launcher, besides the user's own flags.
#[derive(Args, Debug)]
pub(crate) struct LaunchStep {
    /// Process number of the guard
    #[arg(long)]
    guard: i32,

    /// Directory for the reports of ranks
    #[arg(long)]
    scratch: PathBuf,

    #[command(flatten)]
    options: Options,
}

/// Runs the job. Nothing of it is left when this returns.
pub(crate) fn launch(step: &LaunchStep) -> Result<(), Failure> {
    // Before there are threads, which do as this one.
    signals::write_from_behind().map_err(|error| Failure::Stopped(format!("signal mask: {error}")))?;
    let events = Events::listen(step.guard)?;
    // The guard removes it too, should this process not come to it.
    let scratch = Scratch::make(&step.scratch)?;
    Launcher { options: &step.options, guard: step.guard, events, scratch }.run()
}

struct Launcher<'a> {
    options: &'a Options,
    /// Process number of the guard.
    guard: i32,
    events: Events,
    scratch: Scratch,
}

impl Launcher<'_> {
    fn run(&self) -> Result<(), Failure> {
        // Every client of the store takes one, every rank's output two.
        let open_files = open_files::raise();
        let mut stores = Stores::start(self.options, self.guard)?;
        let key = stores.sealed_key()?.map(|key| (key, KEY_DESCRIPTOR));
        let recipe = Recipe::new(self.options, key, open_files);
        let mut epoch = 0;
        while self.run_epoch(epoch, &mut stores, &recipe)? {
            epoch += 1;
        }
        Ok(())
    }

    /// Runs one epoch; whether there is to be another.
    fn run_epoch(&self, epoch: u32, stores: &mut Stores, recipe: &Recipe) -> Result<bool, Failure> {
        self.events.begin(epoch);
        let master = stores.begin(epoch)?;
        let (company, place) = Company::gather(self.options, stores, epoch, master, &self.events)?;
        let plan = self.plan(epoch, stores, place);
        let alarm = |interrupt| company.cry(plan.node, interrupt, &self.events);
        let mut outcome = epoch::run(&plan, recipe, &self.events, self.options.grace, &alarm);
        let judgement = company.judge(self.options, epoch, &mut outcome, &self.events);
        // Nothing starts again without the guard.
        self.events.check_guard()?;
        if let Some(why) = outcome.unable.take() {
            return Err(Failure::Stopped(why));
        }
        if let Some(signal) = outcome.interrupt.signal() {
            return Err(interrupted(signal, &outcome, judgement.verdict.as_ref()));
        }
        match judgement.verdict {
            None => Ok(false),
            Some(verdict) if judgement.again => {
                let (next, all) = (epoch.saturating_add(1), self.options.max_restarts);
                tell(&format!("{}; starting again (restart {next} of {all})", verdict.headline));
                Ok(true)
            }
            Some(verdict) => {
                tell(&verdict.to_string());
                Err(Failure::Code(1))
            }
        }
    }

    fn plan(&self, epoch: u32, stores: &Stores, place: Place) -> Plan {
        Plan {
            job: stores.job().as_str().to_owned(),
            epoch,
            max_restarts: self.options.max_restarts,
            node: self.options.node(),
            nodes: self.options.nodes(),
            local_ranks: self.options.local_ranks(),
            first_rank: place.first_rank,
            ranks: place.ranks,
            addresses: Addresses { keyed: stores.address().to_string(), master: place.master },
            key_descriptor: stores.key().map(|_| KEY_DESCRIPTOR),
            join_seconds: self.options.join_timeout.as_secs_f64(),
            insecure: self.options.insecure,
            reports: self.scratch.path().to_owned(),
        }
    }
}

/// Tells how a job ended that somebody has ended, and keeps the exit code for it.
fn interrupted(signal: i32, outcome: &Outcome, verdict: Option<&Verdict>) -> Failure {
    if let Some(verdict) = verdict {
        tell(&verdict.to_string());
    }
    let how = match (outcome.was_killed, outcome.facts.len()) {
        (true, 1) => "was killed",
        (true, _) => "were killed",
        (false, _) => "ended",
    };
    let (ranks, took) = (counted(outcome.facts.len(), "rank"), outcome.took.as_secs_f64());
    tell(&format!("ended by {}: {ranks} {how}, {took:.3} s after their start", signals::name(signal)));
    Failure::Code(signals::exit_code(signal))
}

/// The number at which every rank finds the job key: high, so that it is in nobody's way.
const KEY_DESCRIPTOR: i32 = 100;
