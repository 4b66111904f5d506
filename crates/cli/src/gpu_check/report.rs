//! What is told in the end: a table for people, or one object for programs.

use std::fmt::Write as _;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::find::{Found, Library};
use super::world::{Ended, State, World};

/// All that was found and tried.
#[derive(Debug)]
pub(super) struct Report<'a> {
    found: &'a Found,
    worlds: Vec<(usize, String, Vec<Ended>)>,
}

impl<'a> Report<'a> {
    pub(super) fn new(found: &'a Found) -> Report<'a> {
        Report { found, worlds: Vec::new() }
    }

    pub(super) fn add(&mut self, world: &World, trials: Vec<Ended>) {
        self.worlds.push((world.cards.len(), world.how.clone(), trials));
    }

    /// Whether nothing was tried.
    pub(super) fn is_empty(&self) -> bool {
        self.worlds.is_empty()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.worlds.iter().flat_map(|(_, _, trials)| trials).any(|trial| trial.state == State::Failed)
    }

    pub(super) fn print(&self, as_json: bool) -> io::Result<()> {
        let text = if as_json { self.to_json().to_string() } else { self.table() };
        writeln!(io::stdout().lock(), "{text}")
    }

    /// What could not be tried here.
    fn not_tested(&self) -> Vec<String> {
        if self.is_empty() {
            let lacks = |library: &&Library| library.found.is_err() && library.name != "NVRTC";
            let lacking: Vec<&str> = self.found.libraries.iter().filter(lacks).map(|library| library.name).collect();
            let why = if lacking.is_empty() { "card of this number".to_owned() } else { lacking.join(" and no ") };
            return vec![format!("every trial: there is no {why}")];
        }
        let mut list: Vec<String> = Vec::new();
        for (_, how, trials) in &self.worlds {
            let skipped = trials.iter().filter(|trial| trial.state == State::Skipped);
            list.extend(skipped.map(|trial| {
                format!("{}, {how}: {}", trial.name, trial.why.as_deref().unwrap_or("no reason was told"))
            }));
        }
        if self.found.version().is_none() {
            list.push("everything over NCCL: there is none".to_owned());
        }
        if self.found.cards.len() < 2 {
            list.push("NVLink and several cards: there is one".to_owned());
        }
        list.push("networks between hosts: this is one".to_owned());
        list.push("ranks that are killed or stopped: nobody does that here".to_owned());
        list
    }

    fn to_json(&self) -> Value {
        let library = |library: &Library| match &library.found {
            Ok((version, path)) => {
                json!({ "name": library.name, "version": version, "path": path, "missing": library.missing, "why": null })
            }
            Err(why) => json!({ "name": library.name, "version": null, "path": null, "missing": [], "why": why }),
        };
        let cards = self.found.cards.iter().map(
            |card| json!({ "name": card.name, "capability": card.capability, "bus": card.bus, "bytes": card.bytes }),
        );
        let trial = |trial: &Ended| json!({ "name": trial.name, "state": trial.state.name(), "why": trial.why, "seconds": trial.seconds });
        let worlds = self.worlds.iter().map(|(size, how, trials)| {
            json!({ "size": size, "how": how, "trials": trials.iter().map(trial).collect::<Vec<_>>() })
        });
        json!({
            "libraries": self.found.libraries.iter().map(library).collect::<Vec<_>>(),
            "cards": cards.collect::<Vec<_>>(),
            "worlds": worlds.collect::<Vec<_>>(),
            "not_tested": self.not_tested(),
        })
    }

    fn table(&self) -> String {
        let mut text = String::new();
        for Library { name, found, missing } in &self.found.libraries {
            let _ = match found {
                Ok((version, path)) => writeln!(text, "{name:<14}{version}, {path}"),
                Err(why) => writeln!(text, "{name:<14}none: {why}"),
            };
            if !missing.is_empty() {
                let _ = writeln!(text, "{:14}lacks {}", "", missing.join(", "));
            }
        }
        for (number, card) in self.found.cards.iter().enumerate() {
            let name = format!("card {number}");
            let size = card.bytes as f64 / (1_u64 << 30) as f64;
            let _ = writeln!(text, "{name:<14}{}, {}, {size:.0} GiB, {}", card.name, card.capability, card.bus);
        }
        for (_, how, trials) in &self.worlds {
            let _ = writeln!(text, "\n{how}");
            for Ended { name, state, why, seconds } in trials {
                let why = why.as_ref().map(|why| format!("  {why}")).unwrap_or_default();
                let _ = writeln!(text, "  {:<9}{name:<22}{seconds:>7.2} s{why}", state.name());
            }
        }
        let _ = write!(text, "\nnot tested");
        for reason in self.not_tested() {
            let _ = write!(text, "\n  {reason}");
        }
        text
    }
}
