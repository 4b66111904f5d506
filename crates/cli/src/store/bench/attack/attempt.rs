//! One try of a stranger: what it says, and what the server's answer comes to. No socket is seen here.

use phalanx_comm::secure::{Claim, ClientHandshake, ClientStep, JobKey, JobName, Plane, Session};
use phalanx_core::store::wire::{to_wire, torch};
use phalanx_core::store::{Key, Request, Value};

use super::kind::Kind;
use crate::failure::Failure;
use crate::store::bench::system;

/// What strangers know.
#[derive(Debug)]
pub(super) struct Arsenal {
    /// The job key, of which only those that claim too much make use.
    pub(super) key: JobKey,
    /// A key of their own.
    pub(super) other: JobKey,
    /// What a member of the job once said to be let in.
    pub(super) captured: Vec<u8>,
    /// What decides everything random.
    pub(super) random: fastrand::Rng,
}

/// One try.
#[derive(Debug)]
pub(super) struct Attempt {
    kind: Kind,
    manner: Manner,
    /// Bytes that whoever says this much may be sent, because they tell nothing: the challenge, the sealed answer.
    allowed: usize,
    heard: usize,
    admitted: bool,
    told: bool,
}

#[derive(Debug)]
enum Manner {
    /// Everything at once.
    Blurt(Vec<u8>),
    /// The last byte first, which is taken from the end.
    Drip(Vec<u8>),
    /// As a client would.
    Handshake(Box<ClientHandshake>),
}

/// What a try came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) admitted: bool,
    /// It was told, encrypted, why it is not let in.
    pub(super) told: bool,
    /// Bytes that it should not have been sent.
    pub(super) disclosed: usize,
}

impl Arsenal {
    /// A try of this kind.
    pub(super) fn attempt(&mut self, kind: Kind) -> Result<Attempt, Failure> {
        let (manner, allowed) = match kind {
            Kind::NoKey => (Manner::Blurt(words()), 0),
            Kind::WrongKey => (self.handshake(&self.other, member(0)?), CHALLENGE),
            Kind::Replay => (Manner::Blurt(self.captured.clone()), CHALLENGE),
            Kind::TakenRank => (self.handshake(&self.key, member(EPOCH)?), CHALLENGE + ANSWER),
            Kind::OldEpoch => (self.handshake(&self.key, claim(EPOCH - 1)?), CHALLENGE + ANSWER),
            Kind::RandomBytes => {
                let len = self.random.usize(1..=1024);
                (Manner::Blurt((0..len).map(|_| self.random.u8(..)).collect()), 0)
            }
            Kind::Lengths => self.bomb()?,
            Kind::Drip => {
                let mut hello = self.hello()?;
                hello.reverse();
                (Manner::Drip(hello), CHALLENGE)
            }
        };
        Ok(Attempt { kind, manner, allowed, heard: 0, admitted: false, told: false })
    }

    fn handshake(&self, key: &JobKey, claim: Claim) -> Manner {
        Manner::Handshake(Box::new(ClientHandshake::new(Some(key), &claim, Plane::Store)))
    }

    fn hello(&self) -> Result<Vec<u8>, Failure> {
        Ok(ClientHandshake::new(Some(&self.other), &claim(EPOCH)?, Plane::Store).start())
    }

    /// A length that cannot be, in one of the places where lengths stand.
    fn bomb(&mut self) -> Result<(Manner, usize), Failure> {
        let mut bytes = self.hello()?;
        let mut allowed = 0;
        match self.random.u8(..5) {
            0 => bytes[HELLO_LENGTH..HELLO_LENGTH + 2].fill(0xFF),
            1 => bytes[HELLO_LENGTH..HELLO_LENGTH + 2].fill(0),
            2 => bytes[JOB_LENGTH] = 0xFF,
            3 => {
                allowed = CHALLENGE;
                bytes.extend([0xFF; 64]);
            }
            _ => {
                bytes.clear();
                torch::encode_validate(&mut bytes);
                // A set whose key has 2^60 bytes.
                bytes.push(1);
                bytes.extend((1_u64 << 60).to_le_bytes());
            }
        }
        Ok((Manner::Blurt(bytes), allowed))
    }
}

impl Attempt {
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// What is said first.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        match &mut self.manner {
            Manner::Blurt(bytes) => out.append(bytes),
            Manner::Drip(rest) => out.extend(rest.pop()),
            Manner::Handshake(handshake) => out.extend(handshake.start()),
        }
    }

    /// Says another byte of what is said slowly.
    pub(super) fn drip(&mut self, out: &mut Vec<u8>) {
        if let Manner::Drip(rest) = &mut self.manner {
            out.extend(rest.pop());
        }
    }

    /// Takes what the server says.
    pub(super) fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.heard += bytes.len();
        let Manner::Handshake(handshake) = &mut self.manner else { return };
        let mut rest = bytes;
        while !rest.is_empty() {
            let Ok((len, step)) = handshake.receive(rest) else { return };
            rest = &rest[len..];
            match step {
                ClientStep::More => {}
                ClientStep::Send(bytes) => out.extend(bytes),
                ClientStep::Denied(_) => self.told = true,
                ClientStep::Admitted { .. } => self.admitted = true,
            }
        }
    }

    /// What it came to, once the server closed the connection.
    pub(super) fn outcome(&self) -> Outcome {
        let disclosed = self.heard.saturating_sub(self.allowed);
        Outcome { admitted: self.admitted, told: self.told, disclosed }
    }
}

/// What a client of PyTorch says, who looks for state at once.
fn words() -> Vec<u8> {
    let mut words = Vec::new();
    torch::encode_validate(&mut words);
    torch::encode_ping(1, &mut words);
    let key = to_wire(&Key::from(SECRET_KEY));
    for request in [
        Request::Get { keys: vec![key.clone()], wait: false },
        Request::ListKeys,
        Request::Set { pairs: vec![(key, Value::from(&b"mine"[..]))] },
    ] {
        torch::encode_request(&request, &mut words);
    }
    words
}

/// A process that nobody knows, of the job as the server has it.
fn claim(epoch: u32) -> Result<Claim, Failure> {
    Ok(Claim::new(JobName::default(), epoch, Session::mint().map_err(system("random session"))?))
}

/// The same with the rank that the measured member has.
fn member(epoch: u32) -> Result<Claim, Failure> {
    claim(epoch)?.member(RANK, WORLD).map_err(system("claim"))
}

/// The epoch that the server is in, which is not the first one.
pub(super) const EPOCH: u32 = 1;
/// The rank that the measured member has, of so many.
pub(super) const RANK: u32 = 0;
pub(super) const WORLD: u32 = 4;
/// What the measured member keeps in the store.
pub(super) const SECRET_KEY: &str = "bench/secret";

// Lengths and places of docs/wire.md, "The hello and the handshake".
const CHALLENGE: usize = 32;
/// The server's message with a welcome or a denial in it: length, key exchange, text, tag.
const ANSWER: usize = 2 + 32 + 256 + 16;
const HELLO_LENGTH: usize = 8;
const JOB_LENGTH: usize = 12;

#[cfg(test)]
mod tests {
    use phalanx_comm::secure::{Claimant, Denial, ServerHandshake, ServerStep, Welcome};

    use super::*;

    fn arsenal() -> Arsenal {
        let mint = || JobKey::mint().expect("a key");
        let mut arsenal =
            Arsenal { key: mint(), other: mint(), captured: Vec::new(), random: fastrand::Rng::with_seed(1) };
        arsenal.captured = arsenal.hello().expect("a hello");
        arsenal.captured.extend([0; 50]);
        arsenal
    }

    /// What a try comes to before a server that answers as `decide` says to whoever has proven the key.
    fn outcome(arsenal: &mut Arsenal, kind: Kind, decide: fn(Claimant) -> Vec<u8>) -> Outcome {
        let mut server = ServerHandshake::new(Some(&arsenal.key), Plane::Store);
        let mut attempt = arsenal.attempt(kind).expect("a try");
        let mut said = Vec::new();
        attempt.begin(&mut said);
        while let Some(bytes) = (!said.is_empty()).then(|| std::mem::take(&mut said)) {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let Ok((len, step)) = server.receive(rest) else { return attempt.outcome() };
                rest = &rest[len..];
                match step {
                    ServerStep::More => attempt.drip(&mut said),
                    ServerStep::Send(bytes) => attempt.receive(&bytes, &mut said),
                    ServerStep::Claimed(claimant) => attempt.receive(&decide(*claimant), &mut said),
                }
            }
        }
        attempt.outcome()
    }

    fn deny(claimant: Claimant) -> Vec<u8> {
        claimant.deny(&Denial::Full { why: "closed".to_owned() }).expect("random bytes")
    }

    fn admit(claimant: Claimant) -> Vec<u8> {
        claimant.admit(&Welcome { instance: 1, epoch: EPOCH }).expect("random bytes").0
    }

    #[test]
    fn a_good_server_tells_only_those_who_have_the_key() {
        let mut arsenal = arsenal();
        for kind in Kind::ALL {
            // Of bombs there are several.
            for _ in 0..20 {
                let expected = Outcome { admitted: false, told: kind.has_key(), disclosed: 0 };
                assert_eq!(outcome(&mut arsenal, kind, deny), expected, "{kind}");
            }
        }
    }

    #[test]
    fn a_server_that_lets_strangers_in_is_found_out() {
        let mut arsenal = arsenal();
        for kind in [Kind::TakenRank, Kind::OldEpoch] {
            assert!(outcome(&mut arsenal, kind, admit).admitted, "{kind}");
        }
    }

    #[test]
    fn every_byte_too_many_is_counted() {
        let mut arsenal = arsenal();
        for (kind, allowed) in [(Kind::NoKey, 0), (Kind::RandomBytes, 0), (Kind::Replay, 32), (Kind::WrongKey, 32)] {
            let mut attempt = arsenal.attempt(kind).expect("a try");
            attempt.receive(&vec![0; allowed], &mut Vec::new());
            assert_eq!(attempt.outcome().disclosed, 0, "{kind}");
            attempt.receive(&[0; 5], &mut Vec::new());
            assert_eq!(attempt.outcome().disclosed, 5, "{kind}");
        }
    }
}
