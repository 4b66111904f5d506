//! Those who say nothing, the wrong things, or come in numbers; and the door itself.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use phalanx_comm::secure::{ClientHandshake, JobKey, Plane};
use phalanx_comm::store::server::Rejection;
use phalanx_comm::store::{ServerOptions, StoreAddress, StoreServer};
use phalanx_core::store::{Reply, Request};

use crate::client::{Native, SOON, claim, connect, counts, is_closed, local, read, set, start};

const PING: [u8; 10] = *b"\x00\xce\xf7\x85\x3c\x0d\x01\x00\x00\x00";

#[test]
fn bad_first_words_are_the_last() {
    let server = start(local());
    let words: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"P\x00",
        b"PHALANX\x02",
        b"\x00\x00",
        b"\x00\xce\xf7\x85\x3d",
        b"\x0d\x01\x00\x00\x00",
        b"\xff",
    ];
    for said in words {
        let mut stream = connect(&server);
        stream.write_all(said).unwrap();
        assert!(is_closed(&mut stream), "after {said:?}");
    }
    assert_eq!(counts(&server, |counts| counts.newcomers == 0).rejected(Rejection::Garbage), 6);
}

#[test]
fn who_says_nothing_is_sent_away_in_time() {
    let keyed = start(local().key(JobKey::mint().unwrap()));
    for (server, beginning) in [(start(local()), &PING[..4]), (keyed, &b"PHAL"[..])] {
        let since = Instant::now();
        let mut silent = connect(&server);
        let mut hesitant = connect(&server);
        hesitant.write_all(beginning).unwrap();
        assert!(is_closed(&mut silent) && is_closed(&mut hesitant));
        let after = since.elapsed();
        assert!(after >= Duration::from_secs(2) && after < Duration::from_secs(4), "{after:?}");
        counts(&server, |counts| counts.rejected(Rejection::Silent) == 2);
    }
}

#[test]
fn a_word_now_and_then_buys_no_time() {
    let key = JobKey::mint().unwrap();
    let server = start(local().key(key.clone()).patience(Duration::from_millis(300)));
    let hello = ClientHandshake::new(Some(&key), &claim(None), Plane::Store).start();
    let mut stream = connect(&server);
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let deadline = Instant::now() + SOON;
    let mut letters = hello.iter();
    while !is_closed(&mut stream) {
        assert!(Instant::now() < deadline);
        if let Some(letter) = letters.next() {
            // Fails once the server has had enough.
            let _ = stream.write_all(&[*letter]);
        }
    }
    assert!(letters.len() > 0);
    counts(&server, |counts| counts.rejected(Rejection::Silent) == 1);
}

#[test]
fn known_clients_may_be_silent() {
    let server = start(local().patience(Duration::from_millis(100)));
    let mut torch = connect(&server);
    torch.write_all(&PING).unwrap();
    read(&mut torch, 4);
    let mut native = Native::join(connect(&server), None, &claim(None)).unwrap();
    assert!(is_closed(&mut connect(&server)));
    torch.write_all(&PING[5..]).unwrap();
    read(&mut torch, 4);
    native.ask(Request::Ping).unwrap();
}

#[test]
fn patience_may_be_endless() {
    let server = start(local().patience(Duration::MAX));
    let mut torch = connect(&server);
    torch.write_all(&PING).unwrap();
    read(&mut torch, 4);
}

#[test]
fn a_crowd_of_half_said_hellos_keeps_nobody_out() {
    let key = JobKey::mint().unwrap();
    let server = start(local().key(key.clone()).patience(SOON));
    let hello = ClientHandshake::new(Some(&key), &claim(None), Plane::Store).start();
    let mut inside = Native::join(connect(&server), Some(&key), &claim(None)).unwrap();
    let mut crowd: Vec<TcpStream> = (0..300).map(|_| connect(&server)).collect();
    crowd.iter_mut().for_each(|stream| drop(stream.write_all(&hello[..20])));
    let since = Instant::now();
    let mut client = Native::join(connect(&server), Some(&key), &claim(Some(0))).unwrap();
    client.ask(Request::Ping).unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    inside.ask(Request::Ping).unwrap();
    let counts = counts(&server, |counts| counts.newcomers <= 256);
    assert!(counts.rejected(Rejection::Crowded) > 0, "{counts:?}");
    assert_eq!(counts.connections, 2);
}

#[test]
fn a_whole_job_joins_at_once() {
    let key = JobKey::mint().unwrap();
    let server = start(local().key(key.clone()));
    std::thread::scope(|scope| {
        for rank in 0..4 {
            let (server, key) = (&server, &key);
            scope.spawn(move || {
                let claim = claim(Some(rank));
                for round in 0..25 {
                    let mut client = Native::join(connect(server), Some(key), &claim).unwrap();
                    client.ask(set(&format!("{rank}/{round}"), "here")).unwrap();
                }
            });
        }
    });
    let mut client = Native::join(connect(&server), Some(&key), &claim(None)).unwrap();
    assert_eq!(client.ask(Request::NumKeys), Ok(Reply::Number(100)));
    assert_eq!(server.roster().len(), 4);
    assert!(server.counts().rejected.is_empty());
}

#[test]
fn a_restarted_server_has_its_port_at_once() {
    let first = start(local());
    let address = first.address().clone();
    let mut client = connect(&first);
    client.write_all(&PING).unwrap();
    read(&mut client, 4);
    let taken = StoreServer::start(ServerOptions::new(address.clone())).unwrap_err();
    assert!(taken.to_string().ends_with("is in use by another program"), "{taken}");
    drop(first);
    assert!(is_closed(&mut client));
    let second = start(ServerOptions::new(address.clone()));
    assert_eq!(*second.address(), address);
    let mut client = connect(&second);
    client.write_all(&PING).unwrap();
    read(&mut client, 4);
}

#[test]
fn a_unix_socket_serves_as_well_and_leaves_no_file() {
    let path = std::env::temp_dir().join(format!("phalanx-store-server-{}", std::process::id()));
    let key = JobKey::mint().unwrap();
    let server = start(ServerOptions::new(StoreAddress::unix(&path)).key(key));
    let mut stranger = UnixStream::connect(&path).unwrap();
    stranger.write_all(&PING).unwrap();
    assert!(is_closed(&mut stranger));
    drop(server);
    assert!(!path.exists());
    let server = start(ServerOptions::new(StoreAddress::unix(&path)));
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client.write_all(&PING).unwrap();
    assert_eq!(read(&mut client, 4), [1, 0, 0, 0]);
    drop(server);
    assert!(is_closed(&mut client) && !path.exists());
}
