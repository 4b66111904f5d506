//! The server that is measured: a process of its own, so that what it costs can be told apart from what its clients cost.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use phalanx_comm::secure::JobKey;

use super::handover::hand_over;
use super::system;
use crate::burden::Burden;
use crate::failure::Failure;
use crate::tied::{Process, tied, tied_ourselves};

/// A server that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    process: Process,
    address: SocketAddr,
    version: String,
}

impl Server {
    /// Our server on a free port of the loopback, with a job key if there is one.
    pub(super) fn phalanx(key: Option<&JobKey>, more: &[&str]) -> Result<Server, Failure> {
        let mut command = tied_ourselves(&["store", "serve", "--bind", "127.0.0.1:0"], &[])?;
        command.args(more);
        if let Some(key) = key {
            hand_over(&mut command, key)?;
        }
        Server::start("our server", command, OUR_PATIENCE)
    }

    /// PyTorch's server, in the interpreter at `python`.
    pub(super) fn pytorch(python: &Path) -> Result<Server, Failure> {
        let mut command = tied(python, &[])?;
        command.args(["-c", PYTORCH]);
        Server::start("PyTorch's server", command, PYTORCH_PATIENCE)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the server says after its address; PyTorch's tells its version.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// What it has cost so far. Of one that has ended the system has little to tell, so that is told in its place.
    pub(super) fn burden(&mut self) -> Result<Burden, Failure> {
        if !self.process.is_alive() {
            return Err(Failure::Stopped("the server ended".to_owned()));
        }
        Burden::of(self.process.id()).map_err(system("what the server has cost"))
    }

    fn start(name: &str, command: Command, patience: Duration) -> Result<Server, Failure> {
        let (teller, lines) = mpsc::channel();
        // Nobody listens to what it says later.
        let process = Process::start(command, move |line| drop(line.map(|line| teller.send(line))))?;
        let failed = |why: String| Failure::Stopped(format!("{name}: {why}"));
        let line = lines.recv_timeout(patience);
        let line = line.map_err(|_| failed(format!("ended, or said nothing within {patience:?}")))?;
        let announced = announcement(&line).map(|(address, version)| (address, version.to_owned()));
        let (address, version) = announced.ok_or_else(|| failed(format!("says no address in \"{line}\"")))?;
        Ok(Server { process, address, version })
    }
}

/// The address in `listening on 127.0.0.1:29500 ...`, and what follows it.
fn announcement(line: &str) -> Option<(SocketAddr, &str)> {
    let rest = line.trim_end().strip_prefix("listening on ")?;
    let (address, version) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((address.parse().ok()?, version))
}

const OUR_PATIENCE: Duration = Duration::from_secs(10);
/// Loading PyTorch takes its time.
const PYTORCH_PATIENCE: Duration = Duration::from_secs(120);

// PyTorch's server asks the resolver for the name of each peer, within its event loop. The socket of its own accord would be
// an IPv6 one, whose peers no hosts file knows; with an IPv4 one 127.0.0.1 is found there, and no name server is measured.
const PYTORCH: &str = "\
import signal, socket, torch
from torch.distributed import TCPStore
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
port = listener.getsockname()[1]
store = TCPStore('127.0.0.1', port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
print(f'listening on 127.0.0.1:{port} {torch.__version__}', flush=True)
signal.pause()
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read() {
        let address = SocketAddr::from(([127, 0, 0, 1], 29500));
        assert_eq!(announcement("listening on 127.0.0.1:29500"), Some((address, "")));
        assert_eq!(announcement("listening on 127.0.0.1:29500 2.15.0\n"), Some((address, "2.15.0")));
        assert_eq!(announcement("listening on nowhere"), None);
        assert_eq!(announcement(""), None);
    }

    #[test]
    fn a_server_that_has_ended_is_told_as_such() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo listening on 127.0.0.1:1"]);
        let mut server = Server::start("a short server", command, OUR_PATIENCE).expect("an address");
        assert!(server.process.end(OUR_PATIENCE).is_some());
        let told = server.burden();
        assert!(matches!(&told, Err(Failure::Stopped(why)) if why == "the server ended"), "{told:?}");
    }

    #[test]
    fn a_server_that_cannot_start_is_named() {
        let refused = Server::start("a mute server", Command::new("true"), OUR_PATIENCE);
        let is_named = |why: &str| why.starts_with("a mute server: ended");
        assert!(matches!(&refused, Err(Failure::Stopped(why)) if is_named(why)), "{refused:?}");
    }
}
