//! The server as its owner sees it: started, asked how it does, told of a new epoch, and stopped by being dropped.

use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::{Poll, Waker};
use phalanx_core::{Error, Result};

use super::clerk::{Clerk, Office};
use super::connection::House;
use super::counts::Counts;
use super::desk::Desk;
use super::entrance::Entrance;
use super::gate::Gate;
use super::listener::Listener;
use super::options::ServerOptions;
use super::reactor::{ENTRANCE, ORDERS, Order, Reactor};
use super::roster::{Roster, Seat};
use crate::store::StoreAddress;
use crate::store::owner::Owner;

/// A store that is served to others from a thread of its own, until this is dropped.
///
/// It speaks PyTorch's `TCPStore` protocol and our own; with a key only the latter, encrypted, to those who prove the key.
///
/// It belongs to the process that started it. One that is forked from it has its memory but not its thread: there nothing is to be
/// learned of it, and to drop it does nothing.
///
/// ```
/// use phalanx_comm::store::{ServerOptions, StoreServer};
///
/// let server = StoreServer::start(ServerOptions::new("127.0.0.1:0".parse()?))?;
/// assert!(server.address().is_local());
/// assert_eq!(server.counts().connections, 0);
/// # Ok::<(), phalanx_core::Error>(())
/// ```
#[derive(Debug)]
pub struct StoreServer {
    address: StoreAddress,
    office: Office,
    thread: Option<JoinHandle<()>>,
    owner: Owner,
}

impl StoreServer {
    /// Binds the address and begins to serve.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), naming the address: it cannot be bound, or others than this machine could
    /// reach it and there is neither a key nor [`ServerOptions::insecure`].
    pub fn start(options: ServerOptions) -> Result<StoreServer> {
        let named = format!("store server at {}", options.address);
        let fail = |error: std::io::Error| Error::setup(&*named, error);
        let mut listener = Listener::bind(&options.address, options.key.is_some() || options.insecure)?;
        if options.key.is_none() && !listener.is_local() {
            log::warn!("{named}: runs without a key, so that whoever reaches it can read and change everything");
        }
        let poll = Poll::new().map_err(fail)?;
        listener.register(poll.registry(), ENTRANCE).map_err(fail)?;
        let waker = Waker::new(poll.registry(), ORDERS).map_err(fail)?;
        let address = listener.address().clone();
        let (orders, received) = mpsc::channel();
        let entrance = Entrance::new(listener, options.patience, ORDERS.0 + 1);
        let office = Office { orders, waker: Arc::new(waker) };
        let house = house(options, Clerk::start(office.clone()).map_err(fail)?).map_err(fail)?;
        let reactor = Reactor::new(poll, entrance, house, received);
        let thread = thread::Builder::new().name("phalanx-store".to_owned()).spawn(|| reactor.run()).map_err(fail)?;
        Ok(StoreServer { address, office, thread: Some(thread), owner: Owner::here() })
    }

    /// Where it can be reached, with the port that it took.
    pub fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// Begins another epoch, for a world of `world` ranks, 0 for any. What is stored stays. All connections are closed, and
    /// clients of the old epoch are not let in again; no rank is taken. Once this returns no request of an old client is
    /// carried out any more.
    pub fn advance(&self, epoch: u32, world: u32) {
        // One that has ended serves nobody.
        let _ = self.order(move |reactor| reactor.advance(epoch, world));
    }

    /// What it has seen and holds.
    pub fn counts(&self) -> Counts {
        self.order(|reactor| reactor.counts()).unwrap_or_default()
    }

    /// The ranks that were taken in this epoch, in their order.
    pub fn roster(&self) -> Vec<Seat> {
        self.order(|reactor| reactor.seats()).unwrap_or_default()
    }

    /// Has `what` done between two turns of the server, and waits until it was. None where the server has ended.
    fn order<T: Send + 'static>(&self, what: impl FnOnce(&mut Reactor) -> T + Send + 'static) -> Option<T> {
        self.begin(what)?.recv().ok()
    }

    /// Has `what` done between two turns of the server, later. A server that ends before drops its orders, and with them
    /// what would tell their outcome.
    fn begin<T: Send + 'static>(&self, what: impl FnOnce(&mut Reactor) -> T + Send + 'static) -> Option<Receiver<T>> {
        if self.is_forked() {
            return None;
        }
        let (answer, answered) = mpsc::sync_channel(1);
        let order: Order = Box::new(move |reactor| {
            // Who asked may have given up.
            let _ = answer.send(what(reactor));
        });
        self.office.bring(order).then_some(answered)
    }

    fn is_forked(&self) -> bool {
        !self.owner.is_here()
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        if self.is_forked() {
            // The parent's thread may have been at work with these when the process was forked.
            return mem::forget((self.office.clone(), self.thread.take()));
        }
        // A turn is short; a thread that has not come to its end by then is left to itself.
        if self.begin(Reactor::stop).is_some_and(|stopped| stopped.recv_timeout(PATIENCE).is_ok())
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn house(options: ServerOptions, clerk: Clerk) -> std::io::Result<House> {
    let roster = Roster::new(options.job, options.epoch, options.world);
    Ok(House {
        gate: Gate::new(options.key, getrandom::u64()?, roster),
        clerk,
        desk: Desk::new(options.limits),
        now: Instant::now(),
        is_heavy: false,
        scratch: vec![0; SCRATCH].into(),
    })
}

/// How long the server's thread may take to end when its owner drops it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most that one read brings.
const SCRATCH: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_waits_for_the_answer_but_not_for_a_server_that_has_ended() {
        let server = StoreServer::start(ServerOptions::new("127.0.0.1:0".parse().unwrap()).epoch(3)).unwrap();
        let (busy, done) = mpsc::channel::<()>();
        let blocked = server.begin(move |_| done.recv().is_err()).unwrap();
        let seats = server.begin(|reactor| reactor.seats()).unwrap();
        drop(busy);
        assert_eq!((blocked.recv(), seats.recv()), (Ok(true), Ok(Vec::new())));
        server.order(Reactor::stop).unwrap();
        // Before its end or after it: nobody answers, and nobody waits for that.
        while server.order(|_| ()).is_some() {}
        assert_eq!(server.counts(), Counts::default());
    }
}
