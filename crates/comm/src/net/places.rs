//! The places of a rank's connections while its group comes together: each is taken once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::greeting::{Line, Trouble};
use super::guests::Guests;
use super::hello::{Hello, Traffic};
use super::socket::Socket;

/// The connections to one peer, by traffic.
type Place = [State; Traffic::ALL.len()];

#[derive(Debug, Default)]
enum State {
    #[default]
    Empty,
    /// Somebody greets who shall have it.
    Promised,
    Taken(Line),
}

/// All places of one rank, and what wakes whoever waits for them to be taken.
#[derive(Debug)]
pub(super) struct Places {
    hello: Hello,
    peers: Mutex<Peers>,
    pub(super) guests: Guests,
    pub(super) nudge: OwnedFd,
}

#[derive(Debug)]
struct Peers {
    places: Vec<Place>,
    has_failed: bool,
    lost: Option<usize>,
    lacks: Option<String>,
}

impl Places {
    /// Places for connections to `size` ranks. A hello of ours has the parts of this one.
    pub(super) fn new(hello: Hello, size: usize) -> Result<Places, Errno> {
        let nudge = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let places = (0..size).map(|_| Place::default()).collect();
        let peers = Mutex::new(Peers { places, has_failed: false, lost: None, lacks: None });
        Ok(Places { hello, peers, guests: Guests::new(), nudge })
    }

    /// Promises the place that this hello asks for, where it is one that may be asked for.
    pub(super) fn promise(&self, hello: &Hello) -> Result<(), Trouble> {
        let Hello { token, epoch, from: rank, .. } = self.hello;
        if (hello.token, hello.epoch, hello.to) != (token, epoch, rank) {
            return Err("its hello is for another group or rank".to_owned());
        }
        let mut peers = self.peers();
        let higher = usize::try_from(hello.from).ok().filter(|_| hello.from > rank);
        match higher.and_then(|from| peers.places.get_mut(from)).map(|place| &mut place[hello.traffic as usize]) {
            Some(state @ State::Empty) => *state = State::Promised,
            Some(_) => return Err(format!("rank {} is connected already", hello.from)),
            None => return Err(format!("rank {} has no business here", hello.from)),
        }
        Ok(())
    }

    /// Takes the place of a connection to a peer.
    pub(super) fn take(&self, peer: u32, traffic: Traffic, line: Line) {
        self.peers().places[peer as usize][traffic as usize] = State::Taken(line);
        self.wake();
    }

    /// A peer ended a connection: there will be no group.
    pub(super) fn lose(&self, peer: usize) {
        self.peers().lost.get_or_insert(peer);
        self.fail();
    }

    /// Who ended a connection.
    pub(super) fn lost(&self) -> Option<usize> {
        self.peers().lost
    }

    /// This process cannot let the next one in, for want of something, or has let it in.
    pub(super) fn lack(&self, what: Option<String>) {
        self.peers().lacks = what;
    }

    /// What this process lacked to let the last one in.
    pub(super) fn lacks(&self) -> Option<String> {
        self.peers().lacks.clone()
    }

    /// Ends the wait: a connection that is needed cannot be made.
    pub(super) fn fail(&self) {
        self.peers().has_failed = true;
        self.wake();
    }

    /// Whether nobody needs to be waited for any more.
    pub(super) fn is_settled(&self) -> bool {
        self.peers().has_failed || self.absent().is_empty()
    }

    /// The ranks whose connections are not all there.
    pub(super) fn absent(&self) -> Vec<usize> {
        let peers = self.peers();
        let is_absent = |&peer: &usize| {
            peer != self.hello.from as usize && !peers.places[peer].iter().all(|state| matches!(state, State::Taken(_)))
        };
        (0..peers.places.len()).filter(is_absent).collect()
    }

    /// A socket of each peer that is connected, by which its end is seen.
    pub(super) fn sockets(&self) -> Vec<(usize, Arc<Socket>)> {
        let peers = self.peers();
        let taken = |place: &Place| {
            place.iter().find_map(|state| match state {
                State::Taken(line) => Some(Arc::clone(&line.socket)),
                _ => None,
            })
        };
        peers.places.iter().enumerate().filter_map(|(rank, place)| Some((rank, taken(place)?))).collect()
    }

    /// The connections by peer, where all are there.
    pub(super) fn into_lines(self) -> Vec<Option<[Line; Traffic::ALL.len()]>> {
        let lines = |place: Place| {
            let taken =
                place.into_iter().filter_map(|state| if let State::Taken(line) = state { Some(line) } else { None });
            taken.collect::<Vec<_>>().try_into().ok()
        };
        self.peers.into_inner().unwrap_or_else(PoisonError::into_inner).places.into_iter().map(lines).collect()
    }

    /// Wakes whoever waits for the places.
    pub(super) fn wake(&self) {
        // A full counter wakes as well.
        let _ = rustix::io::write(&self.nudge, &1_u64.to_ne_bytes());
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
