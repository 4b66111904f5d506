//! The door while ranks come together: who is let in, who is not, and what is told when nobody opens.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::net::connect::reach;
use crate::net::protection::Protection;
use crate::secure::JobKey;

const TOKEN: [u8; 16] = [6; 16];

fn guard(key: Option<&str>) -> Guard {
    let key = key.map(|byte| JobKey::from_hex(&byte.repeat(32)).expect("a key"));
    Guard { key, protection: Protection::default() }
}

fn hello(from: u32, to: u32) -> Hello {
    Hello { token: TOKEN, epoch: 1, from, to, traffic: Traffic::Control }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Lets `visitors` come to the door of rank 1 of 3, while rank 2 is awaited.
fn at_the_door(guard: &Guard, visitors: impl FnOnce(SocketAddr, &Places)) {
    let door = Door::open(None, false).expect("a free port");
    let places = Places::new(hello(1, 0), 3).expect("an eventfd");
    thread::scope(|scope| {
        let (door, places) = (&door, &places);
        scope.spawn(move || welcome(scope, door, places, guard, soon()));
        visitors((door.addresses[0], door.port).into(), places);
        places.fail();
    });
}

/// Whether the other side closed the connection, having said nothing.
fn is_sent_away(mut stranger: TcpStream) -> bool {
    stranger.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    let mut said = vec![];
    // A stranger whose bytes were not all read is reset.
    stranger.read_to_end(&mut said).map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
        && said.is_empty()
}

#[test]
fn strangers_are_sent_away_and_members_are_let_in_once() {
    let guard = guard(None);
    at_the_door(&guard, |at, places| {
        let silent = TcpStream::connect(at).expect("it listens");
        let wrong = [
            vec![b'x'; 2000],
            b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".to_vec(),
            Hello { token: [0; 16], ..hello(2, 1) }.encode().to_vec(),
            Hello { epoch: 2, ..hello(2, 1) }.encode().to_vec(),
            hello(2, 0).encode().to_vec(),
            hello(0, 1).encode().to_vec(),
            hello(1, 1).encode().to_vec(),
            hello(3, 1).encode().to_vec(),
            hello(u32::MAX, 1).encode().to_vec(),
        ];
        for bytes in wrong {
            let mut stranger = TcpStream::connect(at).expect("it listens");
            // The door may be shut before all is written.
            let _ = stranger.write_all(&bytes);
            assert!(is_sent_away(stranger), "{bytes:?}");
        }
        assert_eq!(places.absent(), [0, 2]);
        let lines = reach(&[at], hello(2, 1), &guard, soon()).expect("a member");
        assert_eq!(lines.len(), 3);
        let again = reach(&[at], hello(2, 1), &guard, soon()).expect_err("taken").to_string();
        assert!(again.starts_with(&format!("rank 1 at {at}: cannot be reached: ")), "{again}");
        assert_eq!(places.absent(), [0]);
        assert!(is_sent_away(silent));
    });
}

#[test]
fn only_who_has_the_key_is_let_in() {
    let ours = guard(Some("07"));
    at_the_door(&ours, |at, places| {
        for key in [Some("08"), None] {
            let error = reach(&[at], hello(2, 1), &guard(key), soon()).expect_err("no member").to_string();
            assert!(error.contains("cannot be reached"), "{error}");
        }
        assert_eq!(places.absent(), [0, 2]);
        let lines = reach(&[at], hello(2, 1), &ours, soon()).expect("a member");
        assert!(lines.iter().all(|(_, line)| line.tunnel.is_sealed()));
    });
}

#[test]
fn a_port_where_nobody_listens_is_named() {
    let door = Door::open(None, false).expect("a free port");
    let at = (door.addresses[0], door.port).into();
    drop(door);
    let error = reach(&[at], hello(2, 1), &guard(None), soon()).expect_err("nobody");
    assert_eq!(error.to_string(), format!("rank 1 at {at}: cannot be reached: connection refused"));
    let error = reach(&[], hello(2, 1), &guard(None), soon()).expect_err("nowhere");
    assert_eq!(error.to_string(), "rank 1: is on another host and listens only at loopback there");
}
