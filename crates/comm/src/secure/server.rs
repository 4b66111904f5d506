//! The server's side of the door: it reads a hello, challenges, checks the proof, and hands the claim to whoever decides.
//!
//! Of a client that has not proven the key it reads at most 155 bytes. Until then it computes
//! hashes only, and it says nothing but the challenge.

use snow::HandshakeState;

use super::answer::{self, Verdict};
use super::gather::Gather;
use super::hello::{Hello, Mode};
use super::noise::{self, CHALLENGE, PROOF, Side};
use super::{Claim, Denial, HandshakeError, JobKey, Plane, Tunnel, Welcome};

/// A handshake with one client.
#[derive(Debug)]
pub struct ServerHandshake {
    key: Option<JobKey>,
    plane: Plane,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Collecting the hello.
    Hello(Gather),
    /// Challenged; collecting the client's message.
    Proof { gather: Gather, claim: Claim, noise: Box<HandshakeState> },
    /// Claimed or refused.
    Ended,
}

/// What a server does next.
#[derive(Debug)]
#[must_use]
pub enum ServerStep {
    /// Read more.
    More,
    /// Send these bytes, then read more.
    Send(Vec<u8>),
    /// Decide about the claim.
    Claimed(Box<Claimant>),
}

/// A client that proved the key, or in plain mode one that says who it is, and waits for an answer.
#[derive(Debug)]
#[must_use = "a claimant waits for an answer"]
pub struct Claimant {
    claim: Claim,
    noise: Option<Box<HandshakeState>>,
}

impl ServerHandshake {
    /// A handshake that asks for `key`, or for none. Only clients for `plane` are served.
    pub fn new(key: Option<&JobKey>, plane: Plane) -> ServerHandshake {
        ServerHandshake { key: key.cloned(), plane, state: State::Hello(Hello::gather()) }
    }

    /// Whether the client has said hello, and is to prove the key.
    pub(crate) fn is_challenged(&self) -> bool {
        matches!(self.state, State::Proof { .. })
    }

    /// Takes bytes of the client, says how many it took, and what is to be done. Bytes that were not taken belong to what
    /// follows, and are to be brought again where the step is not the last.
    ///
    /// # Errors
    ///
    /// When the client is not one to talk with. The connection is to be closed without another byte.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, ServerStep), HandshakeError> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Hello(gather) => self.receive_hello(gather, bytes),
            State::Proof { gather, claim, noise } => self.receive_proof(gather, claim, noise, bytes),
            State::Ended => Err(HandshakeError::Ended),
        }
    }

    fn receive_hello(&mut self, mut gather: Gather, bytes: &[u8]) -> Result<(usize, ServerStep), HandshakeError> {
        let (taken, hello) = Hello::read(&mut gather, bytes)?;
        let Some(hello) = hello else {
            self.state = State::Hello(gather);
            return Ok((taken, ServerStep::More));
        };
        if hello.plane != self.plane {
            return Err(HandshakeError::Plane { theirs: hello.plane as u8 });
        }
        let step = match (hello.mode, self.key.take()) {
            (Mode::Plain, None) => ServerStep::Claimed(Box::new(Claimant { claim: hello.claim, noise: None })),
            (Mode::Sealed, Some(key)) => self.challenge(&key, hello.claim, gather.bytes())?,
            (Mode::Plain, Some(_)) => return Err(HandshakeError::KeyRequired),
            (Mode::Sealed, None) => return Err(HandshakeError::NoKey),
        };
        Ok((taken, step))
    }

    /// A fresh number makes whatever was recorded of an earlier handshake worthless.
    fn challenge(&mut self, key: &JobKey, claim: Claim, hello: &[u8]) -> Result<ServerStep, HandshakeError> {
        let mut challenge = [0; CHALLENGE];
        getrandom::fill(&mut challenge).map_err(HandshakeError::random)?;
        let noise = noise::begin(key, Side::Server, hello, &challenge)?;
        self.state = State::Proof { gather: Gather::new(2 + PROOF), claim, noise };
        Ok(ServerStep::Send(challenge.to_vec()))
    }

    fn receive_proof(
        &mut self,
        mut gather: Gather,
        claim: Claim,
        mut noise: Box<HandshakeState>,
        bytes: &[u8],
    ) -> Result<(usize, ServerStep), HandshakeError> {
        let taken = gather.take(bytes);
        noise::check_len(gather.bytes(), "proof", PROOF)?;
        if !gather.is_full() {
            self.state = State::Proof { gather, claim, noise };
            return Ok((taken, ServerStep::More));
        }
        noise::read(&mut noise, &gather.bytes()[2..], &mut [])?;
        Ok((taken, ServerStep::Claimed(Box::new(Claimant { claim, noise: Some(noise) }))))
    }
}

impl Claimant {
    /// Who the client says it is.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Whether it proved the key.
    pub fn has_proven(&self) -> bool {
        self.noise.is_some()
    }

    /// Lets the client in: the bytes to send it, and what protects those that follow.
    ///
    /// # Errors
    ///
    /// When the system refuses random numbers. The connection is to be closed.
    pub fn admit(self, welcome: &Welcome) -> Result<(Vec<u8>, Tunnel), HandshakeError> {
        let (bytes, noise) = self.answer(&Ok(*welcome))?;
        let tunnel = match noise {
            Some(noise) => Tunnel::sealed(noise::finish(*noise, Side::Server)?),
            None => Tunnel::plain(),
        };
        Ok((bytes, tunnel))
    }

    /// Sends the client away: the bytes to send before the connection is closed.
    ///
    /// # Errors
    ///
    /// When the system refuses random numbers. The connection is to be closed.
    pub fn deny(self, denial: &Denial) -> Result<Vec<u8>, HandshakeError> {
        Ok(self.answer(&Err(denial.clone()))?.0)
    }

    fn answer(self, verdict: &Verdict) -> Result<(Vec<u8>, Option<Box<HandshakeState>>), HandshakeError> {
        let answer = answer::encode(verdict);
        match self.noise {
            Some(mut noise) => Ok((noise::write(&mut noise, &answer)?, Some(noise))),
            None => Ok((answer.to_vec(), None)),
        }
    }
}
