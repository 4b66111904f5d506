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
