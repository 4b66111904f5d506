//! Our own frames, heard and answered: every request has an answer, a refusal too, and every cancel has one.

use phalanx_core::store::wire::{Sink, native};
use phalanx_core::store::{Asked, ClientId, Limits, Refusal, Reply, Request, Ticket};

use super::connection::Ending;
use super::counts::Rejection;
use super::desk::{Desk, Letter};
use super::line::Line;

/// A client that speaks our frames.
#[derive(Debug)]
pub(super) struct NativeSpeech {
    decoder: native::Decoder,
    /// The request that waits; nothing but a cancel may come before its answer.
    waiting: Option<Ticket>,
    /// What is left of a frame that was refused for its length.
    overlong: u64,
}

impl NativeSpeech {
    pub(super) fn new(desk: &Desk) -> NativeSpeech {
        NativeSpeech { decoder: native::Decoder::new(desk.limits), waiting: None, overlong: 0 }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Deals with the next message; whether there was one.
    pub(super) fn hear(&mut self, client: ClientId, line: &mut Line, desk: &mut Desk) -> Result<bool, Ending> {
        if self.overlong > 0 {
            return Ok(self.pass_over(line));
        }
        if let Some(len) = overlong(line.inbox.unread(), &desk.limits).filter(|_| !self.is_waiting()) {
            self.overlong = HEAD + len;
            let limit = desk.limits.message_byte_len() as u64;
            say(Err(Refusal::MessageTooLong { len, limit }), &mut line.outbox, desk);
            return Ok(true);
        }
        let decoded = self.decoder.decode(line.inbox.unread());
        let Some((message, len)) = decoded.map_err(|error| breach(&error))? else { return Ok(false) };
        line.inbox.skip(len);
        match message {
            native::Message::Cancel => self.cancel(line, desk),
            _ if self.is_waiting() => return Err(breach(&"a request while another waits")),
            native::Message::Request(request) => self.ask(client, request, line, desk),
            native::Message::Refuse(refusal) => say(Err(refusal), &mut line.outbox, desk),
        }
        Ok(true)
    }

    /// Answers the request that waited.
    pub(super) fn answer(&mut self, letter: Letter, out: &mut impl Sink, desk: &Desk) {
        if self.waiting.take_if(|ticket| *ticket == letter.ticket).is_some() {
            say(letter.answer, out, desk);
        }
    }

    /// Passes over what has come of an overlong frame; whether anything had.
    fn pass_over(&mut self, line: &mut Line) -> bool {
        let here = line.inbox.unread().len();
        let len = usize::try_from(self.overlong).map_or(here, |left| left.min(here));
        line.inbox.skip(len);
        self.overlong -= len as u64;
        len > 0
    }

    /// What was done before the cancel came is answered before it: it may be what was taken from a queue.
    fn cancel(&mut self, line: &mut Line, desk: &mut Desk) {
        if let Some(ticket) = self.waiting.take() {
            match desk.table.answer_to(ticket) {
                Some(answer) => say(answer, &mut line.outbox, desk),
                None => drop(desk.table.cancel(ticket)),
            }
        }
        native::encode_answer(&native::Answer::Cancelled, &desk.limits, &mut line.outbox);
    }

    fn ask(&mut self, client: ClientId, request: Request, line: &mut Line, desk: &mut Desk) {
        match desk.ask(client, request) {
            Asked::Answered(answer) => say(answer, &mut line.outbox, desk),
            Asked::Waiting(ticket) => self.waiting = Some(ticket),
        }
    }
}

fn say(answer: Result<Reply, Refusal>, out: &mut impl Sink, desk: &Desk) {
    native::encode_answer(&native::Answer::Answered(answer), &desk.limits, out);
}

/// The length of the frame that begins here, if it is longer than any may be. It is refused and passed over, so that a client
/// learns the limit instead of losing its connection.
fn overlong(start: &[u8], limits: &Limits) -> Option<u64> {
    let len = u32::from_le_bytes(*start.first_chunk()?);
    (len as usize > limits.message_byte_len()).then_some(len.into())
}

fn breach(what: &dyn std::fmt::Display) -> Ending {
    Ending::Rejected(Rejection::Breach, what.to_string())
}

/// A frame's length and kind come before its body.
const HEAD: u64 = 5;
