//! What is told: a table for people, which grows as worlds end, or one object for programs.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::find::{Found, Library};
use super::world::{Ended, State, World};
use crate::failure::{Failure, printed};

/// All that was found and tried.
#[derive(Debug)]
pub(super) struct Report<'a> {
    found: &'a Found,
    worlds: Vec<(usize, String, Vec<Ended>)>,
    is_json: bool,
    /// Where the object is written too.
    output: Option<&'a Path>,
}

impl<'a> Report<'a> {
    pub(super) fn begin(found: &'a Found, is_json: bool, output: Option<&'a Path>) -> Result<Report<'a>, Failure> {
        let report = Report { found, worlds: Vec::new(), is_json, output };
        // A place that cannot be written to is told before anything is tried.
        report.keep("")?;
        if !is_json {
            printed(write!(io::stdout().lock(), "{}", report.head()))?;
        }
        Ok(report)
    }

    pub(super) fn add(&mut self, world: &World, trials: Vec<Ended>) -> Result<(), Failure> {
        if !self.is_json {
            printed(write!(io::stdout().lock(), "{}", rows(&world.how, &trials)))?;
        }
        self.worlds.push((world.cards.len(), world.how.clone(), trials));
        // Whoever ends the program before its end has this.
        self.keep(&format!("{}\n", self.to_json()))
    }

    pub(super) fn end(&self) -> Result<(), Failure> {
        let object = self.to_json().to_string();
        self.keep(&format!("{object}\n"))?;
        printed(writeln!(io::stdout().lock(), "{}", if self.is_json { object } else { self.foot() }))
    }

    /// Whether nothing was tried.
    pub(super) fn is_empty(&self) -> bool {
        self.worlds.is_empty()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.worlds.iter().flat_map(|(_, _, trials)| trials).any(|trial| trial.state == State::Failed)
    }

    fn keep(&self, text: &str) -> Result<(), Failure> {
        let Some(place) = self.output else { return Ok(()) };
        fs::write(place, text).map_err(|error| Failure::Stopped(format!("--output {}: {error}", place.display())))
    }

    /// What could not be tried here.
    fn not_tested(&self) -> Vec<String> {
        if self.is_empty() {
            return vec![format!("every trial: there is no {}", what_all_need(&self.found.libraries))];
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

    /// What was found.
    fn head(&self) -> String {
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
        text
    }

    /// What could not be tried.
    fn foot(&self) -> String {
        self.not_tested().iter().fold("\nnot tested".to_owned(), |text, reason| format!("{text}\n  {reason}"))
    }
}

/// What every trial needs, where nothing was tried: a card, which can only be asked for where there is a driver. Without NCCL there are
/// trials on it all the same.
fn what_all_need(libraries: &[Library]) -> String {
    let lacks = |library: &&Library| library.found.is_err() && library.name != "NVRTC";
    let lacking: Vec<&str> = libraries.iter().filter(lacks).map(|library| library.name).collect();
    match lacking.contains(&"CUDA driver") {
        true => lacking.join(" and no "),
        false => "card of this number".to_owned(),
    }
}

/// What was tried in a world.
fn rows(how: &str, trials: &[Ended]) -> String {
    let mut text = format!("\n{how}\n");
    for Ended { name, state, why, seconds } in trials {
        let why = why.as_ref().map(|why| format!("  {why}")).unwrap_or_default();
        let _ = writeln!(text, "  {:<9}{name:<22}{seconds:>7.2} s{why}", state.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_a_driver_the_card_is_what_was_lacking() {
        let library = |name, is_there| {
            let found = if is_there { Ok(("1.0".to_owned(), "lib.so".to_owned())) } else { Err("none".to_owned()) };
            Library { name, found, missing: vec![] }
        };
        let told = |driver, nccl| {
            what_all_need(&[library("CUDA driver", driver), library("NCCL", nccl), library("NVRTC", false)])
        };
        assert_eq!([told(true, true), told(true, false)], ["card of this number"; 2]);
        assert_eq!([told(false, true), told(false, false)], ["CUDA driver", "CUDA driver and no NCCL"]);
    }

    #[test]
    fn a_world_has_a_row_for_each_trial() {
        let ended = |name: &str, state, why: Option<&str>| {
            let (name, why) = (name.to_owned(), why.map(str::to_owned));
            Ended { name, state, why, seconds: 0.5 }
        };
        let trials = [ended("moves", State::Passed, None), ended("nan", State::Skipped, Some("none"))];
        let expected = "
one rank
  passed   moves                    0.50 s
  skipped  nan                      0.50 s  none
";
        assert_eq!(rows("one rank", &trials), expected);
    }
}
