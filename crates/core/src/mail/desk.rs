//! The traffic with one peer: messages going out in order, the one coming in, and those kept until somebody asks.

use std::collections::{BTreeMap, VecDeque};

use super::{Body, Delivery, Shown, Ticket, fingerprint};
use crate::fingerprint::Fingerprint;
use crate::link::{Link, Whole};
use crate::op::OpKind;
use crate::player::{Head, Incoming, Outgoing, Part, corrupt, lost};
use crate::{DType, Error, Result};

#[derive(Debug)]
pub(super) struct Desk {
    epoch: u16,
    out: VecDeque<Letter>,
    sent: u32,
    arriving: Option<Arriving>,
    received: u32,
    /// By tag, in the order they came.
    kept: BTreeMap<u32, VecDeque<(Fingerprint, Vec<u8>)>>,
    /// What they take: each more than its bytes.
    kept_byte_len: usize,
    /// Why nothing can be sent any more: what the peer sent before may still come.
    pub(super) shut: Option<Error>,
    /// Why nothing goes or comes any more.
    pub(super) lost: Option<Error>,
}

/// A message on its way out.
#[derive(Debug)]
struct Letter {
    ticket: Ticket,
    frame: Outgoing,
    body: Body,
}

/// A message on its way in: its fingerprint and room are known once its head has come.
#[derive(Debug)]
struct Arriving {
    frame: Incoming,
    print: Option<Fingerprint>,
    room: Option<Room>,
}

/// Where an incoming message goes.
#[derive(Debug)]
pub(super) enum Room {
    /// Into the buffer of the receive that asked for it.
    Posted { ticket: Ticket, room: Body },
    /// Into memory of its own until somebody asks.
    Kept(Vec<u8>),
    /// Nowhere: the receive that asked for it expects something else.
    Refused(Ticket, Error),
    /// Nowhere: nobody will ask for it.
    Unwanted,
}

impl Desk {
    pub(super) fn new(epoch: u16) -> Desk {
        let (out, kept) = (VecDeque::new(), BTreeMap::new());
        Desk { epoch, out, sent: 0, arriving: None, received: 0, kept, kept_byte_len: 0, shut: None, lost: None }
    }

    pub(super) fn post(&mut self, ticket: Ticket, tag: u32, dtype: DType, body: Body, checksum: bool) {
        let print = fingerprint(self.epoch, self.sent, tag, dtype, body.byte_len());
        self.sent = self.sent.wrapping_add(1);
        let frame = Outgoing::new(Head::from_slice(&print.encode()), body.byte_len(), checksum);
        self.out.push_back(Letter { ticket, frame, body });
    }

    /// Sends what the link takes; messages that went whole, or cannot go, are told to `ended`. True when anything did.
    pub(super) fn push(
        &mut self,
        peer: usize,
        link: &mut dyn Link,
        shown: &Option<Shown<'_, '_>>,
        ended: &mut Vec<(Ticket, Result<Delivery>)>,
    ) -> bool {
        let mut moved = false;
        while let Some(letter) = self.out.front_mut() {
            let Some(body) = letter.body.bytes(letter.ticket, shown) else { break };
            match letter.frame.advance(link, body) {
                Ok(some) => moved |= some,
                Err(error) => {
                    self.shut(lost(peer, error), ended);
                    return true;
                }
            }
            if !letter.frame.is_done() {
                break;
            }
            if let Some(letter) = self.out.pop_front() {
                ended.push((letter.ticket, Ok(Delivery { buffer: letter.body.into_buffer(), peer })));
            }
        }
        moved
    }

    /// Sends a message whole, if nothing stands before it and the link takes it so.
    pub(super) fn push_whole(&mut self, link: &mut dyn Link, tag: u32, dtype: DType, body: &[u8]) -> Whole {
        if !self.out.is_empty() || self.shut.is_some() {
            return Whole::Never;
        }
        let head = fingerprint(self.epoch, self.sent, tag, dtype, body.len()).encode();
        let went = link.try_send_frame(&head, body);
        self.sent = self.sent.wrapping_add(u32::from(went == Whole::Moved));
        went
    }

    /// Receives a message whole, if it begins with the next byte that comes, the link gives it so, and it is just what is asked for.
    pub(super) fn pull_whole(&mut self, link: &mut dyn Link, tag: u32, dtype: DType, body: &mut [u8]) -> Whole {
        let is_half_way = self.arriving.as_ref().is_some_and(|arriving| arriving.frame.came() > 0);
        if is_half_way || !self.kept.is_empty() || self.lost.is_some() {
            return Whole::Never;
        }
        let head = fingerprint(self.epoch, self.received, tag, dtype, body.len()).encode();
        let came = link.try_recv_frame(&head, body);
        self.received = self.received.wrapping_add(u32::from(came == Whole::Moved));
        came
    }

    /// Ends all messages to this peer: none can be sent any more.
    fn shut(&mut self, error: Error, ended: &mut Vec<(Ticket, Result<Delivery>)>) {
        ended.extend(self.out.drain(..).map(|letter| (letter.ticket, Err(error.clone()))));
        self.shut = Some(error);
    }

    /// Receives one part of the message that is coming in, and returns how many bytes came.
    pub(super) fn pull(
        &mut self,
        peer: usize,
        link: &mut dyn Link,
        checksum: bool,
        shown: &mut Option<Shown<'_, '_>>,
    ) -> Result<usize> {
        let arriving = self.arriving.get_or_insert_with(|| Arriving {
            frame: Incoming::new(Fingerprint::BYTE_LEN, 0, checksum),
            print: None,
            room: None,
        });
        let before = arriving.frame.came();
        let frame = &mut arriving.frame;
        match (frame.next(), &mut arriving.room) {
            (Part::Head, _) => frame.advance_head(link).map(drop),
            (Part::Tail, _) => frame.advance_tail(link).map(drop),
            (Part::Body(left), Some(room)) => room.fill(left, shown, |into| frame.advance_body(link, into)).map(drop),
            (Part::Body(_) | Part::End, _) => Ok(()),
        }
        .map_err(|error| lost(peer, error))?;
        let came = arriving.frame.came() - before;
        if arriving.print.is_none() && arriving.frame.next() != Part::Head {
            self.read_head(peer)?;
        }
        Ok(came)
    }

    /// The fingerprint of a message whose room is not known yet.
    pub(super) fn undecided(&self) -> Option<Fingerprint> {
        self.arriving.as_ref().filter(|arriving| arriving.room.is_none())?.print
    }

    pub(super) fn decide(&mut self, room: Room) {
        if let Some(arriving) = &mut self.arriving {
            arriving.room = Some(room);
        }
    }

    /// The message that was coming in, once it has come whole and its room is known.
    pub(super) fn arrived(&mut self) -> Option<(Fingerprint, Room)> {
        let arriving =
            self.arriving.take_if(|arriving| arriving.frame.next() == Part::End && arriving.room.is_some())?;
        arriving.print.zip(arriving.room)
    }

    pub(super) fn keep(&mut self, print: Fingerprint, body: Vec<u8>) {
        self.kept_byte_len += body.len() + KEPT_OVERHEAD;
        self.kept.entry(print.root).or_default().push_back((print, body));
    }

    /// The oldest kept message with this tag.
    pub(super) fn take_kept(&mut self, tag: u32) -> Option<(Fingerprint, Vec<u8>)> {
        let queue = self.kept.get_mut(&tag)?;
        let (print, body) = queue.pop_front()?;
        if queue.is_empty() {
            self.kept.remove(&tag);
        }
        self.kept_byte_len -= body.len() + KEPT_OVERHEAD;
        Some((print, body))
    }

    /// Memory for a message that nobody asked for yet, while the kept ones stay below `limit`.
    pub(super) fn room_to_keep(&self, print: &Fingerprint, limit: usize) -> Option<Room> {
        let byte_len = body_byte_len(print)?;
        let left = limit.checked_sub(self.kept_byte_len).filter(|&left| left > 0)?;
        (byte_len <= left).then(|| Room::Kept(vec![0; byte_len]))
    }

    /// Ends all messages with this peer that are under way: it can no longer be reached.
    pub(super) fn lose(&mut self, error: &Error, ended: &mut Vec<(Ticket, Result<Delivery>)>) {
        let error = self.lost.get_or_insert_with(|| error.clone()).clone();
        self.shut(error.clone(), ended);
        match self.arriving.take().and_then(|arriving| arriving.room) {
            Some(Room::Posted { ticket, .. } | Room::Refused(ticket, _)) => ended.push((ticket, Err(error))),
            Some(Room::Kept(_) | Room::Unwanted) | None => {}
        }
    }

    /// Whether the next message out or in cannot move, because another thread has its bytes.
    pub(super) fn is_hidden(&self, shown: &Option<Shown<'_, '_>>) -> bool {
        let room = self.arriving.as_ref().and_then(|arriving| arriving.room.as_ref());
        self.out.front().is_some_and(|letter| letter.body.is_hidden(letter.ticket, shown))
            || matches!(room, Some(Room::Posted { ticket, room }) if room.is_hidden(*ticket, shown))
    }

    pub(super) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether something that was asked for is half way in.
    pub(super) fn is_answering(&self) -> bool {
        let room = self.arriving.as_ref().and_then(|arriving| arriving.room.as_ref());
        matches!(room, Some(Room::Posted { .. } | Room::Refused(..)))
    }

    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        self.out.iter().any(|letter| letter.ticket == ticket)
    }

    /// Whether the message that is coming in is this receive's.
    pub(super) fn fills(&self, ticket: Ticket) -> bool {
        let room = self.arriving.as_ref().and_then(|arriving| arriving.room.as_ref());
        matches!(room, Some(Room::Posted { ticket: filled, .. } | Room::Refused(filled, _)) if *filled == ticket)
    }

    /// Checks a head that has come whole, and learns the length of the body from it.
    fn read_head(&mut self, peer: usize) -> Result<()> {
        let Some(arriving) = &mut self.arriving else {
            return Ok(());
        };
        let head = arriving.frame.head().try_into().map_err(|_| corrupt(peer, "a message without a head"))?;
        let print = Fingerprint::decode(head).map_err(|bad| corrupt(peer, bad.to_string()))?;
        let expected = Fingerprint { epoch: self.epoch, sequence: self.received, op: OpKind::Send, ..print };
        if let Some(difference) = expected.difference(&print) {
            let (field, ours, theirs) = (difference.field, difference.ours, difference.theirs);
            return Err(corrupt(peer, format!("a message with {field} {theirs} where {ours} was due")));
        }
        let byte_len = body_byte_len(&print).ok_or_else(|| corrupt(peer, "a message longer than memory"))?;
        self.received = self.received.wrapping_add(1);
        arriving.frame.expect_body(byte_len);
        arriving.print = Some(print);
        Ok(())
    }
}

impl Room {
    /// Calls `read` with what is still to be filled, if that can be now; `left` bytes of the message are still to come.
    fn fill<E>(
        &mut self,
        left: usize,
        shown: &mut Option<Shown<'_, '_>>,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        match self {
            Room::Posted { ticket, room } => {
                let at = room.byte_len() - left;
                room.room(*ticket, shown).map_or(Ok(0), |room| read(&mut room[at..]))
            }
            Room::Kept(body) => {
                let at = body.len() - left;
                read(&mut body[at..])
            }
            Room::Refused(..) | Room::Unwanted => read(&mut [0; 4096]),
        }
    }
}

fn body_byte_len(print: &Fingerprint) -> Option<usize> {
    usize::try_from(print.count).ok()?.checked_mul(print.dtype.byte_len()).filter(|&len| len <= isize::MAX as usize)
}

/// What a kept message takes beside its bytes: its fingerprint, and its place among the others.
const KEPT_OVERHEAD: usize = 256;
