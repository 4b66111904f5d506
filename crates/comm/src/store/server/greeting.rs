//! The first words of a connection: which dialect it speaks, and for ours who it is. What is asked later is not read here.

use phalanx_core::store::wire::{Sink, torch};

use super::connection::Ending;
use super::counts::Rejection;
use super::gate::Gate;
use super::line::Line;
use crate::secure::{Claimant, ServerHandshake, ServerStep};

/// How far a newcomer has come.
#[derive(Debug)]
pub(super) enum Greeting {
    /// Nothing that decides the dialect was heard.
    Silent,
    /// It speaks ours.
    Hello(Box<ServerHandshake>),
}

/// Who a newcomer turned out to be.
#[derive(Debug)]
pub(super) enum Introduced {
    /// A client of PyTorch's protocol, which does not say who it is.
    Torch,
    /// A client of ours, which waits for an answer.
    Native(Box<Claimant>),
}

impl Greeting {
    /// Reads what is in the inbox. None as long as more has to come.
    pub(super) fn hear(&mut self, line: &mut Line, gate: &Gate) -> Result<Option<Introduced>, Ending> {
        loop {
            match self {
                Greeting::Silent if line.inbox.is_empty() => return Ok(None),
                Greeting::Silent => match dialect(line.inbox.unread(), gate.is_open())? {
                    Dialect::Unknown => return Ok(None),
                    Dialect::Torch => {
                        line.inbox.skip(VALIDATE.len());
                        return Ok(Some(Introduced::Torch));
                    }
                    Dialect::Native => *self = Greeting::hello(gate),
                },
                Greeting::Hello(handshake) => return shake(handshake, line),
            }
        }
    }

    /// Whether the hello was understood, and the proof is to come.
    pub(super) fn is_challenged(&self) -> bool {
        matches!(self, Greeting::Hello(handshake) if handshake.is_challenged())
    }

    /// Goes on with a hello.
    pub(super) fn hello(gate: &Gate) -> Greeting {
        Greeting::Hello(Box::new(gate.handshake()))
    }
}

enum Dialect {
    Unknown,
    Torch,
    Native,
}

/// What the first bytes are. With a key nobody is asked in PyTorch's words.
fn dialect(start: &[u8], open: bool) -> Result<Dialect, Ending> {
    match start {
        start if open && start.starts_with(&VALIDATE) => Ok(Dialect::Torch),
        start if open && VALIDATE.starts_with(start) => Ok(Dialect::Unknown),
        [HELLO, ..] => Ok(Dialect::Native),
        // Clients of ours begin so too where they have no key.
        start if start.starts_with(&VALIDATE) => {
            Err(Ending::Rejected(Rejection::Mode, "it came without a key, in PyTorch's words".to_owned()))
        }
        _ => Err(garbage(start)),
    }
}

fn garbage(start: &[u8]) -> Ending {
    let start = &start[..start.len().min(SHOWN)];
    Ending::Rejected(Rejection::Garbage, format!("first bytes \"{}\"", start.escape_ascii()))
}

fn shake(handshake: &mut ServerHandshake, line: &mut Line) -> Result<Option<Introduced>, Ending> {
    while !line.inbox.is_empty() {
        let (taken, step) = handshake.receive(line.inbox.unread())?;
        line.inbox.skip(taken);
        match step {
            ServerStep::More => {}
            ServerStep::Send(bytes) => line.outbox.put(&bytes),
            ServerStep::Claimed(claimant) => return Ok(Some(Introduced::Native(claimant))),
        }
    }
    Ok(None)
}

/// What a client of PyTorch's protocol says first.
const VALIDATE: [u8; 5] = {
    let magic = torch::MAGIC.to_le_bytes();
    [0, magic[0], magic[1], magic[2], magic[3]]
};
/// How our hello begins.
pub(super) const HELLO: u8 = b'P';
/// How much of bad first words is told to the log.
const SHOWN: usize = 16;
