//! The protocol byte for byte, in every cut, and under bytes that mean harm.

use super::*;
use crate::store::wire::{Malformed, from_wire, to_wire};
use crate::store::{Key, Limits, Refusal, Reply, Request, Value, Verb};

/// Bytes in the notation of docs/wire.md: `|` is for the eye, `02 00..` a number of eight bytes, words are text.
fn bytes(notation: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for word in notation.split_whitespace().filter(|word| *word != "|") {
        match (word, u8::from_str_radix(word, 16)) {
            ("00..", _) => out.extend([0; 7]),
            (_, Ok(byte)) if word.len() == 2 => out.push(byte),
            _ => out.extend(word.trim_matches('"').bytes()),
        }
    }
    out
}

fn wire(request: Request) -> Request {
    request.map_keys(to_wire)
}

fn sent(request: Request) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(&wire(request), &mut out);
    out
}

fn decoded(bytes: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
    Decoder::new(Limits::default()).decode(bytes)
}

fn replied(verb: Verb, reply: Reply) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(encode_reply(verb, &Ok(reply), &mut out));
    out
}

fn answered(request: &Request, bytes: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    Answer::to(request).decode(bytes, &Limits::default())
}

fn key(text: &str) -> Key {
    text.into()
}

fn value(text: &str) -> Value {
    text.as_bytes().into()
}

fn some(text: &str) -> Option<Value> {
    Some(value(text))
}

/// One of each, with the reply that a client of this protocol sees.
fn exchanges() -> Vec<(Request, Reply)> {
    let keys = || vec![key("a"), key(""), key("a")];
    vec![
        (Request::Set { pairs: vec![(key("k"), value("v1"))] }, Reply::Done),
        (Request::Set { pairs: vec![] }, Reply::Done),
        (Request::Set { pairs: vec![(key("k"), value("")), (key("l"), value("v2"))] }, Reply::Done),
        (Request::Get { keys: vec![key("k")], wait: false }, Reply::Values(vec![some("v1")])),
        (Request::Get { keys: vec![], wait: false }, Reply::Values(vec![])),
        (Request::Get { keys: keys(), wait: false }, Reply::Values(vec![some("x"), some(""), some("yz")])),
        (Request::Wait { keys: keys() }, Reply::Done),
        (Request::Wait { keys: vec![] }, Reply::Done),
        (Request::Check { keys: keys() }, Reply::Flag(true)),
        (Request::Check { keys: vec![] }, Reply::Flag(false)),
        (Request::Add { key: key("ctr"), delta: i64::MIN }, Reply::Number(-2)),
        (
            Request::CompareSet { key: key("k"), expected: value(""), desired: value("new") },
            Reply::Values(vec![some("old")]),
        ),
        (Request::Delete { key: key("k") }, Reply::Flag(true)),
        (Request::Delete { key: key("k") }, Reply::Flag(false)),
        (Request::Append { key: key("k"), value: value("more") }, Reply::Done),
        (Request::NumKeys, Reply::Number(7)),
        (Request::ListKeys, Reply::Keys(vec![key("a"), key(""), key("bc")])),
        (Request::ListKeys, Reply::Keys(vec![])),
        (Request::Push { key: key("q"), value: value("e1") }, Reply::Done),
        (Request::Pop { key: key("q"), wait: false }, Reply::Values(vec![some("e1")])),
        (Request::Pop { key: key("q"), wait: false }, Reply::Values(vec![some("")])),
        (Request::Pop { key: key("q"), wait: false }, Reply::Values(vec![None])),
        (Request::QueueLen { key: key("q") }, Reply::Number(0)),
        (Request::Barrier { key: key("b"), size: 3 }, Reply::Done),
    ]
}

#[test]
fn traces_of_pytorch() {
    let set = Request::Set { pairs: vec![(key("k"), value("v1"))] };
    assert_eq!(sent(set), bytes("01 | 02 00.. | 2f 6b | 02 00.. | 76 31"));

    let wait = Request::Wait { keys: vec![key("k")] };
    assert_eq!(sent(wait), bytes("06 | 01 00.. | 02 00.. | 2f 6b"));
    assert_eq!(replied(Verb::Wait, Reply::Done), bytes("00"));
    let get = Request::Get { keys: vec![key("k")], wait: false };
    assert_eq!(sent(get), bytes("03 | 02 00.. | 2f 6b"));
    assert_eq!(replied(Verb::Get, Reply::Values(vec![some("v1")])), bytes("02 00.. | 76 31"));

    let add = Request::Add { key: key("ctr"), delta: -2 };
    assert_eq!(sent(add), bytes("04 | 04 00.. | 2f 63 74 72 | fe ff ff ff ff ff ff ff"));
    assert_eq!(replied(Verb::Add, Reply::Number(3)), bytes("03 00.."));

    let missing = Request::Wait { keys: vec![key("missing")] };
    assert_eq!(sent(missing), bytes("06 | 01 00.. | 08 00.. | \"/missing\""));
    let (mut cancel, mut cancelled) = (vec![], vec![]);
    encode_cancel(&mut cancel);
    encode_cancelled(&mut cancelled);
    assert_eq!((cancel, cancelled), (bytes("0c"), bytes("01")));

    let mut join = vec![];
    encode_request(&Request::Add { key: key("init/"), delta: 1 }, &mut join);
    assert_eq!(join, bytes("04 | 05 00.. | 69 6e 69 74 2f | 01 00.."));
    assert_eq!(replied(Verb::Add, Reply::Number(1)), bytes("01 00.."));

    assert_eq!(sent(Request::Pop { key: key("q"), wait: true }), bytes("0f | 02 00.. | 2f 71"));
    assert_eq!(replied(Verb::Pop, Reply::Values(vec![some("e1")])), bytes("01 00.. | 02 00.. | 65 31"));
}

#[test]
fn the_opening_and_pings() {
    let mut out = vec![];
    encode_validate(&mut out);
    encode_ping(0x4b37, &mut out);
    assert_eq!(out, bytes("00 ce f7 85 3c 0d 37 4b 00 00"));
    assert_eq!(decoded(&out), Ok(Some((Message::Validate(MAGIC), 5))));
    assert_eq!(decoded(&out[5..]), Ok(Some((Message::Ping(0x4b37), 5))));
    let mut pong = vec![];
    encode_pong(0x4b37, &mut pong);
    assert_eq!(pong, bytes("37 4b 00 00"));
    let limits = Limits::default();
    assert_eq!(Answer::pong(0x4b37).decode(&pong, &limits), Ok(Some((Reply::Done, 4))));
    let other = Malformed::Value { what: "the answer to a ping", value: 0x4b37 };
    assert_eq!(Answer::pong(1).decode(&pong, &limits), Err(other));
    assert_eq!(sent(Request::Ping), bytes("0d 00 00 00 00"));
    assert_eq!(answered(&Request::Ping, &[0; 4]), Ok(Some((Reply::Done, 4))));
}

#[test]
fn every_request_in_every_cut() {
    let mut stream = Vec::new();
    let mut ends = Vec::new();
    for (request, _) in exchanges() {
        encode_request(&request, &mut stream);
        ends.push(stream.len());
    }
    encode_cancel(&mut stream);
    let mut decoder = Decoder::new(Limits::default());
    let (mut begin, mut found) = (0, Vec::new());
    for end in 0..=stream.len() {
        if let Some((message, len)) = decoder.decode(&stream[begin..end]).unwrap() {
            begin += len;
            assert_eq!(begin, end, "found as soon as it is there, and not before");
            found.push(message);
        }
    }
    assert_eq!(found.pop(), Some(Message::CancelWait));
    let expected: Vec<_> = exchanges().into_iter().map(|(request, _)| Message::Request(request)).collect();
    assert_eq!(found, expected);
    assert_eq!(begin, stream.len());
}

#[test]
fn requests_that_follow_each_other_in_one_buffer() {
    let mut stream = Vec::new();
    exchanges().iter().for_each(|(request, _)| encode_request(request, &mut stream));
    let mut decoder = Decoder::new(Limits::default());
    let mut rest = stream.as_slice();
    for (request, _) in exchanges() {
        let (message, len) = decoder.decode(rest).unwrap().unwrap();
        assert_eq!(message, Message::Request(request));
        rest = &rest[len..];
    }
    assert_eq!(decoder.decode(rest), Ok(None));
}

#[test]
fn every_reply_in_every_cut() {
    for (request, reply) in exchanges() {
        let encoded = replied(request.verb(), reply.clone());
        let mut answer = Answer::to(&request);
        for end in 0..encoded.len() {
            assert_eq!(answer.decode(&encoded[..end], &Limits::default()), Ok(None), "{request:?} at {end}");
        }
        let padded = [encoded.as_slice(), b"next"].concat();
        let expected = Ok(Some((reply, encoded.len())));
        assert_eq!(answer.decode(&padded, &Limits::default()), expected, "{request:?}");
    }
}

#[test]
fn what_has_no_encoding_is_said_to_have_none() {
    let mut out = vec![];
    for verb in [Verb::Set, Verb::Get, Verb::Add, Verb::Barrier] {
        assert!(!encode_reply(verb, &Err(Refusal::Closed), &mut out));
    }
    assert!(!encode_reply(Verb::Add, &Ok(Reply::Done), &mut out));
    assert!(!encode_reply(Verb::Pop, &Ok(Reply::Values(vec![])), &mut out));
    assert!(out.is_empty());
}

#[test]
fn an_absent_value_is_an_empty_one() {
    assert_eq!(replied(Verb::Get, Reply::Values(vec![None, some("x")])), bytes("00 00.. | 01 00.. 78"));
}

#[test]
fn a_queue_tells_its_length() {
    let mut out = vec![];
    encode_popped(5, Some(&value("e1")), &mut out);
    assert_eq!(out, bytes("05 00.. | 02 00.. | 65 31"));
    let pop = Request::Pop { key: key("q"), wait: false };
    assert_eq!(answered(&pop, &out), Ok(Some((Reply::Values(vec![some("e1")]), out.len()))));
}

#[test]
fn a_cancelled_wait_has_no_reply() {
    let wait = Request::Wait { keys: vec![key("k")] };
    let cancelled = Malformed::Value { what: "the answer to a wait", value: 1 };
    assert_eq!(answered(&wait, &[WAIT_CANCELLED]), Err(cancelled));
    assert_eq!(answered(&wait, &[STOP_WAITING]), Ok(Some((Reply::Done, 1))));
}

#[test]
fn keys_listed_by_a_server_are_as_the_user_named_them() {
    let listed = replied(Verb::ListKeys, Reply::Keys(vec![key("init/"), key("/a")]));
    let (reply, _) = answered(&Request::ListKeys, &listed).unwrap().unwrap();
    assert_eq!(from_wire(reply), Reply::Keys(vec![key("a")]));
}

#[test]
fn lengths_and_counts_beyond_the_limits_are_refused_at_their_first_byte() {
    let limits = Limits::default().key(4).value(8).keys(3).message(64);
    let length = |what, len, limit| Err(Malformed::Length { what, len, limit });
    let cases = [
        ("01 | 05 00..", length("a key", 5, 4)),
        ("01 | 01 00.. 6b | 09 00..", length("a value", 9, 8)),
        ("02 | 01 00.. 6b | 00 00.. | 09 00..", length("a value", 9, 8)),
        ("05 | 04 00..", length("a number of keys", 4, 3)),
        ("06 | 04 00..", length("a number of keys", 4, 3)),
        ("0a | 02 00.. | 01 00.. 6b | 05 00..", length("a key", 5, 4)),
        ("0b | 04 00..", length("a number of keys", 4, 3)),
        ("0b | 01 00.. | 01 00.. 6b | 09 00..", length("a value", 9, 8)),
        ("12 | 05 00..", length("a key", 5, 4)),
        ("ff", Err(Malformed::Kind(255))),
        ("13", Err(Malformed::Kind(19))),
        ("47 45 54 20 2f", Err(Malformed::Kind(b'G'))),
    ];
    for (notation, expected) in cases {
        assert_eq!(Decoder::new(limits).decode(&bytes(notation)), expected, "{notation}");
    }
    let many = "0b | 03 00.. | 01 00.. 61 | 08 00.. | 31 32 33 34 35 36 37 38 | 01 00.. 62 | 08 00..";
    assert_eq!(Decoder::new(limits.message(48)).decode(&bytes(many)), length("a message", 57, 48));
    let count = "06 | 03 00..";
    assert_eq!(Decoder::new(limits.message(32)).decode(&bytes(count)), length("a message", 33, 32));
}

#[test]
fn the_largest_numbers_in_every_field_are_refused() {
    for limits in [Limits::default(), Limits::default().key(usize::MAX).value(usize::MAX).keys(usize::MAX)] {
        for huge in [u64::MAX, i64::MAX as u64, 1 << 32, 1 << 63] {
            let huge = huge.to_le_bytes();
            for opcode in [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 14, 15, 16, 18] {
                let message = [&[opcode], huge.as_slice()].concat();
                assert!(Decoder::new(limits).decode(&message).is_err(), "opcode {opcode}, {limits:?}");
            }
            for opcode in [1, 2, 9, 14] {
                let message = [bytes("01 | 01 00.. 6b").as_slice(), &huge].concat();
                assert!(Decoder::new(limits).decode(&[&[opcode], &message[1..]].concat()).is_err());
            }
            for request in [Request::ListKeys, Request::Get { keys: vec![key("k")], wait: false }] {
                assert!(Answer::to(&request).decode(&huge, &limits).is_err(), "{request:?}");
            }
            let popped = [bytes("01 00..").as_slice(), &huge].concat();
            assert!(Answer::to(&Request::Pop { key: key("q"), wait: false }).decode(&popped, &limits).is_err());
        }
    }
}

/// Even 131,072 keys cost one look each when they come a byte at a time: a decoder that began anew would never end.
#[test]
fn a_long_message_in_single_bytes_takes_no_longer() {
    let keys: Vec<Key> = (0..131_072).map(|number: u32| number.to_le_bytes().as_slice().into()).collect();
    let request = Request::Wait { keys };
    let mut message = Vec::new();
    encode_request(&request, &mut message);
    let mut decoder = Decoder::new(Limits::default());
    for end in 0..message.len() {
        assert_eq!(decoder.decode(&message[..end]), Ok(None));
    }
    assert_eq!(decoder.decode(&message), Ok(Some((Message::Request(request), message.len()))));
}

#[test]
fn any_bytes_are_survived() {
    let mut random = fastrand::Rng::with_seed(0x7043);
    let limits = Limits::default().key(64).value(64).keys(8).message(256);
    for _ in 0..100_000 {
        let bytes = noise(&mut random);
        let mut decoder = Decoder::new(limits);
        let mut rest = bytes.as_slice();
        while let Ok(Some((message, len))) = decoder.decode(rest) {
            assert!((1..=256).contains(&len));
            if let Message::Request(request) = &message {
                let mut again = Vec::new();
                encode_request(request, &mut again);
                assert_eq!(Decoder::new(limits).decode(&again), Ok(Some((message.clone(), again.len()))));
            }
            rest = &rest[len..];
        }
        for (request, _) in exchanges() {
            if let Ok(Some((reply, len))) = Answer::to(&request).decode(&bytes, &limits) {
                let again = replied(request.verb(), reply.clone());
                assert!(len <= bytes.len());
                assert_eq!(Answer::to(&request).decode(&again, &limits), Ok(Some((reply, again.len()))));
            }
        }
    }
}

/// Bytes with small numbers and true opcodes more often than chance would have them.
fn noise(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = random.usize(..64);
    let mut bytes: Vec<u8> = (0..len).map(|_| if random.bool() { 0 } else { random.u8(..20) }).collect();
    let any = random.u8(..);
    if let Some(byte) = random.choice(&mut bytes) {
        *byte = any;
    }
    bytes
}
