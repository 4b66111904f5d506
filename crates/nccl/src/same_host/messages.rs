//! Messages between two ranks, a piece at a time: two may lie on the sender's desk, and the receiver says when it has taken one.

use super::desk::turn;
use super::lot::{Lot, Message};
use super::member::Member;
use super::post::Post;
use super::rounds::part;
use super::trouble::Trouble;
use crate::api::{Cuda, Span, Status};

impl<C: Cuda> Member<C> {
    /// Copies what this rank sends to itself, which has no other way.
    pub(super) fn copy_to_itself(&self, lot: &mut Lot) -> Result<(), Trouble> {
        let (sends, recvs) = (std::mem::take(&mut lot.sends[self.rank]), std::mem::take(&mut lot.recvs[self.rank]));
        let lens =
            |list: &std::collections::VecDeque<Message>| list.iter().map(|one| one.span.byte_len()).collect::<Vec<_>>();
        if lens(&sends) != lens(&recvs) {
            let words = "what a rank sends to itself it must receive from itself, in the same group of calls";
            return Err(Trouble::new(Status::INVALID_USAGE, words));
        }
        sends.iter().zip(&recvs).try_for_each(|(from, to)| self.copy(to.span, from.span, lot.stream))
    }

    /// Lays the next piece of what is sent to a rank onto the desk; whether that could be done.
    pub(super) fn advance_send(&mut self, lot: &mut Lot, to: usize) -> Result<bool, Trouble> {
        let Some(message) = lot.sends[to].front_mut() else { return Ok(false) };
        let number = self.next_sent[to];
        if let Some(before) = number.checked_sub(2) {
            // The place is taken until the one before the last is not.
            let acknowledged = Post { number: before, what: String::new() };
            if !acknowledged.is_put_by(to, &self.store, &taken(self.rank, to))? {
                return Ok(false);
            }
            let taken = turn(&self.neighbour(to)?.letters.taken, number);
            self.driver("cuStreamWaitEvent", self.cuda.wait_event(lot.stream, taken))?;
        }
        let desk = self.desk.message(to, number)?;
        let piece = message.piece(desk)?;
        self.copy(part(desk, 0, piece.byte_len())?, piece, lot.stream)?;
        let recorded = self.cuda.record_event(turn(&self.desk.letters[to].sent, number), lot.stream);
        self.driver("cuEventRecord", recorded)?;
        Post { number, what: message.words() }.put(&self.store, &sent(self.rank, to))?;
        self.next_sent[to] += 1;
        if message.pass(piece) {
            lot.sends[to].pop_front();
        }
        Ok(true)
    }

    /// Takes the next piece of what a rank sends, if it lies there.
    pub(super) fn advance_recv(&mut self, lot: &mut Lot, from: usize) -> Result<bool, Trouble> {
        let Some(message) = lot.recvs[from].front_mut() else { return Ok(false) };
        let number = self.next_taken[from];
        let post = Post { number, what: message.words() };
        if !post.is_put_by(from, &self.store, &sent(from, self.rank))? {
            return Ok(false);
        }
        let neighbour = self.neighbour(from)?;
        let (desk, sent) = (neighbour.message(self.rank, number)?, turn(&neighbour.letters.sent, number));
        self.driver("cuStreamWaitEvent", self.cuda.wait_event(lot.stream, sent))?;
        let piece = message.piece(desk)?;
        self.copy(piece, part(desk, 0, piece.byte_len())?, lot.stream)?;
        let recorded = self.cuda.record_event(turn(&self.desk.letters[from].taken, number), lot.stream);
        self.driver("cuEventRecord", recorded)?;
        Post { number, what: String::new() }.put(&self.store, &taken(from, self.rank))?;
        self.next_taken[from] += 1;
        if message.pass(piece) {
            lot.recvs[from].pop_front();
        }
        Ok(true)
    }
}

impl Message {
    /// The next piece of it that a place of the desk has room for. One of nothing has one piece.
    fn piece(&self, desk: Span) -> Result<Span, Trouble> {
        let width = self.dtype.byte_len().unwrap_or(1);
        let room = desk.byte_len() / width * width;
        part(self.span, self.done, (self.span.byte_len() - self.done).min(room))
    }

    /// That a piece is done with; whether all of it is.
    fn pass(&mut self, piece: Span) -> bool {
        self.done += piece.byte_len();
        self.done == self.span.byte_len()
    }

    /// What it is, in words that are the same on both sides.
    fn words(&self) -> String {
        let (len, dtype) = (self.span.byte_len(), self.dtype.0);
        format!("a message of {len} bytes of type {dtype}, from byte {}", self.done)
    }
}

fn sent(from: usize, to: usize) -> String {
    format!("sent/{from}/{to}")
}

fn taken(from: usize, to: usize) -> String {
    format!("taken/{from}/{to}")
}
