//! The simulated links: a bounded pipe each way between any two ranks, that takes and gives in pieces, late, or not at all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use phalanx_core::link::{Link, LinkError};

use crate::scene::Temper;

/// All pipes of a world, its clock, and who has left it.
pub(crate) struct Network {
    size: usize,
    temper: Temper,
    dice: Rng,
    pipes: Vec<Pipe>,
    pub(crate) now: u64,
    /// Whether everything that can move does at once: for telling "not now" by chance from "nothing can move".
    pub(crate) eager: bool,
    /// Whether a rank has failed or was killed, so that its windows are closed.
    pub(crate) left: Vec<bool>,
    /// How many offers each rank has made.
    pub(crate) offers: Vec<u64>,
    /// Up to how many offers each rank has said that it reads none of them any more.
    pub(crate) done_with: Vec<u64>,
    /// When offers that were made will be seen.
    pub(crate) shows: Vec<u64>,
    /// Bytes that entered links and windows so far.
    pub(crate) moved: u64,
}

/// The network as its ends share it. Nobody ever waits for the lock: all ranks live in one thread.
pub(crate) type Shared = Arc<Mutex<Network>>;

#[derive(Default)]
struct Pipe {
    flight: VecDeque<u8>,
    /// When the next bytes in flight arrive, and how many.
    marks: VecDeque<(u64, usize)>,
    arrived: usize,
    state: State,
    flipped: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// Takes nothing; what is in flight still comes.
    Closed,
    /// Takes what fits, gives nothing.
    Silent,
}

/// One rank's end of the pipes to and from one peer.
pub(crate) struct End {
    network: Shared,
    out: usize,
    back: usize,
}

/// The network, for a moment.
pub(crate) fn lock(network: &Shared) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    pub(crate) fn new(size: usize, temper: Temper, dice: Rng) -> Network {
        Network {
            size,
            temper,
            dice,
            pipes: (0..size * size).map(|_| Pipe::default()).collect(),
            now: 0,
            eager: false,
            left: vec![false; size],
            offers: vec![0; size],
            done_with: vec![0; size],
            shows: vec![],
            moved: 0,
        }
    }

    /// A rank is gone: nobody can send to it, and nothing but what it sent before comes from it; not even that if `lost`.
    pub(crate) fn leave(&mut self, rank: usize, lost: bool) {
        self.left[rank] = true;
        for peer in 0..self.size {
            self.close(rank, peer, lost);
            self.close(peer, rank, true);
        }
    }

    /// The link between two ranks is gone with all that was in flight. A silent one is not even noticed.
    pub(crate) fn cut(&mut self, a: usize, b: usize, silent: bool) {
        for (from, to) in [(a, b), (b, a)] {
            if silent {
                self.silence(from, to);
            } else {
                self.close(from, to, true);
            }
        }
    }

    /// A rank's bytes go nowhere any more, and it takes none.
    pub(crate) fn mute(&mut self, rank: usize) {
        for peer in 0..self.size {
            self.silence(rank, peer);
            self.silence(peer, rank);
        }
    }

    /// Changes one byte that is in flight; false when there is none.
    pub(crate) fn flip(&mut self) -> bool {
        let busy: Vec<usize> = (0..self.pipes.len()).filter(|&pipe| !self.pipes[pipe].flight.is_empty()).collect();
        let Some(&pipe) = self.dice.choice(&busy) else {
            return false;
        };
        let pipe = &mut self.pipes[pipe];
        let at = self.dice.usize(..pipe.flight.len());
        pipe.flight[at] ^= self.dice.u8(1..);
        pipe.flipped = true;
        true
    }

    /// Whether something happened to what `from` sends to `to`.
    pub(crate) fn is_hurt(&self, from: usize, to: usize) -> bool {
        let pipe = &self.pipes[self.pipe(from, to)];
        pipe.flipped || pipe.state != State::Open || self.left[from]
    }

    /// Whether a byte was changed on its way from `from` to `to`.
    pub(crate) fn is_flipped(&self, from: usize, to: usize) -> bool {
        self.pipes[self.pipe(from, to)].flipped
    }

    /// The next time at which bytes arrive or an offer is seen.
    pub(crate) fn next_arrival(&mut self) -> Option<u64> {
        let now = self.now;
        self.shows.retain(|&tick| tick > now);
        let open = self.pipes.iter().filter(|pipe| pipe.state != State::Silent);
        let arrivals = open.filter_map(|pipe| pipe.marks.iter().map(|mark| mark.0).find(|&tick| tick > now));
        arrivals.chain(self.shows.iter().copied()).min()
    }

    /// When something that sets out now arrives.
    pub(crate) fn arrival(&mut self) -> u64 {
        self.now + self.dice.u64(..=self.temper.delay)
    }

    /// Whether what is offered now is read where it is.
    pub(crate) fn stays(&mut self) -> bool {
        self.dice.bool()
    }

    /// Whether chance says "not now".
    fn refuses(&mut self) -> bool {
        !self.eager && self.dice.u8(..) < self.temper.refusal
    }

    fn pipe(&self, from: usize, to: usize) -> usize {
        from * self.size + to
    }

    fn close(&mut self, from: usize, to: usize, lost: bool) {
        let pipe = self.pipe(from, to);
        let pipe = &mut self.pipes[pipe];
        if pipe.state == State::Silent {
            // Through what is silent nobody hears that the other end has closed.
            return;
        }
        pipe.state = State::Closed;
        if lost {
            pipe.flight.clear();
            pipe.marks.clear();
            pipe.arrived = 0;
        }
    }

    fn silence(&mut self, from: usize, to: usize) {
        let pipe = self.pipe(from, to);
        self.pipes[pipe].state = State::Silent;
    }

    /// How many of `most` bytes one call moves.
    fn piece(&mut self, most: usize) -> usize {
        let limit = most.min(self.temper.piece);
        match (self.eager, limit) {
            (true, _) => most,
            (_, 0..=1) => limit,
            _ => self.dice.usize(1..=limit),
        }
    }

    fn send(&mut self, pipe: usize, bytes: &[u8]) -> Result<usize, LinkError> {
        if self.pipes[pipe].state == State::Closed {
            return Err(LinkError::Closed { rank: None });
        }
        let room = self.temper.capacity.saturating_sub(self.pipes[pipe].flight.len());
        let most = bytes.len().min(room);
        if most == 0 || self.refuses() {
            return Ok(0);
        }
        let (len, tick) = (self.piece(most), self.arrival());
        self.pipes[pipe].push(&bytes[..len], tick);
        self.moved += len as u64;
        Ok(len)
    }

    fn recv(&mut self, pipe: usize, into: &mut [u8]) -> Result<usize, LinkError> {
        let now = self.now;
        let most = into.len().min(self.pipes[pipe].ready(now));
        if most == 0 {
            return self.pipes[pipe].nothing();
        }
        if self.refuses() {
            return Ok(0);
        }
        let len = self.piece(most);
        self.pipes[pipe].pull(&mut into[..len]);
        Ok(len)
    }
}

impl Pipe {
    /// Bytes never overtake each other.
    fn push(&mut self, bytes: &[u8], tick: u64) {
        self.flight.extend(bytes);
        match self.marks.back_mut() {
            Some((last, len)) if *last >= tick => *len += bytes.len(),
            _ => self.marks.push_back((tick, bytes.len())),
        }
    }

    /// How many bytes have arrived.
    fn ready(&mut self, now: u64) -> usize {
        while let Some(&(tick, len)) = self.marks.front()
            && tick <= now
        {
            self.arrived += len;
            self.marks.pop_front();
        }
        if self.state == State::Silent { 0 } else { self.arrived }
    }

    fn nothing(&self) -> Result<usize, LinkError> {
        if self.state == State::Closed && self.flight.is_empty() {
            Err(LinkError::Closed { rank: None })
        } else {
            Ok(0)
        }
    }

    fn pull(&mut self, into: &mut [u8]) {
        let (front, rest) = self.flight.as_slices();
        let split = front.len().min(into.len());
        let (first, second) = into.split_at_mut(split);
        first.copy_from_slice(&front[..split]);
        second.copy_from_slice(&rest[..second.len()]);
        self.flight.drain(..into.len());
        self.arrived -= into.len();
    }
}

impl End {
    /// The end of rank `me` towards `peer`.
    pub(crate) fn new(network: &Shared, me: usize, peer: usize) -> End {
        let guard = lock(network);
        End { out: guard.pipe(me, peer), back: guard.pipe(peer, me), network: Arc::clone(network) }
    }
}

impl Link for End {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        lock(&self.network).send(self.out, bytes)
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        lock(&self.network).recv(self.back, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn through_a_link_that_was_cut_silently_nothing_comes_even_when_the_other_end_leaves() {
        let temper = Temper { piece: usize::MAX, refusal: 0, capacity: 8, delay: 0, burst: 0, slow: None };
        let network: Shared = Arc::new(Network::new(2, temper, Rng::with_seed(0)).into());
        let [mut first, mut second] = [(0, 1), (1, 0)].map(|(me, peer)| End::new(&network, me, peer));
        assert!(first.try_send(&[1; 8]).is_ok_and(|sent| sent > 0));
        lock(&network).cut(0, 1, true);
        lock(&network).leave(0, false);
        assert_eq!(second.try_recv(&mut [0; 8]), Ok(0));
        assert!(second.try_send(&[2; 8]).is_ok_and(|sent| sent > 0));
    }
}
