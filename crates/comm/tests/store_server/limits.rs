//! What a server holds is bounded, and what one client does costs the others nothing.

use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use phalanx_comm::store::server::Rejection;
use phalanx_comm::store::{ServerOptions, StoreAddress};
use phalanx_core::store::wire::native;
use phalanx_core::store::wire::torch;
use phalanx_core::store::{Limits, Refusal, Reply, Request, Value};

use crate::client::{Native, claim, connect, counts, get, is_closed, local, read, set, start, wait};

const GREETING: [u8; 5] = *b"\x00\xce\xf7\x85\x3c";

#[test]
fn a_full_client_is_refused_and_the_others_go_on() {
    let server = start(local().limits(Limits::default().client(10_000)));
    let mut greedy = Native::join(connect(&server), None, &claim(None)).unwrap();
    let mut modest = Native::join(connect(&server), None, &claim(None)).unwrap();
    assert_eq!(greedy.ask(set("a", vec![0; 9_000])), Ok(Reply::Done));
    assert!(matches!(greedy.ask(set("b", vec![0; 9_000])), Err(Refusal::ClientFull { limit: 10_000, .. })));
    assert_eq!(modest.ask(set("b", vec![0; 9_000])), Ok(Reply::Done));
    assert_eq!(greedy.ask(Request::Delete { key: "a".into() }), Ok(Reply::Flag(true)));
    assert_eq!(greedy.ask(set("c", vec![0; 9_000])), Ok(Reply::Done));
    assert!(server.counts().byte_len > 18_000 && server.counts().byte_len < 19_000);
}

#[test]
fn in_pytorchs_words_a_refusal_is_the_end_of_the_connection() {
    let server = start(local().limits(Limits::default().total(10_000)));
    let mut greedy = connect(&server);
    let mut said = GREETING.to_vec();
    torch::encode_request(&set("a", vec![0; 11_000]), &mut said);
    greedy.write_all(&said).unwrap();
    assert!(is_closed(&mut greedy));
    assert_eq!(counts(&server, |counts| counts.rejected(Rejection::Breach) == 1).byte_len, 0);
}

/// PyTorch's own store has neither limit, and would have to be told of ours by the end of the connection.
#[test]
fn in_pytorchs_words_one_client_may_have_the_whole_store() {
    let server = start(local().limits(Limits::default().client(10_000).message(10_000).total(100_000)));
    let mut client = connect(&server);
    let both = Request::Get { keys: vec!["a".into(), "b".into()], wait: false };
    let mut said = GREETING.to_vec();
    let requests = [set("a", vec![7; 20_000]), set("b", vec![7; 20_000]), both];
    requests.iter().for_each(|request| torch::encode_request(request, &mut said));
    client.write_all(&said).unwrap();
    let value = [20_000_u64.to_le_bytes().to_vec(), vec![7; 20_000]].concat();
    assert_eq!(read(&mut client, 2 * value.len()), value.repeat(2));
}

#[test]
fn an_overlong_frame_is_refused_and_passed_over() {
    let server = start(local().limits(Limits::default().message(100_000)));
    let mut client = Native::join(connect(&server), None, &claim(None)).unwrap();
    let refused = Err(Refusal::MessageTooLong { len: 200_013, limit: 100_000 });
    for _ in 0..3 {
        assert_eq!(client.ask(set("k", vec![7; 200_000])), refused);
        assert_eq!(client.ask(Request::Ping), Ok(Reply::Done));
    }
    assert_eq!(counts(&server, |counts| counts.unread_byte_len == 0).entries, 0);
}

#[test]
fn an_answer_that_is_too_long_is_refused() {
    let server = start(local().limits(Limits::default().message(10_000)));
    let mut client = Native::join(connect(&server), None, &claim(None)).unwrap();
    for key in ["a", "b"] {
        client.ask(set(key, vec![0; 6_000])).unwrap();
    }
    let both = Request::Get { keys: vec!["a".into(), "b".into()], wait: false };
    assert!(matches!(client.ask(both), Err(Refusal::MessageTooLong { limit: 10_000, .. })));
    assert!(client.ask(get("a")).is_ok());
}

#[test]
fn a_client_that_takes_no_answers_is_read_no_further() {
    let server = start(local());
    let mut lazy = connect(&server);
    let mut other = Native::join(connect(&server), None, &claim(None)).unwrap();
    // A long name, so that few questions fill all buffers.
    let key = "k".repeat(8 << 10);
    other.ask(set(&key, vec![7; 64 << 10])).unwrap();
    lazy.write_all(&GREETING).unwrap();
    lazy.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut one = Vec::new();
    torch::encode_request(&get(&key), &mut one);
    // Asks until the server reads no more.
    let mut asked = 0;
    let stuck = loop {
        match lazy.write(&one[asked % one.len()..]) {
            Ok(len) => asked += len,
            Err(error) => break error,
        }
    };
    assert!(matches!(stuck.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{stuck}");
    let counts = server.counts();
    assert!(counts.unsent_byte_len <= (256 + 65) << 10 && counts.unread_byte_len <= 64 << 10, "{counts:?}");
    other.ask(Request::Ping).unwrap();
    // Once it reads, everything is answered, in order.
    let mut answer = (64_u64 << 10).to_le_bytes().to_vec();
    answer.resize(8 + (64 << 10), 7);
    for _ in 0..asked / one.len() {
        assert_eq!(read(&mut lazy, answer.len()), answer);
    }
}

#[test]
fn thousands_of_answers_share_one_value() {
    let server = start(local());
    let mut other = Native::join(connect(&server), None, &claim(None)).unwrap();
    let mut waiters: Vec<Native> =
        (0..200).map(|_| Native::join(connect(&server), None, &claim(None)).unwrap()).collect();
    waiters.iter_mut().for_each(|waiter| waiter.say(&Request::Get { keys: vec!["k".into()], wait: true }));
    counts(&server, |counts| counts.waiting == 200);
    let value = Value::from(vec![9; 300_000]);
    other.ask(Request::Set { pairs: vec![("k".into(), value.clone())] }).unwrap();
    for waiter in &mut waiters {
        let answered = native::Answer::Answered(Ok(Reply::Values(vec![Some(value.clone())])));
        assert_eq!(waiter.answer(), answered);
    }
    assert_eq!(counts(&server, |counts| counts.unsent_byte_len == 0).waiting, 0);
}

#[test]
fn unfinished_requests_are_bounded_over_all_clients() {
    // Long messages, of which each client sends all but the last byte.
    let server = start(local().limits(Limits::default().message(40 << 20).value(40 << 20)));
    let mut other = Native::join(connect(&server), None, &claim(None)).unwrap();
    let mut unfinished = Vec::new();
    native::encode_request(&set("k", vec![0; 30 << 20]), &mut unfinished).unwrap();
    unfinished.pop();
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let mut client = Native::join(connect(&server), None, &claim(None)).unwrap();
        // Fails where the server had enough.
        let _ = client.stream.write_all(&unfinished);
        greedy.push(client);
    }
    let counts = counts(&server, |counts| counts.rejected(Rejection::Flood) > 0);
    assert!(counts.unread_byte_len <= 80 << 20, "{counts:?}");
    other.ask(set("k", "v")).unwrap();
    other.say(&wait("k"));
    assert_eq!(other.answer(), native::Answer::Answered(Ok(Reply::Done)));
}

/// Each list is a copy. Few clients could fill the server's memory with those that they do not take.
#[test]
fn answers_that_nobody_takes_are_bounded_over_all_clients() {
    let path = std::env::temp_dir().join(format!("phalanx-untaken-{}-{}", std::process::id(), fastrand::u64(..)));
    let address = StoreAddress::unix(&path);
    let server = start(ServerOptions::new(address).limits(Limits::default().message(4 << 20)));
    // Sockets of this kind hold little of what is on its way.
    let connect = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(crate::client::SOON)).unwrap();
        stream.write_all(&GREETING).unwrap();
        stream
    };
    let say = |stream: &mut UnixStream, request: &Request| {
        let mut said = Vec::new();
        torch::encode_request(request, &mut said);
        stream.write_all(&said).unwrap();
    };
    let mut other = connect();
    for number in 0..400 {
        say(&mut other, &set(&format!("{number}/{}", "k".repeat(8000)), "v"));
    }
    let mut greedy: Vec<UnixStream> = (0..60).map(|_| connect()).collect();
    // Who does not take the first gets no second, and where too much is on its way somebody has to go.
    greedy.iter_mut().for_each(|stream| (0..3).for_each(|_| say(stream, &Request::ListKeys)));
    let most = 128 << 20;
    let ended = counts(&server, |counts| {
        assert!(counts.unsent_byte_len <= most, "{counts:?}");
        counts.requests >= 460 && counts.rejected(Rejection::Stalled) > 0
    });
    assert!(ended.unsent_byte_len > most / 2 && ended.rejected(Rejection::Stalled) < 45, "{ended:?}");
    // Whoever takes his answers is served all the while.
    say(&mut other, &get("absent"));
    assert_eq!(read(&mut other, 8), [0; 8]);
}
