//! Joining: the same crowd of clients before each server in turn, several times.

mod crowd;
mod joiner;
mod report;
mod voice;

use std::path::{Path, PathBuf};
use std::time::Duration;

use phalanx_comm::secure::{Claim, ClientHandshake, JobKey, JobName, Plane, Session};

use super::server::Server;
use super::{Options, progress_bar, system};
use crate::failure::{Failure, printed};
use crate::open_files;
use crowd::{Crowd, Gathering};
use joiner::Joiner;
use voice::Voice;

/// A kind of server, and what was seen of it.
#[derive(Debug)]
struct Contender {
    kind: Kind,
    name: String,
    rounds: Vec<Round>,
}

#[derive(Debug)]
enum Kind {
    Clear,
    Keyed(JobKey),
    PyTorch(PathBuf),
}

/// One crowd before one server.
#[derive(Debug)]
struct Round {
    gathering: Gathering,
    /// The most memory that the server had, in bytes.
    peak: u64,
    /// By how much that is more than before the crowd came.
    grown: u64,
    /// Processor time of the server.
    processor: Duration,
}

/// Measures and prints; finds fault when a client did not get through.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let clients = options.clients as usize;
    open_files::check(&format!("--clients {clients}"), clients)?;
    let mut contenders = contenders(options.keyed, options.beside_pytorch.as_deref())?;
    let progress = progress_bar(u64::from(options.repeats) * contenders.len() as u64);
    // In turns, so that a change in the machine's mood meets all of them.
    for _ in 0..options.repeats {
        for contender in &mut contenders {
            progress.set_message(contender.name.clone());
            contender.play(clients)?;
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    printed(report::print(&contenders, clients, options.json))?;
    if contenders.iter().any(Contender::has_failures) { Err(Failure::Found) } else { Ok(()) }
}

fn contenders(keyed: bool, python: Option<&Path>) -> Result<Vec<Contender>, Failure> {
    let ours = if keyed { Kind::Keyed(JobKey::mint().map_err(system("job key"))?) } else { Kind::Clear };
    let name = if keyed { "phalanx, keyed" } else { "phalanx" };
    let mut contenders = vec![Contender { kind: ours, name: name.to_owned(), rounds: Vec::new() }];
    let pytorch = |python: &Path| Contender {
        kind: Kind::PyTorch(python.to_owned()),
        name: "PyTorch".to_owned(),
        rounds: Vec::new(),
    };
    contenders.extend(python.map(pytorch));
    Ok(contenders)
}

impl Contender {
    /// One crowd before a fresh server.
    fn play(&mut self, clients: usize) -> Result<(), Failure> {
        let mut server = self.kind.start()?;
        if let Kind::PyTorch(_) = self.kind {
            self.name = format!("PyTorch {}", server.version());
        }
        let joiners: Vec<Joiner> = (0..clients).map(|_| self.kind.joiner()).collect::<Result<_, Failure>>()?;
        let before = server.burden()?;
        let crowd = Crowd::new(server.address(), joiners.into_iter()).map_err(system("the clients"))?;
        let gathering = crowd.gather().map_err(system("the clients"))?;
        let after = server.burden()?;
        self.rounds.push(Round {
            gathering,
            peak: after.peak,
            grown: after.peak.saturating_sub(before.resident),
            processor: after.processor.saturating_sub(before.processor),
        });
        Ok(())
    }

    fn has_failures(&self) -> bool {
        self.rounds.iter().any(|round| !round.gathering.failures.is_empty())
    }
}

impl Kind {
    fn start(&self) -> Result<Server, Failure> {
        match self {
            Kind::Clear => Server::phalanx(None, &[]),
            Kind::Keyed(key) => Server::phalanx(Some(key), &[]),
            Kind::PyTorch(python) => Server::pytorch(python),
        }
    }

    fn joiner(&self) -> Result<Joiner, Failure> {
        let Kind::Keyed(key) = self else { return Ok(Joiner::new(Voice::clear())) };
        let claim = Claim::new(JobName::default(), 0, Session::mint().map_err(system("random session"))?);
        Ok(Joiner::new(Voice::keyed(ClientHandshake::new(Some(key), &claim, Plane::Store))))
    }
}
