//! Both sides as they should be.

use super::super::*;
use super::pair::*;

#[test]
fn both_sides_agree_and_talk() {
    for key in [Some(key(1)), None] {
        let Conversation { mut client, mut server, .. } = converse(key.as_ref());
        assert_eq!((client.is_sealed(), server.is_sealed()), (key.is_some(), key.is_some()));
        for text in [&b"to the server"[..], b"", b"again"] {
            let (mut wire, mut plain) = (Vec::new(), Vec::new());
            client.seal(text, &mut wire).expect("numbers left");
            assert_eq!(server.open(&wire, &mut plain).expect("honest"), wire.len());
            assert_eq!(plain, text);
            let (mut wire, mut plain) = (Vec::new(), Vec::new());
            server.seal(text, &mut wire).expect("numbers left");
            assert_eq!(client.open(&wire, &mut plain).expect("honest"), wire.len());
            assert_eq!(plain, text);
        }
    }
}

#[test]
fn a_denied_client_is_told_why() {
    let denial = Denial::RankTaken { rank: 1, by: "10.0.0.9".to_owned() };
    for key in [Some(key(1)), None] {
        let (mut client, mut server) = (client(key.as_ref()), server(key.as_ref()));
        let mut step = feed_server(&mut server, &client.start(), 1).expect("an honest client");
        if let ServerStep::Send(challenge) = &step {
            let ClientStep::Send(proof) = feed_client(&mut client, challenge, 1).expect("a challenge") else {
                panic!("a challenge is answered");
            };
            step = feed_server(&mut server, &proof, 1).expect("the right key");
        }
        let ServerStep::Claimed(claimant) = step else { panic!("not proven") };
        assert_eq!(claimant.has_proven(), key.is_some());
        let answer = claimant.deny(&denial).expect("random bytes");
        let ClientStep::Denied(told) = feed_client(&mut client, &answer, 1).expect("an answer") else {
            panic!("let in");
        };
        assert_eq!(told, denial);
        assert!(matches!(client.receive(b"more"), Err(HandshakeError::Ended)));
        assert!(matches!(server.receive(b"more"), Err(HandshakeError::Ended)));
    }
}

#[test]
fn messages_may_be_cut_anywhere() {
    let whole = converse(Some(&key(1)));
    let longest = whole.from_server.iter().chain(&whole.from_client).map(Vec::len).max().expect("messages");
    for size in 1..=longest {
        let key = key(1);
        let (mut client, mut server) = (client(Some(&key)), server(Some(&key)));
        let ServerStep::Send(challenge) = feed_server(&mut server, &client.start(), size).expect("a hello") else {
            panic!("not challenged")
        };
        let ClientStep::Send(proof) = feed_client(&mut client, &challenge, size).expect("a challenge") else {
            panic!("a challenge is answered")
        };
        let ServerStep::Claimed(claimant) = feed_server(&mut server, &proof, size).expect("the right key") else {
            panic!("not proven")
        };
        let (answer, _) = claimant.admit(&welcome()).expect("random bytes");
        let step = feed_client(&mut client, &answer, size).expect("an answer");
        assert!(matches!(step, ClientStep::Admitted { .. }), "pieces of {size}");
    }
}

#[test]
fn bytes_that_belong_to_what_follows_are_left() {
    let (client, mut server) = (client(None), server(None));
    let hello = client.start();
    let (taken, step) = server.receive(&[&hello[..], b"first request"].concat()).expect("a hello");
    assert_eq!(taken, hello.len());
    let ServerStep::Claimed(claimant) = step else { panic!("plain claims need no proof") };
    let (answer, mut tunnel) = claimant.admit(&welcome()).expect("plain");
    let mut plain = Vec::new();
    assert_eq!(tunnel.open(b"first request", &mut plain), Ok(13));
    assert_eq!((answer.len(), &plain[..]), (256, &b"first request"[..]));
    let mut client = client;
    let (taken, step) = client.receive(&[&answer[..], b"first reply"].concat()).expect("an answer");
    assert!(matches!((taken, step), (256, ClientStep::Admitted { .. })));
}

#[test]
fn the_hello_is_as_documented() {
    let bytes = client(Some(&key(1))).start();
    let mut expected = b"PHALANX\x01\x24\x00\x01\x01\x05train".to_vec();
    expected.extend([7, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0]);
    expected.extend([9; 16]);
    assert_eq!(bytes, expected);
    let whole = converse(Some(&key(1)));
    let lens = |messages: &[Vec<u8>]| messages.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!((lens(&whole.from_client), lens(&whole.from_server)), (vec![46, 50], vec![32, 306]));
}

#[test]
fn every_claim_comes_through() {
    let claims = [
        Claim::new(JobName::new("a").expect("a name"), 0, Session::from([0; 16])),
        Claim::new(JobName::new(&"j".repeat(64)).expect("a name"), u32::MAX, Session::from([255; 16])).world(9),
        claim().member(u32::MAX - 1, u32::MAX).expect("a rank of the world"),
    ];
    for claim in claims {
        let hello = ClientHandshake::new(None, &claim, Plane::Store).start();
        assert!(hello.len() <= 105);
        let ServerStep::Claimed(claimant) = feed_server(&mut server(None), &hello, 1).expect("a hello") else {
            panic!("plain claims need no proof")
        };
        assert_eq!(claimant.claim(), &claim);
    }
}

#[test]
fn nothing_shows_the_key() {
    let secret =
        JobKey::from_hex("c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4").expect("64 digits");
    let Conversation { client: tunnel, .. } = converse(Some(&secret));
    let mut server = server(Some(&secret));
    let before = format!("{:?} {server:?} {tunnel:?}", client(Some(&secret)));
    let _ = feed_server(&mut server, &client(Some(&secret)).start(), 46).expect("a hello");
    for shown in [before, format!("{server:?}")] {
        let lower = shown.to_lowercase();
        assert!(!lower.contains("c5c6") && !lower.contains("197, 198") && !lower.contains("c5, c6"), "{shown}");
    }
}
