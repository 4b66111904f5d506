//! Clients and servers that do not belong: other keys, changed bytes, old bytes, too many bytes.

use super::super::*;
use super::counted;
use super::pair::*;

#[test]
fn a_recorded_handshake_fails_at_the_first_tag_and_costs_no_curve_arithmetic() {
    let ours = key(1);
    let recorded = converse(Some(&ours));
    for _ in 0..3 {
        let mut server = server(Some(&ours));
        let before = counted::count();
        let step = feed_server(&mut server, &recorded.from_client[0], 7).expect("a hello like any other");
        let ServerStep::Send(challenge) = step else { panic!("not challenged") };
        assert_ne!(challenge, recorded.from_server[0], "every challenge is new");
        let end = feed_server(&mut server, &recorded.from_client[1], 7);
        assert!(matches!(end, Err(HandshakeError::Key)), "{end:?}");
        assert_eq!(counted::count(), before);
    }
}

#[test]
fn another_key_is_refused_on_both_sides_without_a_byte() {
    let (ours, theirs) = (key(1), key(2));
    let (mut client, mut server) = (client(Some(&theirs)), server(Some(&ours)));
    let ServerStep::Send(challenge) = feed_server(&mut server, &client.start(), 46).expect("a hello") else {
        panic!("not challenged")
    };
    assert_eq!(challenge.len(), 32);
    let ClientStep::Send(proof) = feed_client(&mut client, &challenge, 32).expect("a challenge") else {
        panic!("a challenge is answered")
    };
    let before = counted::count();
    assert!(matches!(feed_server(&mut server, &proof, 50), Err(HandshakeError::Key)));
    assert_eq!(counted::count(), before);
    assert!(matches!(server.receive(&proof), Err(HandshakeError::Ended)));
    assert_eq!(client.closed(), "the server closed the connection: it has another key, or no time for newcomers");
}

#[test]
fn keyed_and_plain_do_not_meet() {
    let key = key(1);
    let end = server(Some(&key)).receive(&client(None).start());
    assert!(matches!(end, Err(HandshakeError::KeyRequired)), "{end:?}");
    let end = server(None).receive(&client(Some(&key)).start());
    assert!(matches!(end, Err(HandshakeError::NoKey)), "{end:?}");
}

#[test]
fn another_plane_version_or_program_is_turned_away() {
    let key = key(1);
    let hello = ClientHandshake::new(Some(&key), &claim(), Plane::Data).start();
    assert!(matches!(server(Some(&key)).receive(&hello), Err(HandshakeError::Plane { theirs: 3 })));
    let with = |at: usize, value: u8| {
        let mut hello = client(Some(&key)).start();
        hello[at] = value;
        server(Some(&key)).receive(&hello).expect_err("not a hello").to_string()
    };
    assert_eq!(with(7, 2), "the peer speaks version 2 of the protocol, this side version 1");
    assert_eq!(with(10, 2), "protection is 2, must be 0 for none or 1 for the job key");
    assert_eq!(with(11, 9), "the hello is for plane 9, which is not served here");
    assert_eq!(with(13, b' '), "the hello's job is \" rain\", must be 1 to 64 of the characters A-Z a-z 0-9 . _ -");
    assert_eq!(with(22, 4), "the hello's rank is 4, must be below the world size 4");
    let end = server(Some(&key)).receive(b"GET / HTTP/1.1\r\n\r\n").expect_err("another program");
    assert_eq!(end.to_string(), "no hello of Phalanx: the first bytes are \"GET / HT\"");
    assert!(matches!(server(Some(&key)).receive(b"Q"), Err(HandshakeError::Magic { .. })), "at the first byte");
}

/// A conversation in which one bit is not what was sent, or as far as it gets. `flip` is told who sends.
fn converse_with(key: Option<&JobKey>, mut flip: impl FnMut(&mut Vec<u8>)) -> Result<bool, HandshakeError> {
    let (mut client, mut server) = (client(key), server(key));
    let mut to_server = client.start();
    loop {
        flip(&mut to_server);
        let mut to_client = match feed_server(&mut server, &to_server, to_server.len())? {
            ServerStep::More => return Ok(false),
            ServerStep::Send(challenge) => challenge,
            ServerStep::Claimed(claimant) => claimant.admit(&welcome())?.0,
        };
        flip(&mut to_client);
        to_server = match feed_client(&mut client, &to_client, to_client.len())? {
            ClientStep::More => return Ok(false),
            ClientStep::Send(proof) => proof,
            ClientStep::Admitted { .. } => return Ok(true),
            ClientStep::Denied(_) => return Ok(false),
        };
    }
}

/// The bits to flip in a message: all of them, but of a long ciphertext, where each is as good as another, one a byte.
fn bits_of(len: usize) -> impl Iterator<Item = usize> {
    (0..8 * len).filter(|bit| bit / 8 < 50 || bit % 8 == bit / 8 % 8)
}

#[test]
fn every_bit_of_the_handshake_counts() {
    let key = key(1);
    let lens = [46, 32, 50, 306];
    assert!(converse_with(Some(&key), |_| {}).expect("nothing changed"));
    for (message, len) in lens.into_iter().enumerate() {
        for bit in bits_of(len) {
            let mut index = 0;
            let end = converse_with(Some(&key), |bytes| {
                if index == message {
                    assert_eq!(bytes.len(), len);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                index += 1;
            });
            assert!(!matches!(end, Ok(true)), "bit {bit} of message {message} was ignored");
        }
    }
}

#[test]
fn an_answer_from_another_conversation_is_refused() {
    let key = key(1);
    let recorded = converse(Some(&key));
    let mut client = client(Some(&key));
    let step = feed_client(&mut client, &recorded.from_server[0], 32).expect("any challenge will do");
    assert!(matches!(step, ClientStep::Send(_)));
    assert!(matches!(feed_client(&mut client, &recorded.from_server[1], 306), Err(HandshakeError::Key)));
}

#[test]
fn lengths_that_cannot_be_are_refused_before_the_bytes_come() {
    let key = key(1);
    for len in (0..32_u16).chain(96..=u16::MAX) {
        let end = server(Some(&key)).receive(&[&b"PHALANX\x01"[..], &len.to_le_bytes()].concat());
        assert!(matches!(end, Err(HandshakeError::Length { message: "hello", .. })), "{len}: {end:?}");
    }
    for len in [0, 47, 49, u16::MAX] {
        let mut server = server(Some(&key));
        let _ = feed_server(&mut server, &client(Some(&key)).start(), 46).expect("a hello");
        let end = server.receive(&len.to_le_bytes());
        assert!(matches!(end, Err(HandshakeError::Length { message: "proof", .. })), "{len}: {end:?}");
        let mut client = client(Some(&key));
        let _ = feed_client(&mut client, &[0; 32], 32).expect("a challenge");
        let end = client.receive(&len.to_le_bytes());
        assert!(matches!(end, Err(HandshakeError::Length { message: "answer", .. })), "{len}: {end:?}");
    }
}

#[test]
fn a_hello_whose_parts_do_not_add_up_is_refused() {
    let hello = client(None).start();
    for job_len in 0..=255 {
        let mut changed = hello.clone();
        changed[12] = job_len;
        let end = server(None).receive(&changed);
        assert_eq!(end.is_ok(), job_len == 5, "{job_len}: {end:?}");
    }
    for body_len in 32..95_u8 {
        let mut changed = hello.clone();
        changed[8] = body_len;
        changed.resize(105, b'a');
        let end = server(None).receive(&changed);
        assert_eq!(end.is_ok(), body_len == 36, "{body_len}: {end:?}");
    }
}

/// Random bytes, and honest messages with random changes, in random pieces.
fn odd_bytes(random: &mut fastrand::Rng, honest: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes: Vec<u8> = match random.u8(0..3) {
        0 => (0..random.usize(0..400)).map(|_| random.u8(..)).collect(),
        1 => honest[random.usize(0..honest.len())].clone(),
        _ => honest.concat(),
    };
    for _ in 0..random.usize(0..4) {
        match (bytes.len(), random.u8(0..3)) {
            (0, _) => bytes.push(random.u8(..)),
            (len, 0) => bytes.truncate(random.usize(0..len)),
            (len, 1) => bytes.insert(random.usize(0..len), random.u8(..)),
            (len, _) => bytes[random.usize(0..len)] = random.u8(..),
        }
    }
    bytes
}

#[test]
fn a_hundred_thousand_odd_inputs_let_nobody_in() {
    let key = key(1);
    let recorded = converse(Some(&key));
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..100_000 {
        let bytes = odd_bytes(&mut random, &recorded.from_client);
        let (mut server, mut rest, mut sent) = (server(Some(&key)), &bytes[..], 0);
        while !rest.is_empty() {
            let piece = &rest[..random.usize(1..=rest.len())];
            match server.receive(piece) {
                Ok((taken, step)) => {
                    assert!(!matches!(step, ServerStep::Claimed(_)), "let in: {bytes:?}");
                    if let ServerStep::Send(challenge) = step {
                        sent += challenge.len();
                    }
                    rest = &rest[taken..];
                }
                Err(_) => break,
            }
        }
        assert!(sent <= 32, "a stranger was told {sent} bytes");
    }
}

#[test]
fn a_hundred_thousand_odd_answers_let_nobody_in() {
    let key = key(1);
    let recorded = converse(Some(&key));
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..100_000 {
        let bytes = odd_bytes(&mut random, &recorded.from_server);
        // A client computes with curve points for every whole challenge: only some get that far, for the time it takes.
        let bytes = &bytes[..bytes.len().min(if random.u8(0..100) == 0 { usize::MAX } else { 31 })];
        let (mut client, mut rest) = (client(Some(&key)), bytes);
        while !rest.is_empty() {
            match client.receive(&rest[..random.usize(1..=rest.len())]) {
                Ok((taken, step)) => {
                    assert!(matches!(step, ClientStep::More | ClientStep::Send(_)), "believed: {bytes:?}");
                    rest = &rest[taken..];
                }
                Err(_) => break,
            }
        }
    }
}
