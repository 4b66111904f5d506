//! The Noise handshake as both sides set it up: pattern, prologue and the secret mixed in first.
//!
//! The pattern is `NNpsk0`: no long-lived key pairs, the secret before everything else. Its first message ends with a tag
//! under the secret, so whoever lacks it is known before any Diffie-Hellman is computed.

use std::fmt;

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, StatelessTransportState};
use zeroize::Zeroizing;

use super::{HandshakeError, JobKey};

/// Which side of the handshake this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A secret of each direction, which whoever saw the handshake cannot know.
pub(crate) struct Secrets {
    pub(crate) ours: Zeroizing<[u8; 32]>,
    pub(crate) theirs: Zeroizing<[u8; 32]>,
}

/// Nothing of them.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// A handshake bound to the hello and the challenge, every byte of them.
///
/// The secret is not the job key itself but one derived for this connection alone, because the Noise library keeps copies
/// that it does not wipe.
pub(crate) fn begin(
    key: &JobKey,
    side: Side,
    hello: &[u8],
    challenge: &[u8; CHALLENGE],
) -> Result<Box<HandshakeState>, HandshakeError> {
    let prologue = [hello, challenge].concat();
    let secret = key.derive(LABEL, &prologue)?;
    let pattern = PATTERN.parse().map_err(failed)?;
    let builder = Builder::with_resolver(pattern, Box::new(Primitives));
    let builder = builder.psk(0, &secret).and_then(|builder| builder.prologue(&prologue)).map_err(failed)?;
    let state = match side {
        Side::Client => builder.build_initiator(),
        Side::Server => builder.build_responder(),
    };
    state.map(Box::new).map_err(failed)
}

/// The next message of the handshake with its length in front.
pub(crate) fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut message = vec![0; 2 + POINT + payload.len() + TAG];
    let len = state.write_message(payload, &mut message[2..]).map_err(failed)?;
    message.truncate(2 + len);
    // Neither message of the handshake is longer than 304 bytes.
    message[..2].copy_from_slice(&(len as u16).to_le_bytes());
    Ok(message)
}

/// Reads the peer's message of the handshake into `payload`, which has exactly its length.
pub(crate) fn read(state: &mut HandshakeState, message: &[u8], payload: &mut [u8]) -> Result<(), HandshakeError> {
    match state.read_message(message, payload) {
        Ok(_) => Ok(()),
        Err(_) => Err(HandshakeError::Key),
    }
}

/// The keys of the finished handshake, for both directions: those of the handshake's own records, and secrets from which
/// others are derived.
pub(crate) fn finish(
    mut state: HandshakeState,
    side: Side,
) -> Result<(StatelessTransportState, Secrets), HandshakeError> {
    let (client, server) = state.dangerously_get_raw_split();
    let (client, server) = (Zeroizing::new(client), Zeroizing::new(server));
    let secrets = match side {
        Side::Client => Secrets { ours: client, theirs: server },
        Side::Server => Secrets { ours: server, theirs: client },
    };
    Ok((state.into_stateless_transport_mode().map_err(failed)?, secrets))
}

/// Checks the length in front of a message once it is here.
pub(crate) fn check_len(bytes: &[u8], message: &'static str, expected: usize) -> Result<(), HandshakeError> {
    match bytes {
        &[low, high, ..] if usize::from(u16::from_le_bytes([low, high])) != expected => {
            let len = usize::from(u16::from_le_bytes([low, high]));
            let expected = if expected == PROOF { "exactly 48" } else { "exactly 304" };
            Err(HandshakeError::Length { message, len, expected })
        }
        _ => Ok(()),
    }
}

fn failed(error: snow::Error) -> HandshakeError {
    HandshakeError::System { what: "the Noise handshake", detail: error.to_string() }
}

/// The library's own primitives, and the system's random numbers.
struct Primitives;

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SystemRandom))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let dh = DefaultResolver.resolve_dh(choice);
        #[cfg(test)]
        let dh = dh.map(|dh| Box::new(super::tests::counted::CountedDh(dh)) as Box<dyn Dh>);
        dh
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct SystemRandom;

impl Random for SystemRandom {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        getrandom::fill(bytes).map_err(|_| snow::Error::Rng)
    }
}

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const LABEL: &str = "phalanx handshake";
/// The bytes of a challenge.
pub(crate) const CHALLENGE: usize = 32;
/// The bytes of the client's message, which carries nothing.
pub(crate) const PROOF: usize = POINT + TAG;
const POINT: usize = 32;
/// What authentication adds to every message and record.
pub(crate) const TAG: usize = 16;
