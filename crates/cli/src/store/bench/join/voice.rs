//! How one client speaks to a store: the bytes it sends, and what it makes of those that come. No socket is seen here.

use phalanx_comm::secure::{ClientHandshake, ClientStep, Tunnel};
use phalanx_core::store::wire::{native, torch};
use phalanx_core::store::{Limits, Reply, Request};

/// One of the two ways to speak to a store. A request is said once the one before was answered.
#[derive(Debug)]
pub(super) enum Voice {
    /// PyTorch's words, in clear.
    Clear(Clear),
    /// A job key's handshake, then our frames, encrypted.
    Keyed(Box<Keyed>),
}

/// What a client heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The server knows the client now.
    Greeting,
    /// The answer to what was asked.
    Reply(Reply),
}

/// PyTorch's words.
#[derive(Debug, Default)]
pub(super) struct Clear {
    is_greeted: bool,
    expects: Option<torch::Answer>,
}

/// Our frames within a tunnel, once the handshake gave one.
#[derive(Debug)]
pub(super) struct Keyed {
    handshake: ClientHandshake,
    tunnel: Option<Tunnel>,
    answers: native::Answers,
    opened: Vec<u8>,
}

impl Voice {
    /// PyTorch's words.
    pub(super) fn clear() -> Voice {
        Voice::Clear(Clear::default())
    }

    /// Our frames behind `handshake`.
    pub(super) fn keyed(handshake: ClientHandshake) -> Voice {
        let answers = native::Answers::new(&Limits::default());
        Voice::Keyed(Box::new(Keyed { handshake, tunnel: None, answers, opened: Vec::new() }))
    }

    /// Appends the first bytes of the conversation to `out`.
    pub(super) fn greet(&mut self, out: &mut Vec<u8>) {
        match self {
            Voice::Clear(clear) => {
                torch::encode_validate(out);
                clear.ping(out);
            }
            Voice::Keyed(keyed) => out.extend(keyed.handshake.start()),
        }
    }

    /// Appends a request to `out`.
    pub(super) fn ask(&mut self, request: &Request, out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Voice::Clear(clear) => {
                clear.ask(request, out);
                Ok(())
            }
            Voice::Keyed(keyed) => keyed.ask(request, out),
        }
    }

    /// Takes what it understands from the front of `inbox`, and appends to `out` what has to be said to that.
    pub(super) fn hear(&mut self, inbox: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Option<Heard>, String> {
        match self {
            Voice::Clear(clear) => clear.hear(inbox),
            Voice::Keyed(keyed) => keyed.hear(inbox, out),
        }
    }
}

impl Clear {
    fn ping(&mut self, out: &mut Vec<u8>) {
        torch::encode_ping(NONCE, out);
        self.expects = Some(torch::Answer::pong(NONCE));
    }

    /// A `set` has no answer in these words, so a ping follows it, as PyTorch's own tools and our client do.
    fn ask(&mut self, request: &Request, out: &mut Vec<u8>) {
        torch::encode_request(request, out);
        match request {
            Request::Set { .. } => self.ping(out),
            other => self.expects = Some(torch::Answer::to(other)),
        }
    }

    fn hear(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Heard>, String> {
        let Some(answer) = &mut self.expects else {
            return if inbox.is_empty() { Ok(None) } else { Err("the server spoke unasked".to_owned()) };
        };
        let decoded = answer.decode(inbox, &Limits::default()).map_err(|malformed| malformed.to_string())?;
        let Some((reply, len)) = decoded else { return Ok(None) };
        inbox.drain(..len);
        self.expects = None;
        let was_greeted = std::mem::replace(&mut self.is_greeted, true);
        Ok(Some(if was_greeted { Heard::Reply(reply) } else { Heard::Greeting }))
    }
}

impl Keyed {
    fn ask(&mut self, request: &Request, out: &mut Vec<u8>) -> Result<(), String> {
        let tunnel = self.tunnel.as_mut().ok_or("nothing can be asked before the handshake's end")?;
        let mut frame = Vec::new();
        native::encode_request(request, &mut frame).map_err(|refusal| refusal.to_string())?;
        tunnel.seal(&frame, out).map_err(|error| error.to_string())
    }

    fn hear(&mut self, inbox: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Option<Heard>, String> {
        match &mut self.tunnel {
            None => self.shake(inbox, out),
            Some(tunnel) => {
                let len = tunnel.open(inbox, &mut self.opened).map_err(|error| error.to_string())?;
                inbox.drain(..len);
                self.reply()
            }
        }
    }

    fn shake(&mut self, inbox: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<Option<Heard>, String> {
        while !inbox.is_empty() {
            let (len, step) = self.handshake.receive(inbox).map_err(|error| error.to_string())?;
            inbox.drain(..len);
            match step {
                ClientStep::More => {}
                ClientStep::Send(bytes) => out.extend(bytes),
                ClientStep::Denied(denial) => return Err(denial.to_string()),
                ClientStep::Admitted { tunnel, .. } => {
                    self.tunnel = Some(tunnel);
                    return Ok(Some(Heard::Greeting));
                }
            }
        }
        Ok(None)
    }

    fn reply(&mut self) -> Result<Option<Heard>, String> {
        let decoded = self.answers.decode(&self.opened).map_err(|malformed| malformed.to_string())?;
        let Some((answer, len)) = decoded else { return Ok(None) };
        self.opened.drain(..len);
        match answer {
            native::Answer::Answered(Ok(reply)) => Ok(Some(Heard::Reply(reply))),
            native::Answer::Answered(Err(refusal)) => Err(refusal.to_string()),
            native::Answer::Cancelled => Err("the server cancelled what nobody gave up".to_owned()),
        }
    }
}

/// Any number but the one by which our own clients ask who answers.
const NONCE: u32 = 1;
