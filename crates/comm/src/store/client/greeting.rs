//! The first words on a new connection: who we are, what the server speaks, and whether it lets us in.

use std::time::Instant;

use phalanx_core::store::wire::torch;

use super::connection::{Connection, Dialect};
use super::options::Speech;
use super::stream::Stream;
use super::trouble::Trouble;
use crate::secure::{Claim, ClientHandshake, ClientStep, HandshakeError, JobKey, Plane, Tunnel, Welcome};

/// What a client says of itself on every connection.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) key: Option<JobKey>,
    pub(super) claim: Claim,
    pub(super) speech: Speech,
}

impl Greeting {
    /// Is let in over `stream` by `until`. A server of ours also says which one it is.
    pub(super) fn greet(&self, mut stream: Stream, until: Instant) -> Result<(Connection, Option<Welcome>), Trouble> {
        if self.key.is_none() && !(probe(&mut stream, until).map_err(keyless)? && self.speech == Speech::Either) {
            return Ok((Connection::new(stream, Tunnel::plain(), Dialect::PyTorch), None));
        }
        let (tunnel, welcome) = self.shake_hands(&mut stream, until)?;
        Ok((Connection::new(stream, tunnel, Dialect::Native), Some(welcome)))
    }

    fn shake_hands(&self, stream: &mut Stream, until: Instant) -> Result<(Tunnel, Welcome), Trouble> {
        let mut handshake = ClientHandshake::new(self.key.as_ref(), &self.claim, Plane::Store);
        send(stream, &handshake.start(), until)?;
        let mut proved = false;
        loop {
            match fill(stream, until) {
                Ok(()) => {}
                Err(Trouble::Closed(_)) if proved => return Err(Trouble::Unwelcome(handshake.closed().to_owned())),
                Err(Trouble::Closed(_)) => return Err(Trouble::Closed(handshake.closed().to_owned())),
                Err(other) => return Err(other),
            }
            let (taken, step) = handshake.receive(stream.inbox()).map_err(not_ours)?;
            stream.used(taken);
            match step {
                ClientStep::More => {}
                ClientStep::Send(bytes) => {
                    send(stream, &bytes, until)?;
                    proved = true;
                }
                ClientStep::Admitted { welcome, tunnel } => return Ok((tunnel, welcome)),
                ClientStep::Denied(denial) => return Err(Trouble::Denied(denial.to_string())),
            }
        }
    }
}

/// Opens as PyTorch's clients do; whether the server also knows our frames.
fn probe(stream: &mut Stream, until: Instant) -> Result<bool, Trouble> {
    let mut opening = Vec::new();
    torch::encode_validate(&mut opening);
    torch::encode_ping(torch::PROBE, &mut opening);
    send(stream, &opening, until)?;
    let nonce = loop {
        match stream.inbox().first_chunk() {
            Some(nonce) => break u32::from_le_bytes(*nonce),
            None => fill(stream, until)?,
        }
    };
    stream.used(size_of_val(&nonce));
    match nonce {
        torch::PROBE => Ok(false),
        _ if nonce == !torch::PROBE => Ok(true),
        _ => Err(Trouble::Broken(format!("no store answers there: the ping came back as {nonce:#010x}"))),
    }
}

fn send(stream: &mut Stream, bytes: &[u8], until: Instant) -> Result<(), Trouble> {
    stream.send(bytes, until, &mut 0).map_err(silent)
}

fn fill(stream: &mut Stream, until: Instant) -> Result<(), Trouble> {
    if stream.fill(until)? { Ok(()) } else { Err(silent(Trouble::Late)) }
}

/// A server that asks for a key gives no answer at all to who has none.
fn keyless(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Closed(_) => Trouble::Closed(NO_KEY.to_owned()),
        other => other,
    }
}

fn silent(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Late => Trouble::Silent("it does not answer the greeting".to_owned()),
        other => other,
    }
}

fn not_ours(error: HandshakeError) -> Trouble {
    match error {
        HandshakeError::Key | HandshakeError::Version { .. } | HandshakeError::Wiped => {
            Trouble::Denied(error.to_string())
        }
        other => Trouble::Broken(other.to_string()),
    }
}

const NO_KEY: &str = "the server closed the connection: it asks for a key, and none was given, or is no store";
