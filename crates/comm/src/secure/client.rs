//! The client's side of the door: it says who it is, proves the key to a fresh challenge, and reads the answer.

use snow::HandshakeState;

use super::answer::{self, ANSWER, Verdict};
use super::gather::Gather;
use super::hello::{Hello, Mode};
use super::noise::{self, CHALLENGE, PROOF, Side, TAG};
use super::{Claim, Denial, HandshakeError, JobKey, Plane, Tunnel, Welcome};

/// A handshake with one server.
#[derive(Debug)]
pub struct ClientHandshake {
    key: Option<JobKey>,
    hello: Vec<u8>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Collecting the challenge.
    Challenge(Gather),
    /// Collecting the answer; sealed where there is a key.
    Answer { gather: Gather, noise: Option<Box<HandshakeState>> },
    /// Answered or given up.
    Ended,
}

/// What a client does next.
#[derive(Debug)]
#[must_use]
pub enum ClientStep {
    /// Read more.
    More,
    /// Send these bytes, then read more.
    Send(Vec<u8>),
    /// The server lets this client in.
    Admitted {
        /// What the server says of itself.
        welcome: Welcome,
        /// What protects the bytes that follow.
        tunnel: Tunnel,
    },
    /// The server sends this client away, and closes the connection.
    Denied(Denial),
}

impl ClientHandshake {
    /// A handshake that proves `key`, or none, and makes `claim`.
    pub fn new(key: Option<&JobKey>, claim: &Claim, plane: Plane) -> ClientHandshake {
        let mode = if key.is_some() { Mode::Sealed } else { Mode::Plain };
        let hello = Hello { mode, plane, claim: claim.clone() }.encode();
        let state = match mode {
            Mode::Sealed => State::Challenge(Gather::new(CHALLENGE)),
            Mode::Plain => State::Answer { gather: Gather::new(ANSWER), noise: None },
        };
        ClientHandshake { key: key.cloned(), hello, state }
    }

    /// The first bytes to send.
    pub fn start(&self) -> Vec<u8> {
        self.hello.clone()
    }

    /// Takes bytes of the server, says how many it took, and what is to be done. Bytes that were not taken belong to what
    /// follows.
    ///
    /// # Errors
    ///
    /// When this is not the server to talk with. The connection is to be closed.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, ClientStep), HandshakeError> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Challenge(gather) => self.receive_challenge(gather, bytes),
            State::Answer { gather, noise: None } => self.receive_plain(gather, bytes),
            State::Answer { gather, noise: Some(noise) } => self.receive_sealed(gather, noise, bytes),
            State::Ended => Err(HandshakeError::Ended),
        }
    }

    /// What it means when the server closes the connection now, in words.
    pub fn closed(&self) -> &'static str {
        match (&self.state, &self.key) {
            (State::Ended, _) => "the server closed the connection after the handshake",
            (State::Challenge(_), _) => {
                "the server closed the connection without a challenge: it has no key, or speaks another version"
            }
            (State::Answer { .. }, Some(_)) => {
                "the server closed the connection: it has another key, or no time for newcomers"
            }
            (State::Answer { .. }, None) => {
                "the server closed the connection: it asks for a key, or speaks another version"
            }
        }
    }

    fn receive_challenge(&mut self, mut gather: Gather, bytes: &[u8]) -> Result<(usize, ClientStep), HandshakeError> {
        let taken = gather.take(bytes);
        let (Some(key), Ok(challenge)) = (&self.key, gather.bytes().try_into()) else {
            self.state = State::Challenge(gather);
            return Ok((taken, ClientStep::More));
        };
        let mut noise = noise::begin(key, Side::Client, &self.hello, challenge)?;
        let proof = noise::write(&mut noise, &[])?;
        debug_assert_eq!(proof.len(), 2 + PROOF);
        self.state = State::Answer { gather: Gather::new(2 + SEALED_ANSWER), noise: Some(noise) };
        Ok((taken, ClientStep::Send(proof)))
    }

    fn receive_plain(&mut self, mut gather: Gather, bytes: &[u8]) -> Result<(usize, ClientStep), HandshakeError> {
        let taken = gather.take(bytes);
        let Ok(answer) = gather.bytes().try_into() else {
            self.state = State::Answer { gather, noise: None };
            return Ok((taken, ClientStep::More));
        };
        Ok((taken, step(answer::decode(answer)?, Tunnel::plain())))
    }

    fn receive_sealed(
        &mut self,
        mut gather: Gather,
        mut noise: Box<HandshakeState>,
        bytes: &[u8],
    ) -> Result<(usize, ClientStep), HandshakeError> {
        let taken = gather.take(bytes);
        noise::check_len(gather.bytes(), "answer", SEALED_ANSWER)?;
        if !gather.is_full() {
            self.state = State::Answer { gather, noise: Some(noise) };
            return Ok((taken, ClientStep::More));
        }
        let mut answer = [0; ANSWER];
        noise::read(&mut noise, &gather.bytes()[2..], &mut answer)?;
        Ok((taken, step(answer::decode(&answer)?, Tunnel::sealed(noise::finish(*noise, Side::Client)?))))
    }
}

fn step(verdict: Verdict, tunnel: Tunnel) -> ClientStep {
    match verdict {
        Ok(welcome) => ClientStep::Admitted { welcome, tunnel },
        Err(denial) => ClientStep::Denied(denial),
    }
}

/// The bytes of the server's message: its half of the key exchange, the answer and a tag.
const SEALED_ANSWER: usize = 32 + ANSWER + TAG;
