//! The launcher proper: it brings up what a job needs, runs epoch after epoch, and tells the verdict.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::iterator::Signals;

use super::Options;
use super::epoch::{self, Events, Outcome};
use super::plan::Plan;
use super::process::{descendants, signals};
use super::scratch::Scratch;
use super::spawn::Recipe;
use super::stores::{self, Addresses};
use super::verdict::{Verdict, judge};
use super::watch::Event;
use crate::failure::{Failure, tell};

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
    // The guard removes it too, should this process not come to it.
    let scratch = Scratch::share(&step.scratch);
    let events = listen(step)?;
    let launcher = Launcher { options: &step.options, events, scratch };
    launcher.run()
}

/// Ties this process to the guard, adopts orphans, and turns signals into events.
fn listen(step: &LaunchStep) -> Result<Events, Failure> {
    let stopped = |what: &str, error: std::io::Error| Failure::Stopped(format!("{what}: {error}"));
    let (sender, receiver) = mpsc::channel();
    let mut signals = Signals::new(signals::watched()).map_err(|error| stopped("signal handlers", error))?;
    let told = sender.clone();
    let forward = move || signals.forever().try_for_each(|signal| told.send(Event::Signal(signal)));
    let thread = thread::Builder::new().name("phalanx-signals".to_owned()).spawn(forward);
    thread.map_err(|error| stopped("signal thread", error))?;
    descendants::adopt().map_err(|error| stopped("child subreaper", error.into()))?;
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| stopped("parent-death signal", error.into()))?;
    let guard = Pid::from_raw(step.guard);
    // A guard that died before the line above sends no signal any more.
    if getppid() != guard {
        return Err(Failure::Stopped("the process that was started is gone".to_owned()));
    }
    Ok(Events { sender, receiver, guard })
}

struct Launcher<'a> {
    options: &'a Options,
    events: Events,
    scratch: Scratch,
}

impl Launcher<'_> {
    fn run(&self) -> Result<(), Failure> {
        let recipe = Recipe::new(self.options, None);
        for epoch in 0.. {
            let plan = self.plan(epoch)?;
            let outcome = epoch::run(&plan, &recipe, &self.events, self.options.grace)?;
            let verdict = judge(&outcome.facts, epoch);
            if let Some(signal) = outcome.interrupt {
                return Err(interrupted(signal, &outcome, verdict.as_ref()));
            }
            let Some(verdict) = verdict else {
                return Ok(());
            };
            if epoch >= self.options.max_restarts {
                tell(&verdict.to_string());
                return Err(Failure::Code(1));
            }
            let left = self.options.max_restarts - epoch;
            tell(&format!(
                "{}; starting again, {left} of {} restarts left",
                verdict.headline, self.options.max_restarts
            ));
        }
        Ok(())
    }

    fn plan(&self, epoch: u32) -> Result<Plan, Failure> {
        let local_ranks = self.options.local_ranks();
        let addresses = Addresses {
            keyed: None,
            key_descriptor: None,
            master_host: "127.0.0.1".to_owned(),
            master_port: stores::free_port()?,
            master_is_ours: false,
        };
        Ok(Plan {
            job: self.options.job(),
            epoch,
            max_restarts: self.options.max_restarts,
            node: self.options.node(),
            nodes: self.options.nodes(),
            local_ranks,
            first_rank: 0,
            ranks: local_ranks,
            addresses,
            join_seconds: self.options.join_timeout.as_secs_f64(),
            insecure: self.options.insecure,
            reports: self.scratch.path().to_owned(),
        })
    }
}

/// Tells how a job ended that somebody has ended, and keeps the exit code for it.
fn interrupted(signal: i32, outcome: &Outcome, verdict: Option<&Verdict>) -> Failure {
    if let Some(verdict) = verdict {
        tell(&verdict.to_string());
    }
    let how = if outcome.was_killed { "were killed" } else { "ended" };
    let (ranks, took) = (outcome.facts.len(), outcome.took);
    tell(&format!("ended by {}: {ranks} ranks {how}, {} s after their start", signals::name(signal), show(took)));
    Failure::Code(signals::exit_code(signal))
}

fn show(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}
