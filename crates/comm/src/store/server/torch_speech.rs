//! PyTorch's words, heard and answered. It has no refusals: where one is due the connection ends.

use phalanx_core::store::wire::{Sink, torch};
use phalanx_core::store::{Asked, ClientId, Refusal, Reply, Request, Ticket, Verb};

use super::connection::Ending;
use super::counts::Rejection;
use super::desk::{Desk, Letter};
use super::greeting::HELLO;
use super::line::Line;

/// A client that speaks as PyTorch does.
#[derive(Debug)]
pub(super) struct TorchSpeech {
    decoder: torch::Decoder,
    /// The request that waits. While it does, a client may ping, cancel, and ask for what is answered at once.
    waiting: Option<(Ticket, Verb)>,
    /// It asked whether we speak our own frames, so that a hello may come.
    probed: bool,
}

/// What came of the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It was dealt with.
    Message,
    /// It is not there yet, or not all of it.
    Nothing,
    /// A hello begins: the client goes on in our words.
    Hello,
}

impl TorchSpeech {
    pub(super) fn new(desk: &Desk) -> TorchSpeech {
        TorchSpeech { decoder: torch::Decoder::new(desk.limits.unshared()), waiting: None, probed: false }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Deals with the next message.
    pub(super) fn hear(&mut self, client: ClientId, line: &mut Line, desk: &mut Desk) -> Result<Heard, Ending> {
        if self.probed && self.waiting.is_none() && line.inbox.unread().first() == Some(&HELLO) {
            return Ok(Heard::Hello);
        }
        let decoded = self.decoder.decode(line.inbox.unread());
        let Some((message, len)) = decoded.map_err(|error| breach(&error))? else { return Ok(Heard::Nothing) };
        line.inbox.skip(len);
        match message {
            torch::Message::Validate(_) => return Err(breach(&"a second greeting")),
            torch::Message::Ping(nonce) => self.pong(nonce, line),
            torch::Message::CancelWait => self.cancel(line, desk),
            torch::Message::Request(request) => self.ask(client, request, line, desk)?,
        }
        Ok(Heard::Message)
    }

    /// Answers the request that waited.
    pub(super) fn answer(&mut self, letter: &Letter, out: &mut impl Sink) -> Result<(), Ending> {
        match self.waiting.take_if(|(ticket, _)| *ticket == letter.ticket) {
            Some((_, verb)) => say(verb, &letter.answer, out),
            None => Ok(()),
        }
    }

    fn pong(&mut self, nonce: u32, line: &mut Line) {
        self.probed |= nonce == torch::PROBE;
        torch::encode_pong(if nonce == torch::PROBE { !nonce } else { nonce }, &mut line.outbox);
    }

    /// Whether the wait was answered before or is given up now, the cancel has an answer of its own.
    fn cancel(&mut self, line: &mut Line, desk: &mut Desk) {
        if let Some((ticket, _)) = self.waiting.take() {
            desk.table.cancel(ticket);
        }
        torch::encode_cancelled(&mut line.outbox);
    }

    fn ask(&mut self, client: ClientId, request: Request, line: &mut Line, desk: &mut Desk) -> Result<(), Ending> {
        // These words know no refusal, and PyTorch's own store no shares: a client would be cut off for what it may do there.
        desk.table.exempt(client);
        let verb = request.verb();
        if request.waits() && self.is_waiting() {
            return Err(breach(&format_args!("{verb} while another request waits")));
        }
        if let Request::Pop { key, .. } = &request {
            let before = desk.ask(client, Request::QueueLen { key: key.clone() });
            return pop(before, desk.ask(client, request), &mut line.outbox);
        }
        match desk.ask(client, request) {
            Asked::Answered(answer) => say(verb, &answer, &mut line.outbox)?,
            Asked::Waiting(ticket) => self.waiting = Some((ticket, verb)),
        }
        self.answer_own_wait(desk, &mut line.outbox)
    }

    /// What the client did itself may be what it waits for: it sees its answers in their order.
    fn answer_own_wait(&mut self, desk: &mut Desk, out: &mut impl Sink) -> Result<(), Ending> {
        let Some((ticket, verb)) = self.waiting else { return Ok(()) };
        let Some(answer) = desk.table.answer_to(ticket) else { return Ok(()) };
        self.waiting = None;
        say(verb, &answer, out)
    }
}

fn say(verb: Verb, answer: &Result<Reply, Refusal>, out: &mut impl Sink) -> Result<(), Ending> {
    match (torch::encode_reply(verb, answer, out), answer) {
        (true, _) => Ok(()),
        (false, Err(refusal)) => Err(breach(&format_args!("{verb}: {refusal}"))),
        (false, Ok(reply)) => Err(breach(&format_args!("{verb} answered with {reply:?}"))),
    }
}

/// What was popped goes with the queue's length before.
fn pop(before: Asked, popped: Asked, out: &mut impl Sink) -> Result<(), Ending> {
    match (before, popped) {
        (Asked::Answered(Ok(Reply::Number(before))), Asked::Answered(Ok(Reply::Values(values)))) => {
            torch::encode_popped(before, values.first().and_then(Option::as_ref), out);
            Ok(())
        }
        (_, Asked::Answered(answer)) => say(Verb::Pop, &answer, out),
        (_, Asked::Waiting(_)) => Err(breach(&"a pop that waits")),
    }
}

fn breach(what: &dyn std::fmt::Display) -> Ending {
    Ending::Rejected(Rejection::Breach, what.to_string())
}
