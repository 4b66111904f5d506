//! Mail: messages between two ranks, matched by sender and tag. Polled like the player, and as free of waiting.
//!
//! Messages between the same two ranks with the same tag arrive in the order they were sent. A message that nobody asked
//! for yet is kept, up to a limit for each peer; beyond it the sender waits. It is taken in once the rank waits for long,
//! whatever for.

mod at_once;
mod body;
mod desk;
#[cfg(test)]
mod tests;

pub use body::{Body, Shown};
use desk::{Desk, Room};
use phalanx_mem::Buffer;

use crate::error::{PeerReason, Stuck, Waiting};
use crate::fingerprint::Fingerprint;
use crate::link::Mesh;
use crate::op::OpKind;
use crate::player::lost;
use crate::{DType, Error, Result};

/// All messages of one rank that are on their way.
#[derive(Debug)]
pub struct Mail {
    rank: usize,
    desks: Vec<Desk>,
    posted: Vec<Posted>,
    ended: Vec<(Ticket, Result<Delivery>)>,
    tickets: u64,
    kept_limit: usize,
    has_left: bool,
    /// Whether something came to a message that another thread has to show before it goes on.
    is_passed_on: bool,
}

/// The claim to one message's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A message that has been sent or received.
#[derive(Debug)]
pub struct Delivery {
    /// The buffer that was given. Where bytes were lent there is none, unless a message had come before it was asked for: then
    /// it has what is still to be copied.
    pub buffer: Option<Buffer>,
    /// The rank at the other end.
    pub peer: usize,
}

/// Which peers are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    /// Those that something goes to, or that somebody waits for.
    Awaited,
    /// Those that nobody waits for, for all that they have sent. It is nobody's progress: a message is taken in to its end by such looks.
    Unasked,
}

/// A receive that waits for its message.
#[derive(Debug)]
struct Posted {
    ticket: Ticket,
    from: Option<usize>,
    tag: u32,
    dtype: DType,
    room: Body,
}

impl Mail {
    /// The mail of `rank` among `size`, in `epoch`.
    pub fn new(rank: usize, size: usize, epoch: u32) -> Mail {
        let desks = (0..size).map(|_| Desk::new(epoch as u16)).collect();
        Mail {
            rank,
            desks,
            posted: vec![],
            ended: vec![],
            tickets: 0,
            kept_limit: KEPT_LIMIT,
            has_left: false,
            is_passed_on: false,
        }
    }

    /// Sets how many bytes of messages that nobody asked for are kept for each peer, 64 MiB by default. Each counts for some
    /// more than its own.
    pub fn with_kept_limit(mut self, byte_len: usize) -> Mail {
        self.kept_limit = byte_len;
        self
    }

    /// Begins to send `body` to a peer.
    pub fn send(&mut self, to: usize, tag: u32, dtype: DType, body: Body, checksum: bool) -> Ticket {
        let ticket = self.next_ticket();
        match self.desks[to].shut.clone() {
            Some(error) => self.ended.push((ticket, Err(error))),
            None => self.desks[to].post(ticket, tag, dtype, body, checksum),
        }
        ticket
    }

    /// Begins to receive into `room` from a peer, or from whichever sends under this tag first.
    pub fn recv(&mut self, from: Option<usize>, tag: u32, dtype: DType, room: Body) -> Ticket {
        let ticket = self.next_ticket();
        self.posted.push(Posted { ticket, from, tag, dtype, room });
        self.settle();
        ticket
    }

    /// Moves what can be moved; true when anything did. Of what is lent only what is `shown` moves.
    ///
    /// Nothing is taken from peers that nobody waits for, also while something goes to them: what they send is left where it is, for
    /// whoever asks to take it without a copy between.
    pub fn poll(&mut self, mesh: &mut Mesh, shown: Option<Shown<'_, '_>>) -> bool {
        self.poll_peers(mesh, shown, Looks::Awaited)
    }

    /// Takes in what the other peers sent, as far as it may be kept; true when anything moved. For a rank that has waited
    /// long: one of them may be why, which comes no further until its message is taken.
    pub fn take_in(&mut self, mesh: &mut Mesh) -> bool {
        self.poll_peers(mesh, None, Looks::Unasked)
    }

    /// The end of a message, once it has come. A ticket is good for one answer.
    pub fn take(&mut self, ticket: Ticket) -> Option<Result<Delivery>> {
        let at = self.ended.iter().position(|(ended, _)| *ended == ticket)?;
        Some(self.ended.swap_remove(at).1)
    }

    /// Whether there is anything for other threads than the one that polled last: an end that waits to be taken, or a
    /// message whose bytes they have to show.
    pub fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.is_passed_on) || !self.ended.is_empty()
    }

    /// The peers that a message waits for.
    pub fn stuck(&self, ticket: Ticket) -> Vec<Stuck> {
        let sending = |peer: &usize| self.desks[*peer].holds(ticket);
        if let Some(peer) = (0..self.desks.len()).find(sending) {
            return vec![Stuck { peer, on: Waiting::Taking }];
        }
        let from = self.posted.iter().find(|posted| posted.ticket == ticket).map(|posted| posted.from);
        let arriving = || (0..self.desks.len()).find(|&peer| self.desks[peer].fills(ticket)).map(Some);
        let peers = match from.or_else(arriving) {
            Some(Some(peer)) => vec![peer],
            Some(None) => (0..self.desks.len()).filter(|&peer| peer != self.rank).collect(),
            None => vec![],
        };
        peers.into_iter().map(|peer| Stuck { peer, on: Waiting::Giving }).collect()
    }

    /// Says that nothing more will be asked for: what comes unasked is dropped, so that no sender waits for this rank.
    pub fn leave(&mut self) {
        self.has_left = true;
    }

    /// Ends every message with `error`.
    pub fn abort(&mut self, error: &Error) {
        for desk in &mut self.desks {
            desk.lose(error, &mut self.ended);
        }
        self.ended.extend(self.posted.drain(..).map(|posted| (posted.ticket, Err(error.clone()))));
    }

    /// Whether what this peer sends next, or the rest of what it sends, is asked for.
    fn expects(&self, peer: usize) -> bool {
        self.desks[peer].is_answering() || self.awaits(peer)
    }

    /// Whether a message of this peer has somewhere to go.
    fn awaits(&self, peer: usize) -> bool {
        self.has_left || self.posted.iter().any(|posted| posted.from.is_none_or(|from| from == peer))
    }

    fn poll_peers(&mut self, mesh: &mut Mesh, mut shown: Option<Shown<'_, '_>>, looks: Looks) -> bool {
        let mut moved = false;
        for peer in 0..self.desks.len() {
            let is_looked_at = match looks {
                Looks::Awaited => self.desks[peer].is_sending() || self.expects(peer),
                Looks::Unasked => !self.expects(peer),
            };
            if peer == self.rank || self.desks[peer].lost.is_some() || !is_looked_at {
                continue;
            }
            match self.move_with(peer, mesh, &mut shown, looks) {
                Ok(some) => {
                    moved |= some;
                    // Nobody else tells them: the link has news only when the peer moves something.
                    self.is_passed_on |= some && self.desks[peer].is_hidden(&shown);
                }
                Err(error) => {
                    self.desks[peer].lose(&error, &mut self.ended);
                    moved = true;
                }
            }
        }
        mesh.announce();
        if moved {
            self.settle();
        }
        moved
    }

    fn move_with(
        &mut self,
        peer: usize,
        mesh: &mut Mesh,
        shown: &mut Option<Shown<'_, '_>>,
        looks: Looks,
    ) -> Result<bool> {
        let checksum = mesh.checksum();
        let link = mesh.link(peer).map_err(|error| lost(peer, error))?;
        let (mut moved, mut spent) = (false, 0);
        if looks == Looks::Awaited {
            moved = self.desks[peer].push(peer, link, shown, &mut self.ended);
            if !self.expects(peer) {
                return Ok(moved);
            }
        }
        while spent < AT_ONCE {
            if let Some(print) = self.desks[peer].undecided() {
                match self.room_for(peer, print) {
                    Some(room) => self.desks[peer].decide(room),
                    None => return Ok(moved),
                }
            }
            let came = self.desks[peer].pull(peer, link, checksum, shown)?;
            let arrived = self.desks[peer].arrived();
            if came == 0 && arrived.is_none() {
                return Ok(moved);
            }
            moved = true;
            spent += came + EACH;
            if let Some((print, room)) = arrived {
                self.file(peer, print, room);
                if looks == Looks::Awaited && !self.awaits(peer) {
                    return Ok(moved);
                }
            }
        }
        Ok(moved)
    }

    /// Where a message goes: to a receive that asked for it, or among the kept ones while there is room.
    fn room_for(&mut self, peer: usize, print: Fingerprint) -> Option<Room> {
        if let Some(posted) = self.claim(peer, print.root) {
            return Some(match mismatch(self.rank, peer, &posted, &print) {
                Some(error) => Room::Refused(posted.ticket, error),
                None => Room::Posted { ticket: posted.ticket, room: posted.room },
            });
        }
        if self.has_left {
            return Some(Room::Unwanted);
        }
        self.desks[peer].room_to_keep(&print, self.kept_limit)
    }

    /// The first receive that asked for a message like this.
    fn claim(&mut self, peer: usize, tag: u32) -> Option<Posted> {
        let fits = |posted: &Posted| posted.tag == tag && posted.from.is_none_or(|from| from == peer);
        let at = self.posted.iter().position(fits)?;
        Some(self.posted.remove(at))
    }

    /// Hands a message that has arrived to whoever asked for it, or keeps it.
    fn file(&mut self, peer: usize, print: Fingerprint, room: Room) {
        match room {
            Room::Posted { ticket, room } => {
                self.ended.push((ticket, Ok(Delivery { buffer: room.into_buffer(), peer })));
            }
            Room::Refused(ticket, error) => self.ended.push((ticket, Err(error))),
            Room::Unwanted => {}
            Room::Kept(body) => match self.claim(peer, print.root) {
                Some(posted) => self.deliver(peer, posted, &print, body),
                None => self.desks[peer].keep(print, body),
            },
        }
    }

    fn deliver(&mut self, peer: usize, posted: Posted, print: &Fingerprint, body: Vec<u8>) {
        let end = match mismatch(self.rank, peer, &posted, print) {
            Some(error) => Err(error),
            None => Ok(Delivery { buffer: Some(posted.room.filled_with(body)), peer }),
        };
        self.ended.push((posted.ticket, end));
    }

    /// Gives kept messages to the receives that ask for them, and ends those whose sender is lost.
    fn settle(&mut self) {
        let mut at = 0;
        while at < self.posted.len() {
            let (from, tag) = (self.posted[at].from, self.posted[at].tag);
            let sources = from.map_or(0..self.desks.len(), |peer| peer..peer + 1);
            let found = sources.clone().find_map(|peer| Some((peer, self.desks[peer].take_kept(tag)?)));
            if let Some((peer, (print, body))) = found {
                let posted = self.posted.remove(at);
                self.deliver(peer, posted, &print, body);
            } else if let Some(error) = self.unreachable(from) {
                let posted = self.posted.remove(at);
                self.ended.push((posted.ticket, Err(error)));
            } else {
                at += 1;
            }
        }
    }

    /// Why no message can come from this peer, or from any. Peers that left in order had nothing more to say, so the others
    /// may still be the ones that are waited for.
    fn unreachable(&self, from: Option<usize>) -> Option<Error> {
        if let Some(peer) = from {
            return self.desks[peer].lost.clone();
        }
        let others = || (0..self.desks.len()).filter(|&peer| peer != self.rank);
        let lost = || others().filter_map(|peer| self.desks[peer].lost.as_ref());
        let left = |error: &&Error| matches!(error, Error::Peer(peer) if peer.reason == PeerReason::Left);
        let dead = lost().find(|error| !left(error));
        dead.or_else(|| lost().next().filter(|_| lost().count() == others().count())).cloned()
    }

    fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}

/// The error of a receive whose message is of another type or length. The message is dropped; the link stays in order.
fn mismatch(rank: usize, peer: usize, posted: &Posted, print: &Fingerprint) -> Option<Error> {
    let count = posted.dtype.elements(posted.room.byte_len());
    let wanted = Fingerprint { dtype: posted.dtype, count: count as u64, ..*print };
    wanted.disagreement(print, rank, peer, false)
}

/// The fingerprint of a message.
fn fingerprint(epoch: u16, sequence: u32, tag: u32, dtype: DType, byte_len: usize) -> Fingerprint {
    let count = dtype.elements(byte_len) as u64;
    Fingerprint {
        epoch,
        sequence,
        op: OpKind::Send,
        dtype,
        reduce: None,
        root: tag,
        count,
        splits: 0,
        site: 0,
        offer: 0,
    }
}

const KEPT_LIMIT: usize = 64 << 20;
/// How many bytes of one peer are received before others have their turn again, in which each part of a message counts
/// for some: a peer that sends without an end holds nobody up.
const AT_ONCE: usize = 1 << 20;
const EACH: usize = 2 << 10;
