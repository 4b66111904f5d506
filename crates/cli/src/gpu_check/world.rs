//! A world of ranks on cards: which processes it has, and what all of them said together.

use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use phalanx_nccl::api::Version;
use serde_json::Value;

use super::Options;
use super::interrupts::Interrupts;
use crate::failure::{Failure, tell};
use crate::run::process::signals;
use crate::run::scratch::{self, Scratch};
use crate::tied::{Process, tied_ourselves};

/// Ranks, each with its card, and what NCCL is told so that it makes them a communicator.
#[derive(Debug)]
pub(super) struct World {
    pub(super) how: String,
    /// Whether it goes by the transport of one host instead of NCCL.
    is_same_host: bool,
    /// The card of each rank.
    pub(super) cards: Vec<usize>,
    /// What each rank's environment has besides.
    variables: Vec<Vec<(&'static str, String)>>,
}

/// How a trial ended in a world.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) why: Option<String>,
    pub(super) seconds: f64,
}

/// What a world hears while it runs.
#[derive(Debug)]
pub(super) enum Said {
    /// A line of a rank, or that it says no more.
    Line(usize, Option<String>),
    /// A signal asks for the end.
    Signal(i32),
}

/// The worst of all ranks', the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Passed,
    Skipped,
    Failed,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Passed => "passed",
            State::Skipped => "skipped",
            State::Failed => "failed",
        }
    }
}

impl World {
    /// The worlds that can be tried with so many cards: one rank, two on one card, one on each, over NCCL where that is; and two ranks on one card
    /// without it.
    pub(super) fn all(version: Option<Version>, cards: usize, device: usize) -> Vec<World> {
        let world = |how: &str, cards: Vec<usize>| {
            let variables = vec![vec![]; cards.len()];
            World { how: how.to_owned(), is_same_host: false, cards, variables }
        };
        let mut worlds = Vec::new();
        if let Some(version) = version {
            let is_supported = version >= SEVERAL_A_CARD;
            let together = |rank: usize| match is_supported {
                true => vec![("NCCL_MULTI_RANK_GPU_ENABLE", "1".to_owned()), ("NCCL_NVLS_ENABLE", "0".to_owned())],
                // Ranks of other hosts may have cards of the same number. They meet by sockets: a network that has its own plugin may not lead
                // back to this host.
                false => vec![
                    ("NCCL_HOSTID", format!("phalanx-{rank}")),
                    ("NCCL_NET", "Socket".to_owned()),
                    ("NCCL_SOCKET_IFNAME", "lo".to_owned()),
                ],
            };
            let by = if is_supported { "NCCL_MULTI_RANK_GPU_ENABLE" } else { "a host id each" };
            let pair = world(&format!("two ranks on one card, by {by}"), vec![device; 2]);
            worlds.push(world("one rank", vec![device]));
            worlds.push(World { variables: (0..2).map(together).collect(), ..pair });
            if cards > 1 {
                worlds.push(world(&format!("one rank on each of {cards} cards"), (0..cards).collect()));
            }
        }
        let pair = world("two ranks on one card, by the transport of one host", vec![device; 2]);
        worlds.push(World { is_same_host: true, ..pair });
        worlds
    }

    /// Starts its ranks and hears them to their ends, or to a signal that asks for its own: none of them is left then.
    pub(super) fn run(&self, options: &Options, interrupts: &Interrupts) -> Result<Vec<Ended>, Failure> {
        // What is made first is dropped last: signals are heard until the ranks have ended and their directory is gone.
        let (teller, said) = mpsc::channel();
        interrupts.tell(teller.clone());
        let scratch = Scratch::make(&scratch::name())?;
        let store = scratch.path().join("store");
        let mut processes = Vec::new();
        for (rank, card) in self.cards.iter().enumerate() {
            let numbers = [rank, self.cards.len(), *card].map(|number| number.to_string());
            let timeout = options.timeout.as_secs_f64().to_string();
            let mut words = vec!["__gpu_rank", "--rank", &numbers[0], "--size", &numbers[1], "--device", &numbers[2]];
            words.extend(self.is_same_host.then_some("--same-host"));
            let mut command = tied_ourselves(&[&words[..], &["--timeout", &timeout]].concat(), &[])?;
            command.arg("--store").arg(&store).args(options.places.arguments()).stdin(Stdio::null());
            command.envs(self.variables[rank].iter().map(|(name, value)| (*name, value)));
            let teller = teller.clone();
            processes.push(Process::start(command, move |line| drop(teller.send(Said::Line(rank, line))))?);
        }
        // An operation has its own time, and a trial several.
        let (lines, silent) = hear(&said, self.cards.len(), options.timeout * 3 + Duration::from_secs(30))?;
        drop(processes);
        drop(scratch);
        // A terminal signals ranks too, and their ends may be heard before what ended them.
        interrupts.tell_nobody();
        let signal = said.try_iter().find_map(|said| if let Said::Signal(signal) = said { Some(signal) } else { None });
        signal.map_or_else(|| Ok(together(&lines, silent)), |signal| Err(ended_by(signal)))
    }
}

/// Hears ranks to their ends: what each said, and whether they fell silent before.
fn hear(said: &Receiver<Said>, ranks: usize, patience: Duration) -> Result<(Vec<Vec<Value>>, Option<String>), Failure> {
    let mut lines = vec![Vec::new(); ranks];
    let mut speaking = ranks;
    while speaking > 0 {
        match said.recv_timeout(patience) {
            Ok(Said::Line(rank, Some(line))) => lines[rank].extend(serde_json::from_str::<Value>(&line).ok()),
            Ok(Said::Line(_, None)) => speaking -= 1,
            Ok(Said::Signal(signal)) => return Err(ended_by(signal)),
            Err(RecvTimeoutError::Timeout) => return Ok((lines, Some(format!("nothing was heard for {patience:?}")))),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok((lines, None))
}

fn ended_by(signal: i32) -> Failure {
    tell(&format!("ended by {}", signals::name(signal)));
    Failure::Code(signals::exit_code(signal))
}

/// What all ranks said of each trial: the worst, and of whom. One that not all came to has failed.
fn together(lines: &[Vec<Value>], silent: Option<String>) -> Vec<Ended> {
    let names: Vec<&'static str> = phalanx_nccl::conformance::trials::<
        phalanx_nccl::library::NcclLibrary,
        phalanx_nccl::library::CudaDriver,
        phalanx_nccl::library::Machine,
    >()
    .iter()
    .map(phalanx_nccl::conformance::Trial::name)
    .collect();
    let mut ended = Vec::new();
    for name in names {
        let of = |(rank, lines): (usize, &Vec<Value>)| {
            let line = lines.iter().find(|line| line["name"] == name);
            let state = match line.and_then(|line| line["state"].as_str()) {
                Some("passed") => State::Passed,
                Some("skipped") => State::Skipped,
                _ => State::Failed,
            };
            let gone = || Some(silent.clone().unwrap_or_else(|| "its process has ended".to_owned()));
            let why = line.map_or_else(gone, |line| line["why"].as_str().map(str::to_owned));
            let why = why.map(|why| if state == State::Failed { format!("rank {rank}: {why}") } else { why });
            let seconds = line.and_then(|line| line["seconds"].as_f64()).unwrap_or_default();
            Ended { name: name.to_owned(), state, why, seconds }
        };
        let all = lines.iter().enumerate().map(of);
        let Some(worst) = all.reduce(|worst, next| if next.state > worst.state { next } else { worst }) else {
            continue;
        };
        let has_failed = worst.state == State::Failed;
        ended.push(worst);
        // What comes after a rank that is gone says nothing.
        if has_failed && lines.iter().any(|lines| lines.iter().all(|line| line["name"] != name)) {
            break;
        }
    }
    ended
}

/// Since when NCCL has several ranks on a card.
const SEVERAL_A_CARD: Version = Version::new(2, 30, 0);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(name: &str, state: &str, why: Option<&str>) -> Value {
        json!({ "name": name, "state": state, "why": why, "seconds": 0.5 })
    }

    #[test]
    fn the_worst_of_all_ranks_counts_and_is_named() {
        let first = vec![line("reductions", "passed", None), line("scattered reductions", "passed", None)];
        let second = vec![line("reductions", "passed", None), line("scattered reductions", "failed", Some("wrong"))];
        let ended = together(&[first.clone(), second], None);
        assert_eq!((ended[0].state, ended[0].why.clone()), (State::Passed, None));
        assert_eq!((ended[1].state, ended[1].why.as_deref()), (State::Failed, Some("rank 1: wrong")));
        // The next one nobody came to, and nothing is said of those behind it.
        assert_eq!((ended.len(), ended[2].why.as_deref()), (3, Some("rank 0: its process has ended")));
        let ended = together(&[first, vec![]], Some("nothing was heard for 1s".into()));
        assert_eq!((ended.len(), ended[0].why.as_deref()), (1, Some("rank 1: nothing was heard for 1s")));
    }

    #[test]
    fn worlds_are_as_the_cards_and_the_version_have_it() {
        let how = |version, cards| World::all(version, cards, 0).into_iter().map(|world| world.how).collect::<Vec<_>>();
        let own = "two ranks on one card, by the transport of one host";
        let old = how(Some(Version::new(2, 28, 9)), 1);
        assert_eq!(old, ["one rank", "two ranks on one card, by a host id each", own]);
        let new = how(Some(Version::new(2, 30, 7)), 4);
        let by = "two ranks on one card, by NCCL_MULTI_RANK_GPU_ENABLE";
        assert_eq!(new[1..], [by, "one rank on each of 4 cards", own]);
        assert_eq!(how(None, 2), [own]);
    }

    #[test]
    fn ranks_that_pass_for_hosts_meet_on_this_one() {
        let pair = &World::all(Some(Version::new(2, 28, 9)), 1, 0)[1];
        for (rank, variables) in pair.variables.iter().enumerate() {
            let value = |of: &str| variables.iter().find(|(name, _)| *name == of).map(|(_, value)| value.as_str());
            assert_eq!(value("NCCL_HOSTID"), Some(&*format!("phalanx-{rank}")));
            assert_eq!((value("NCCL_NET"), value("NCCL_SOCKET_IFNAME")), (Some("Socket"), Some("lo")));
        }
    }
}
