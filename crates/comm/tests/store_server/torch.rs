//! PyTorch's protocol, byte for byte as PyTorch's own client and server speak it.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use phalanx_comm::store::StoreServer;
use phalanx_core::store::wire::torch::{self, PROBE};
use phalanx_core::store::{Reply, Request, Value};

use crate::client::{Native, claim, connect, counts, get, is_closed, local, read, set, start, wait};

/// Bytes from hexadecimal digits, with texts between quotes.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        let digits: String = part.split_whitespace().collect();
        let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
        match index % 2 {
            0 => bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap())),
            _ => bytes.extend_from_slice(part.as_bytes()),
        }
    }
    bytes
}

const GREETING: &str = "00 cef7853c 0d 374b0000";

/// What a client says and what the server answers, in PyTorch's own traces.
const TRACES: [(&str, &str); 22] = [
    (GREETING, "374b0000"),
    // set k v1, get k
    ("01 0200000000000000 \"/k\" 0200000000000000 \"v1\"", ""),
    ("06 0100000000000000 0200000000000000 \"/k\"", "00"),
    ("03 0200000000000000 \"/k\"", "0200000000000000 \"v1\""),
    // add ctr 5, -2
    ("04 0400000000000000 \"/ctr\" 0500000000000000", "0500000000000000"),
    ("04 0400000000000000 \"/ctr\" feffffffffffffff", "0300000000000000"),
    // a worker joins
    ("04 0500000000000000 \"init/\" 0100000000000000", "0100000000000000"),
    // compare_set: creates, replaces, does not replace, does not create
    ("02 0100000000000000 \"c\" 0000000000000000 0100000000000000 \"1\"", "0100000000000000 \"1\""),
    ("02 0100000000000000 \"c\" 0100000000000000 \"1\" 0100000000000000 \"2\"", "0100000000000000 \"2\""),
    ("02 0100000000000000 \"c\" 0100000000000000 \"1\" 0100000000000000 \"3\"", "0100000000000000 \"2\""),
    ("02 0100000000000000 \"d\" 0100000000000000 \"1\" 0100000000000000 \"3\"", "0100000000000000 \"1\""),
    // check: both, one absent, none
    ("05 0200000000000000 0200000000000000 \"/k\" 0100000000000000 \"c\"", "00"),
    ("05 0200000000000000 0200000000000000 \"/k\" 0100000000000000 \"x\"", "01"),
    ("05 0000000000000000", "00"),
    // num_keys, delete, delete again
    ("07", "0400000000000000"),
    ("08 0100000000000000 \"c\"", "0100000000000000"),
    ("08 0100000000000000 \"c\"", "0000000000000000"),
    // append, multi_set, multi_get
    ("09 0200000000000000 \"/k\" 0100000000000000 \"+\"", ""),
    ("0b 0200000000000000 0100000000000000 \"m\" 0100000000000000 \"1\" 0100000000000000 \"n\" 0000000000000000", ""),
    (
        "0a 0300000000000000 0200000000000000 \"/k\" 0100000000000000 \"m\" 0100000000000000 \"n\"",
        "0300000000000000 \"v1+\" 0100000000000000 \"1\" 0000000000000000",
    ),
    // a queue: push twice, its length, pop with the length before
    (
        "0e 0100000000000000 \"q\" 0200000000000000 \"e1\" 0e 0100000000000000 \"q\" 0200000000000000 \"e2\" \
         10 0100000000000000 \"q\" 0f 0100000000000000 \"q\" 0f 0100000000000000 \"q\" 0f 0100000000000000 \"q\"",
        "0200000000000000 0200000000000000 0200000000000000 \"e1\" 0100000000000000 0200000000000000 \"e2\" \
         0000000000000000",
    ),
    // an absent value, a cancel with nothing to cancel, a ping, a barrier of one
    (
        "03 0100000000000000 \"x\" 0c 0d 01020304 12 0100000000000000 \"b\" 0100000000000000",
        "0000000000000000 01 01020304 00",
    ),
];

fn greet(server: &StoreServer) -> TcpStream {
    let mut stream = connect(server);
    stream.write_all(&bytes(GREETING)).unwrap();
    assert_eq!(read(&mut stream, 4), bytes("374b0000"));
    stream
}

fn encoded(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    torch::encode_request(request, &mut bytes);
    bytes
}

#[test]
fn answers_are_pytorchs_byte_for_byte() {
    let server = start(local());
    let mut stream = connect(&server);
    for (said, answered) in TRACES {
        stream.write_all(&bytes(said)).unwrap();
        let answered = bytes(answered);
        assert_eq!(read(&mut stream, answered.len()), answered, "to {said}");
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(is_closed(&mut stream));
}

#[test]
fn one_byte_at_a_time_and_all_at_once_are_the_same() {
    let said = bytes(&TRACES.map(|(said, _)| said).join(" "));
    let answered = bytes(&TRACES.map(|(_, answered)| answered).join(" "));
    for cut in [1, 7, said.len()] {
        let server = start(local());
        let mut stream = connect(&server);
        for piece in said.chunks(cut) {
            stream.write_all(piece).unwrap();
        }
        assert_eq!(read(&mut stream, answered.len()), answered, "{cut} at a time");
    }
}

#[test]
fn a_wait_is_answered_when_its_keys_come() {
    let server = start(local());
    let (mut waiter, mut setter) = (greet(&server), greet(&server));
    waiter.write_all(&bytes("06 0200000000000000 0100000000000000 \"a\" 0100000000000000 \"b\"")).unwrap();
    counts(&server, |counts| counts.waiting == 1);
    setter.write_all(&encoded(&set("a", "1"))).unwrap();
    setter.write_all(&encoded(&Request::Delete { key: "a".into() })).unwrap();
    assert_eq!(read(&mut setter, 8), 1_i64.to_le_bytes());
    assert_eq!(server.counts().waiting, 1);
    setter.write_all(&encoded(&set("b", "1"))).unwrap();
    assert_eq!(read(&mut waiter, 1), [0]);
    assert_eq!(server.counts().waiting, 0);
}

#[test]
fn a_cancel_is_always_answered_and_after_the_wait() {
    let server = start(local());
    let (mut waiter, mut setter) = (greet(&server), greet(&server));
    // Cancelled before its key came; a ping in between is answered at once.
    waiter.write_all(&[encoded(&wait("a")), bytes("0d 09000000 0c 0d 0a000000")].concat()).unwrap();
    assert_eq!(read(&mut waiter, 9), bytes("09000000 01 0a000000"));
    // Answered before it was cancelled.
    waiter.write_all(&encoded(&wait("a"))).unwrap();
    counts(&server, |counts| counts.waiting == 1);
    setter.write_all(&encoded(&set("a", ""))).unwrap();
    counts(&server, |counts| counts.waiting == 0);
    waiter.write_all(&[0x0c]).unwrap();
    assert_eq!(read(&mut waiter, 2), [0, 1]);
    // Its own set, between wait and cancel.
    waiter.write_all(&[encoded(&wait("z")), encoded(&set("z", "1")), vec![0x0c], encoded(&get("z"))].concat()).unwrap();
    assert_eq!(read(&mut waiter, 11), bytes("00 01 0100000000000000 \"1\""));
}

#[test]
fn cancel_and_answer_race_to_one_of_two_orders() {
    let server = start(local());
    let (mut waiter, mut setter) = (greet(&server), greet(&server));
    let (mut won, mut lost) = (0, 0);
    for round in 0..300 {
        let key = format!("key {round}");
        waiter.write_all(&encoded(&wait(&key))).unwrap();
        let mut cancels = waiter.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| setter.write_all(&encoded(&set(&key, "1"))).unwrap());
            scope.spawn(|| cancels.write_all(&[0x0c]).unwrap());
        });
        match read(&mut waiter, 1)[0] {
            0 => {
                assert_eq!(read(&mut waiter, 1), [1]);
                won += 1;
            }
            answer => {
                assert_eq!(answer, 1);
                lost += 1;
            }
        }
        waiter.write_all(&bytes("0d 07000000")).unwrap();
        assert_eq!(read(&mut waiter, 4), bytes("07000000"), "after {won} won and {lost} lost");
    }
}

#[test]
fn who_goes_away_waits_no_longer() {
    let server = start(local());
    let mut waiter = greet(&server);
    waiter.write_all(&encoded(&wait("never"))).unwrap();
    counts(&server, |counts| counts.waiting == 1 && counts.connections == 1);
    drop(waiter);
    let counts = counts(&server, |counts| counts.connections == 0);
    assert_eq!((counts.waiting, counts.byte_len, counts.unread_byte_len, counts.unsent_byte_len), (0, 0, 0, 0));
}

#[test]
fn what_cannot_be_answered_ends_the_connection_and_nothing_else() {
    let server = start(local());
    let mut other = greet(&server);
    let refused = [
        // A second greeting, an opcode that is none, another hello, a number to add to that is none.
        bytes("00 cef7853c"),
        bytes("13"),
        b"PHALANX\x01".to_vec(),
        [encoded(&set("text", "abc")), encoded(&Request::Add { key: "text".into(), delta: 1 })].concat(),
        // A second wait while the first waits.
        [encoded(&wait("x")), encoded(&wait("y"))].concat(),
        // Lengths that nobody means.
        bytes("01 ffffffffffffff7f"),
        bytes("01 0100000000000000 \"k\" ffffffffffffffff"),
        bytes("06 ffffffffffffffff"),
        bytes("0a 0100000000000100 0000000000000000"),
        bytes("0b 0000000000000080"),
        // One byte more than a key, and than a value, may have.
        bytes("03 0120000000000000"),
        bytes("01 0100000000000000 \"k\" 0100800000000000"),
    ];
    for said in refused {
        let mut stream = greet(&server);
        stream.write_all(&said).unwrap();
        assert!(is_closed(&mut stream), "after {said:?}");
    }
    other.write_all(&encoded(&get("text"))).unwrap();
    assert_eq!(read(&mut other, 11), bytes("0300000000000000 \"abc\""));
    assert_eq!(counts(&server, |counts| counts.connections == 1).waiting, 0);
}

#[test]
fn our_own_clients_recognise_us_and_go_on_in_our_frames() {
    let server = start(local());
    let mut stream = connect(&server);
    let probe = [bytes("00 cef7853c 0d"), PROBE.to_le_bytes().to_vec()].concat();
    stream.write_all(&probe).unwrap();
    assert_eq!(read(&mut stream, 4), (!PROBE).to_le_bytes());
    // Either way of speaking is open now.
    stream.write_all(&encoded(&set("/k", "v"))).unwrap();
    let mut native = Native::join(stream, None, &claim(None)).unwrap();
    assert_eq!(native.ask(get("/k")), Ok(Reply::Values(vec![Some(Value::from(b"v".to_vec()))])));
}
