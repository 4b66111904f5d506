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
