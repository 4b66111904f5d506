//! A client and a server in memory, and the conversations between them as bytes.

use super::super::*;

/// A key made of one byte, 32 times.
pub(super) fn key(byte: u8) -> JobKey {
    JobKey::from_hex(&format!("{byte:02x}").repeat(32)).expect("64 digits")
}

/// Rank 1 of 4 in epoch 7 of job "train".
pub(super) fn claim() -> Claim {
    let job = JobName::new("train").expect("a name");
    Claim::new(job, 7, Session::from([9; 16])).member(1, 4).expect("a rank of the world")
}

pub(super) fn welcome() -> Welcome {
    Welcome { instance: 0x0123_4567_89AB_CDEF, epoch: 7 }
}

/// A client's handshake with the store plane.
pub(super) fn client(key: Option<&JobKey>) -> ClientHandshake {
    ClientHandshake::new(key, &claim(), Plane::Store)
}

/// A server's handshake on the store plane.
pub(super) fn server(key: Option<&JobKey>) -> ServerHandshake {
    ServerHandshake::new(key, Plane::Store)
}

/// Both tunnels, and what each side sent.
pub(super) struct Conversation {
    pub(super) client: Tunnel,
    pub(super) server: Tunnel,
    pub(super) from_client: Vec<Vec<u8>>,
    pub(super) from_server: Vec<Vec<u8>>,
}

/// A whole handshake, every message whole.
pub(super) fn converse(key: Option<&JobKey>) -> Conversation {
    let (mut client, mut server) = (client(key), server(key));
    let (mut from_client, mut from_server) = (vec![client.start()], Vec::new());
    loop {
        let last = from_client.last().expect("the hello at least");
        match feed_server(&mut server, last, last.len()).expect("an honest client") {
            ServerStep::More => panic!("a whole message is not enough"),
            ServerStep::Send(challenge) => {
                from_server.push(challenge.clone());
                let ClientStep::Send(proof) = feed_client(&mut client, &challenge, 32).expect("a challenge") else {
                    panic!("a challenge is answered");
                };
                from_client.push(proof);
            }
            ServerStep::Claimed(claimant) => {
                assert_eq!(claimant.claim(), &claim());
                let (answer, server) = claimant.admit(&welcome()).expect("random bytes");
                from_server.push(answer.clone());
                let step = feed_client(&mut client, &answer, answer.len()).expect("an honest server");
                let ClientStep::Admitted { welcome: told, tunnel: client } = step else {
                    panic!("not let in");
                };
                assert_eq!(told, welcome());
                return Conversation { client, server, from_client, from_server };
            }
        }
    }
}

/// Hands over `bytes` in pieces of at most `size`; the last step. All bytes must be taken.
pub(super) fn feed_server(
    server: &mut ServerHandshake,
    bytes: &[u8],
    size: usize,
) -> Result<ServerStep, HandshakeError> {
    let mut step = ServerStep::More;
    for piece in bytes.chunks(size) {
        assert!(matches!(step, ServerStep::More), "asked to act before the message was whole");
        let (taken, next) = server.receive(piece)?;
        assert_eq!(taken, piece.len(), "bytes left over");
        step = next;
    }
    Ok(step)
}

/// The same for a client.
pub(super) fn feed_client(
    client: &mut ClientHandshake,
    bytes: &[u8],
    size: usize,
) -> Result<ClientStep, HandshakeError> {
    let mut step = ClientStep::More;
    for piece in bytes.chunks(size) {
        assert!(matches!(step, ClientStep::More), "asked to act before the message was whole");
        let (taken, next) = client.receive(piece)?;
        assert_eq!(taken, piece.len(), "bytes left over");
        step = next;
    }
    Ok(step)
}
