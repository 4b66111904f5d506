//! Any bytes in any pieces to both sides of the handshake, at every stage of it, and to the records that follow.
//!
//! The first byte of an input chooses the stage, the second the pieces; the rest is what arrives. Nothing may panic, more
//! may never be taken than was given, a stranger is told at most a challenge, and nobody is let in who lacks the key.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use phalanx_comm::secure::{
    Claim, ClientHandshake, ClientStep, HandshakeError, JobKey, JobName, Plane, ServerHandshake, ServerStep, Session,
    Tunnel, Welcome,
};

fuzz_target!(|input: &[u8]| {
    let [stage, pieces, bytes @ ..] = input else { return };
    let pieces = Pieces { bytes, state: *pieces };
    // Stages with curve arithmetic take a hundred times as long, so they come less often.
    match stage % 16 {
        0..4 => to_keyed_server(ServerHandshake::new(Some(key()), Plane::Store), pieces),
        4..8 => to_keyed_server(challenged_server(), pieces),
        8..11 => to_plain_server(pieces),
        11..14 => to_plain_client(pieces),
        14 => to_keyed_client(pieces),
        _ => to_tunnel(pieces),
    }
});

/// What arrives, in pieces whose lengths follow from one byte.
struct Pieces<'a> {
    bytes: &'a [u8],
    state: u8,
}

impl<'a> Pieces<'a> {
    /// The next piece, which `take` says how much it took of.
    fn feed<T, E>(&mut self, take: impl FnOnce(&'a [u8]) -> Result<(usize, T), E>) -> Option<Result<T, E>> {
        if self.bytes.is_empty() {
            return None;
        }
        self.state = self.state.wrapping_mul(5).wrapping_add(3);
        let len = match self.state % 4 {
            0 => self.bytes.len(),
            _ => usize::from(self.state).min(self.bytes.len()).max(1),
        };
        Some(take(&self.bytes[..len]).map(|(taken, step)| {
            assert!(taken <= len, "took {taken} of {len} bytes");
            self.bytes = &self.bytes[taken..];
            step
        }))
    }
}

fn to_keyed_server(mut server: ServerHandshake, mut pieces: Pieces<'_>) {
    let mut told = 0;
    while let Some(step) = pieces.feed(|piece| server.receive(piece)) {
        match step {
            Ok(ServerStep::More) => {}
            Ok(ServerStep::Send(bytes)) => told += bytes.len(),
            Ok(ServerStep::Claimed(claimant)) => panic!("let in without the key: {claimant:?}"),
            Err(_) => {
                assert!(matches!(server.receive(b"P"), Err(HandshakeError::Ended)), "goes on after a refusal");
                break;
            }
        }
    }
    assert!(told <= 32, "told a stranger {told} bytes");
}

/// A claim that is understood is written again as it was read.
fn to_plain_server(mut pieces: Pieces<'_>) {
    let all = pieces.bytes;
    let mut server = ServerHandshake::new(None, Plane::Store);
    while let Some(Ok(step)) = pieces.feed(|piece| server.receive(piece)) {
        match step {
            ServerStep::More => {}
            ServerStep::Send(_) => panic!("a challenge without a key"),
            ServerStep::Claimed(claimant) => {
                let again = ClientHandshake::new(None, claimant.claim(), Plane::Store).start();
                assert_eq!(again, all[..all.len() - pieces.bytes.len()]);
                let (answer, tunnel) = claimant.admit(&welcome()).expect("nothing random in a plain answer");
                assert!(answer.len() == 256 && !tunnel.is_sealed());
                break;
            }
        }
    }
}

fn to_keyed_client(mut pieces: Pieces<'_>) {
    let mut client = ClientHandshake::new(Some(key()), &claim(), Plane::Store);
    let mut told = client.start().len();
    while let Some(Ok(step)) = pieces.feed(|piece| client.receive(piece)) {
        match step {
            ClientStep::More => {}
            ClientStep::Send(bytes) => told += bytes.len(),
            step => panic!("believed a server without the key: {step:?}"),
        }
    }
    assert!(told <= 96, "sent {told} bytes");
}

/// A denial that is understood says so in one line.
fn to_plain_client(mut pieces: Pieces<'_>) {
    let mut client = ClientHandshake::new(None, &claim(), Plane::Store);
    while let Some(Ok(step)) = pieces.feed(|piece| client.receive(piece)) {
        match step {
            ClientStep::More => {}
            ClientStep::Send(_) => panic!("a proof without a key"),
            ClientStep::Admitted { tunnel, .. } => assert!(!tunnel.is_sealed()),
            ClientStep::Denied(denial) => {
                let text = denial.to_string();
                assert!(text.len() < 1000 && !text.contains(char::is_control), "{text:?}");
            }
        }
    }
}

/// Bytes in the place of records: nothing of them is opened, and nothing after them is.
fn to_tunnel(mut pieces: Pieces<'_>) {
    let (mut client, mut server) = tunnels();
    let mut plain = Vec::new();
    let mut refused = None;
    let mut rest = Vec::new();
    while let Some(step) = pieces.feed(|piece| {
        rest.extend_from_slice(piece);
        server.open(&rest, &mut plain).map(|taken| (piece.len(), taken))
    }) {
        match step {
            Ok(taken) => assert_eq!(taken, 0, "opened what nobody sealed"),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert!(plain.is_empty());
    let mut wire = Vec::new();
    client.seal(b"honest", &mut wire).expect("numbers left");
    assert_eq!(server.open(&wire, &mut plain).is_err(), refused.is_some());
}

/// A server that waits for the proof of somebody's hello.
fn challenged_server() -> ServerHandshake {
    let mut server = ServerHandshake::new(Some(key()), Plane::Store);
    let hello = ClientHandshake::new(Some(key()), &claim(), Plane::Store).start();
    let step = server.receive(&hello);
    assert!(matches!(step, Ok((_, ServerStep::Send(_)))), "{step:?}");
    server
}

/// Both ends of an honest conversation.
fn tunnels() -> (Tunnel, Tunnel) {
    let mut client = ClientHandshake::new(Some(key()), &claim(), Plane::Store);
    let mut server = ServerHandshake::new(Some(key()), Plane::Store);
    let Ok((_, ServerStep::Send(challenge))) = server.receive(&client.start()) else { panic!("no challenge") };
    let Ok((_, ClientStep::Send(proof))) = client.receive(&challenge) else { panic!("no proof") };
    let Ok((_, ServerStep::Claimed(claimant))) = server.receive(&proof) else { panic!("not proven") };
    let (answer, theirs) = claimant.admit(&welcome()).expect("random bytes");
    let Ok((_, ClientStep::Admitted { tunnel, .. })) = client.receive(&answer) else { panic!("not let in") };
    (tunnel, theirs)
}

fn key() -> &'static JobKey {
    static KEY: OnceLock<JobKey> = OnceLock::new();
    KEY.get_or_init(|| JobKey::mint().expect("random bytes"))
}

fn claim() -> Claim {
    let job = JobName::new("train").expect("a name");
    Claim::new(job, 7, Session::from([9; 16])).member(1, 4).expect("a rank of the world")
}

fn welcome() -> Welcome {
    Welcome { instance: 1, epoch: 7 }
}
