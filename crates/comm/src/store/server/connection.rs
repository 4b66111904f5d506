//! One client of the server, from its first byte to its last: what it may do in one turn, and how it ends.

use std::time::Instant;

use mio::Token;
use phalanx_core::store::ClientId;
use phalanx_core::store::wire::Sink;

use super::clerk::{Answer, Clerk};
use super::counts::Rejection;
use super::desk::{Desk, Letter};
use super::gate::Gate;
use super::greeting::{Greeting, Introduced};
use super::line::{Line, LineError};
use super::native_speech::NativeSpeech;
use super::socket::Peer;
use super::torch_speech::{Heard, TorchSpeech};
use crate::secure::{Claim, Claimant, HandshakeError};

/// A client and how far it has come.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: Peer,
    pub(super) line: Line,
    /// Whether it stands in a queue for its turn.
    pub(super) is_queued: bool,
    id: ClientId,
    stage: Stage,
    claim: Option<Claim>,
    /// Whether everything that came was dealt with, up to the beginning of a message.
    hungry: bool,
}

#[derive(Debug)]
enum Stage {
    Greeting(Greeting),
    /// It has said who it is, and the clerk writes the answer.
    Claimed,
    Torch(TorchSpeech),
    Native(NativeSpeech),
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct House {
    pub(super) gate: Gate,
    pub(super) clerk: Clerk,
    pub(super) desk: Desk,
    pub(super) now: Instant,
    /// Whether too many answers are on their way: nobody has another before the last has gone.
    pub(super) is_heavy: bool,
    /// What one read may bring.
    pub(super) scratch: Box<[u8]>,
}

/// What is left to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until the socket or a letter brings something.
    Rest,
    /// More than one turn allows.
    Again,
}

/// How a connection ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// The client went, or the way to it broke.
    Left,
    /// The server ends it: why, and what is known.
    Rejected(Rejection, String),
}

impl Connection {
    pub(super) fn new(id: ClientId, line: Line, peer: Peer) -> Connection {
        let stage = Stage::Greeting(Greeting::Silent);
        Connection { peer, line, is_queued: false, id, stage, claim: None, hungry: true }
    }

    /// What it claimed and was granted.
    pub(super) fn seat(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// Whether it was let in, or said in PyTorch's words that it is a client at all.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self.stage, Stage::Greeting(_) | Stage::Claimed)
    }

    /// Whether the clerk has it in hand.
    pub(super) fn is_claimed(&self) -> bool {
        matches!(self.stage, Stage::Claimed)
    }

    /// How far it has come, in steps of the greeting.
    pub(super) fn step(&self) -> u8 {
        match &self.stage {
            Stage::Greeting(greeting) => greeting.is_challenged().into(),
            Stage::Claimed => 2,
            Stage::Torch(_) | Stage::Native(_) => 3,
        }
    }

    /// One turn: a bounded number of bytes and requests.
    pub(super) fn serve(&mut self, house: &mut House) -> Result<Next, Ending> {
        self.line.send(house.now)?;
        if self.is_claimed() {
            // What it says meanwhile waits in its socket.
            return Ok(Next::Rest);
        }
        if self.hungry && self.line.is_readable() && self.has_room(house) {
            // Who is not known yet has little to say.
            let most = if self.is_known() { house.scratch.len() } else { UNKNOWN };
            self.line.receive(&mut house.scratch[..most])?;
        }
        self.hear(house)?;
        self.line.send(house.now)?;
        if self.hungry && self.line.has_ended() && (self.line.is_flushed() || self.is_waiting()) {
            return Err(Ending::Left);
        }
        Ok(self.next(house))
    }

    /// Tells it whether it is let in.
    pub(super) fn admit(&mut self, answer: Result<Answer, HandshakeError>, desk: &Desk) -> Result<(), Ending> {
        match answer? {
            Answer::Admitted { bytes, tunnel } => {
                self.line.outbox.put(&bytes);
                self.line.enter(tunnel)?;
                self.stage = Stage::Native(NativeSpeech::new(desk));
                Ok(())
            }
            Answer::Denied { bytes, denial } => {
                self.line.outbox.put(&bytes);
                Err(Ending::Rejected(Rejection::from(&denial), denial.to_string()))
            }
        }
    }

    /// Brings the answer to a request that waited.
    pub(super) fn answer(&mut self, letter: Letter, house: &House) -> Result<Next, Ending> {
        match &mut self.stage {
            Stage::Greeting(_) | Stage::Claimed => {}
            Stage::Torch(speech) => speech.answer(&letter, &mut self.line.outbox)?,
            Stage::Native(speech) => speech.answer(letter, &mut self.line.outbox, &house.desk),
        }
        self.line.send(house.now)?;
        Ok(self.next(house))
    }

    /// Deals with what came, as far as one turn allows and answers have room.
    fn hear(&mut self, house: &mut House) -> Result<(), Ending> {
        for _ in 0..REQUESTS {
            if !self.has_room(house) {
                self.hungry = false;
                return Ok(());
            }
            self.hungry = !self.hear_one(house)?;
            if self.hungry {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Deals with the next message; whether there was one.
    fn hear_one(&mut self, house: &mut House) -> Result<bool, Ending> {
        let line = &mut self.line;
        match &mut self.stage {
            Stage::Greeting(greeting) => match greeting.hear(line, &house.gate)? {
                None => return Ok(false),
                Some(Introduced::Torch) => self.stage = Stage::Torch(TorchSpeech::new(&house.desk)),
                Some(Introduced::Native(claimant)) => self.claim(*claimant, house),
            },
            Stage::Claimed => return Ok(false),
            Stage::Torch(speech) => match speech.hear(self.id, line, &mut house.desk)? {
                Heard::Nothing => return Ok(false),
                Heard::Message => {}
                Heard::Hello => self.stage = Stage::Greeting(Greeting::hello(&house.gate)),
            },
            Stage::Native(speech) => return speech.hear(self.id, line, &mut house.desk),
        }
        Ok(true)
    }

    /// Notes who it says it is, and has the answer written.
    fn claim(&mut self, claimant: Claimant, house: &mut House) {
        let verdict = house.gate.judge(claimant.claim(), &self.peer, house.now);
        self.claim = verdict.is_ok().then(|| claimant.claim().clone());
        house.clerk.take(Token(self.id.0 as usize), claimant, verdict);
        self.stage = Stage::Claimed;
    }

    fn next(&self, house: &House) -> Next {
        let can_read = self.has_room(house) && (!self.hungry || self.line.is_readable());
        let can_write = self.line.is_writable() && !self.line.is_flushed();
        if can_read || can_write { Next::Again } else { Next::Rest }
    }

    /// Whether it takes its answers fast enough to ask for more.
    fn has_room(&self, house: &House) -> bool {
        self.line.unsent_byte_len() < if house.is_heavy { 1 } else { UNSENT }
    }

    fn is_waiting(&self) -> bool {
        match &self.stage {
            Stage::Greeting(_) | Stage::Claimed => false,
            Stage::Torch(speech) => speech.is_waiting(),
            Stage::Native(speech) => speech.is_waiting(),
        }
    }
}

impl From<LineError> for Ending {
    fn from(error: LineError) -> Ending {
        match error {
            LineError::Socket(_) => Ending::Left,
            LineError::Tunnel(error) => Ending::Rejected(Rejection::Breach, error.to_string()),
        }
    }
}

impl From<HandshakeError> for Ending {
    fn from(error: HandshakeError) -> Ending {
        Ending::Rejected(Rejection::from(&error), error.to_string())
    }
}

/// The most requests of one client in one turn.
const REQUESTS: usize = 64;
/// A client that has more answers than this to take is not read any further.
const UNSENT: usize = 256 << 10;
/// The most that is read at once from a client that is not known. What a whole greeting may take is less.
const UNKNOWN: usize = 512;
