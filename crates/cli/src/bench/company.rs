//! All ranks of a bench: how they are started, told and heard, and whom to blame when one of them fails.

use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use phalanx::{Group, Threads};
use phalanx_comm::store::StoreServer;

use super::case::Case;
use super::measure::{Measured, Pace};
use super::meeting::{CALL_WITHIN, Meeting, Style, Transport};
use super::rank::{Part, Said, play};
use crate::failure::Failure;
use crate::run::process::exit::Exit;
use crate::tied::{Process, tied_ourselves};

/// The ranks of one world, which measure case after case together. Processes end when this is dropped.
#[derive(Debug)]
pub(super) struct Company {
    ranks: Vec<Rank>,
    /// Which rank said what; nothing when it will say no more.
    said: Receiver<(usize, Option<Said>)>,
    /// Where ranks over TCP have met.
    _store: Option<StoreServer>,
}

/// What a company is to be.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) np: usize,
    pub(super) transport: Transport,
    pub(super) style: Style,
    pub(super) pace: Pace,
    /// The cores of each rank that is a process; none where it may be on any.
    pub(super) cores: Vec<Vec<usize>>,
}

type Teller = Sender<(usize, Option<Said>)>;

#[derive(Debug)]
enum Rank {
    Process(Process),
    Thread(Sender<Case>, JoinHandle<bool>),
}

impl Company {
    /// Starts all ranks and waits until they have met.
    pub(super) fn start(terms: &Terms) -> Result<Company, Failure> {
        let (teller, said) = mpsc::channel();
        let (ranks, store) = match terms.transport.meeting()? {
            Some((meeting, store)) => (processes(terms, &meeting, &teller)?, store),
            None => (threads(terms, &teller)?, None),
        };
        drop(teller);
        let mut company = Company { ranks, said, _store: store };
        company.hear("the meeting")?;
        Ok(company)
    }

    /// What all ranks see of a case.
    pub(super) fn measure(&mut self, case: &Case) -> Result<Measured, Failure> {
        for rank in &mut self.ranks {
            match rank {
                Rank::Process(process) => process.write(&case.to_json().to_string()),
                // One that is gone is told of where it is heard.
                Rank::Thread(orders, _) => drop(orders.send(*case)),
            }
        }
        let said = self.hear(&case.to_string())?;
        let seen = |said| if let Said::Seen(seen) = said { Some(seen) } else { None };
        Ok(Measured::of(&said.into_iter().filter_map(seen).collect::<Vec<_>>()))
    }

    /// Lets all ranks end.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        let mut ranks = std::mem::take(&mut self.ranks);
        // All at once: a rank that leaves may wait a little for the others.
        ranks.iter_mut().for_each(|rank| {
            if let Rank::Process(process) = rank {
                process.close()
            }
        });
        for (rank, member) in ranks.into_iter().enumerate() {
            let exit = match member {
                Rank::Process(mut process) => process.end(ENDED_WITHIN),
                Rank::Thread(orders, thread) => {
                    drop(orders);
                    thread.join().ok().map(|is_well| Exit::Code(i32::from(!is_well)))
                }
            };
            match exit {
                Some(exit) if exit.is_well() => {}
                Some(exit) => return Err(Failure::Stopped(format!("rank {rank} failed: {exit} at the end"))),
                None => return Err(Failure::Stopped(format!("rank {rank} failed: it does not end"))),
            }
        }
        Ok(())
    }

    /// What each rank says next, in the order of ranks; who is to blame if one of them does not say what it should.
    fn hear(&mut self, task: &str) -> Result<Vec<Said>, Failure> {
        let mut heard: Vec<Option<Said>> = vec![None; self.ranks.len()];
        while heard.iter().any(Option::is_none) {
            let next = self.said.recv_timeout(SAID_WITHIN);
            let (rank, said) = next.map_err(|_| Failure::Stopped(format!("the ranks are silent about {task}")))?;
            match said {
                Some(said @ (Said::Joined | Said::Seen(_))) => heard[rank] = Some(said),
                other => return Err(self.blame((rank, other), task)),
            }
        }
        Ok(heard.into_iter().flatten().collect())
    }

    /// Who is to blame after this was said: a rank that ended without a word rather than those who miss it.
    fn blame(&mut self, first: (usize, Option<Said>), task: &str) -> Failure {
        let deadline = Instant::now() + SETTLED_WITHIN;
        let mut failed: Vec<Option<String>> = vec![None; self.ranks.len()];
        let mut word = None;
        let mut next = Some(first);
        while let Some((rank, said)) = next {
            match said {
                Some(Said::Failed(why)) => {
                    word.get_or_insert_with(|| format!("rank {rank} failed during {task}: {why}"));
                    failed[rank] = Some(why);
                }
                None if failed[rank].is_none() => return self.death(rank, task),
                _ => {}
            }
            next = match failed.iter().all(Option::is_some) {
                true => None,
                false => self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
            };
        }
        Failure::Stopped(word.unwrap_or_default())
    }

    fn death(&mut self, rank: usize, task: &str) -> Failure {
        let Rank::Process(process) = &mut self.ranks[rank] else {
            return Failure::Stopped(format!("rank {rank} failed during {task}"));
        };
        let pid = process.id();
        let how = process.end(SETTLED_WITHIN).map_or_else(|| "it says no more".to_owned(), |exit| exit.to_string());
        let others = match self.ranks.len() - 1 {
            1 => "1 other rank was stopped".to_owned(),
            others => format!("{others} other ranks were stopped"),
        };
        Failure::Stopped(format!("rank {rank} failed: {how} during {task} (pid {pid}); {others}"))
    }
}

fn processes(terms: &Terms, meeting: &Meeting, teller: &Teller) -> Result<Vec<Rank>, Failure> {
    let Terms { np, style, pace, .. } = *terms;
    let start = |rank| {
        let cores = terms.cores.get(rank).map_or(&[][..], Vec::as_slice);
        let mut command = tied_ourselves(&["__bench_rank"], cores)?;
        command.stdin(Stdio::piped());
        let teller = teller.clone();
        let mut process = Process::start(command, move |line| {
            // Nobody listens any more when the bench ends.
            let _ = teller.send((rank, line.map(|line| Said::of_line(&line))));
        })?;
        // The secret is in there, so it is no argument, which all users of the machine could read.
        process.write(&Part { rank, np, meeting: meeting.clone(), style, pace }.to_json().to_string());
        Ok(Rank::Process(process))
    };
    (0..np).map(start).collect()
}

fn threads(terms: &Terms, teller: &Teller) -> Result<Vec<Rank>, Failure> {
    let Terms { np, style, pace, .. } = *terms;
    let world = Threads::new(np).hosts(style.hosts_of(np)).options(style.options()).windows(!style.links);
    let world = style.algorithm.into_iter().fold(world, Threads::algorithm);
    let start = |(rank, group): (usize, Group)| {
        let (orders, cases) = mpsc::channel();
        let teller = teller.clone();
        let tell = move |said| teller.send((rank, Some(said))).is_ok();
        let work = move || play(&group, (style.memory, pace), cases.into_iter(), tell);
        let thread = thread::Builder::new().name(format!("rank-{rank}")).spawn(work);
        let thread = thread.map_err(|error| Failure::Stopped(format!("no thread for rank {rank}: {error}")))?;
        Ok(Rank::Thread(orders, thread))
    };
    world.groups()?.into_iter().enumerate().map(start).collect()
}

/// A case has a few calls that are not in its budget, each of which ends in time.
const SAID_WITHIN: Duration = Duration::from_secs(60 * 60 + 10 * CALL_WITHIN.as_secs());
/// How long to wait for the one to blame, who may be heard after those who miss it.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);
/// Leaving a group takes at most five seconds.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
