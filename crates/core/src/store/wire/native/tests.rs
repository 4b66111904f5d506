//! Frames byte for byte, in every cut, and under bytes that mean harm.

use super::*;
use crate::store::wire::Malformed;
use crate::store::{Key, Limits, Refusal, Reply, Request, Value};

fn key(text: &str) -> Key {
    text.into()
}

fn value(text: &str) -> Value {
    text.as_bytes().into()
}

fn requests() -> Vec<Request> {
    let keys = || vec![key("a"), key(""), key("a")];
    vec![
        Request::Set { pairs: vec![] },
        Request::Set { pairs: vec![(key("k"), value("v1")), (key(""), value(""))] },
        Request::Get { keys: keys(), wait: true },
        Request::Get { keys: vec![], wait: false },
        Request::Wait { keys: keys() },
        Request::Check { keys: keys() },
        Request::Add { key: key("ctr"), delta: -2 },
        Request::CompareSet { key: key("k"), expected: value(""), desired: value("new") },
        Request::Delete { key: key("k") },
        Request::Append { key: key("k"), value: value("more") },
        Request::NumKeys,
        Request::ListKeys,
        Request::Push { key: key("q"), value: value("e1") },
        Request::Pop { key: key("q"), wait: true },
        Request::Pop { key: key("q"), wait: false },
        Request::QueueLen { key: key("q") },
        Request::Barrier { key: key("b"), size: i64::MAX },
        Request::Ping,
    ]
}

fn refusals() -> Vec<Refusal> {
    let text = |text: &str| text.to_owned();
    vec![
        Refusal::KeyTooLong { len: u64::MAX, limit: 8192, start: text("kkk") },
        Refusal::ValueTooLong { len: 9, limit: 8, key: key("k") },
        Refusal::TooManyKeys { count: 9, limit: 8 },
        Refusal::MessageTooLong { len: 9, limit: 8 },
        Refusal::ClientFull { len: 9, limit: 8 },
        Refusal::StoreFull { len: 9, limit: 8 },
        Refusal::NotANumber { key: key("k"), start: text("héllo") },
        Refusal::Overflow { key: key("k"), value: i64::MAX, delta: -1 },
        Refusal::Argument { argument: text("size"), value: text("0"), expected: text("must be 1 or more") },
        Refusal::Unsupported { store: text("the store") },
        Refusal::Closed,
        Refusal::Other { text: text("the moon is full") },
    ]
}

fn answers() -> Vec<Answer> {
    let replies = [
        Reply::Done,
        Reply::Flag(true),
        Reply::Flag(false),
        Reply::Number(i64::MIN),
        Reply::Values(vec![]),
        Reply::Values(vec![Some(value("v")), None, Some(value(""))]),
        Reply::Keys(vec![key("a"), key("")]),
    ];
    let mut answers: Vec<_> = replies.into_iter().map(|reply| Answer::Answered(Ok(reply))).collect();
    answers.extend(refusals().into_iter().map(|refusal| Answer::Answered(Err(refusal))));
    answers.push(Answer::Cancelled);
    answers
}

fn request_bytes(request: &Request) -> Vec<u8> {
    let mut out = vec![];
    encode_request(request, &mut out).unwrap();
    out
}

fn answer_bytes(answer: &Answer) -> Vec<u8> {
    let mut out = vec![];
    encode_answer(answer, &Limits::default(), &mut out);
    out
}

fn request_in(bytes: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
    Decoder::new(Limits::default()).decode(bytes)
}

fn answer_in(bytes: &[u8]) -> Result<Option<(Answer, usize)>, Malformed> {
    Answers::new(&Limits::default()).decode(bytes)
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    framed_as(body.len() as u32, kind, body)
}

fn framed_as(len: u32, kind: u8, body: &[u8]) -> Vec<u8> {
    [len.to_le_bytes().as_slice(), &[kind], body].concat()
}

#[test]
fn frames_byte_for_byte() {
    let set = Request::Set { pairs: vec![(key("/k"), value("v1"))] };
    assert_eq!(request_bytes(&set), b"\x10\0\0\0\x01\x01\0\0\0\x02\0\0\0/k\x02\0\0\0v1");
    let get = Request::Get { keys: vec![key("/k")], wait: true };
    assert_eq!(request_bytes(&get), b"\x0b\0\0\0\x02\x01\x01\0\0\0\x02\0\0\0/k");
    let add = Request::Add { key: key("/c"), delta: -2 };
    assert_eq!(request_bytes(&add), b"\x0e\0\0\0\x05\x02\0\0\0/c\xfe\xff\xff\xff\xff\xff\xff\xff");
    assert_eq!(request_bytes(&Request::Ping), b"\0\0\0\0\x0f");
    let mut cancel = vec![];
    encode_cancel(&mut cancel);
    assert_eq!(cancel, b"\0\0\0\0\x10");

    assert_eq!(answer_bytes(&Answer::Answered(Ok(Reply::Done))), b"\0\0\0\0\x81");
    assert_eq!(answer_bytes(&Answer::Cancelled), b"\0\0\0\0\x87");
    let values = Answer::Answered(Ok(Reply::Values(vec![Some(value("v1")), None])));
    assert_eq!(answer_bytes(&values), b"\x0c\0\0\0\x84\x02\0\0\0\x01\x02\0\0\0v1\0");
    let closed = Answer::Answered(Err(Refusal::Closed));
    assert_eq!(answer_bytes(&closed), b"\x18\0\0\0\x86\x0b\x13\0\0\0the store is closed");
}

#[test]
fn every_request_in_every_cut() {
    for request in requests() {
        let bytes = request_bytes(&request);
        for end in 0..bytes.len() {
            assert_eq!(request_in(&bytes[..end]), Ok(None), "{request:?} at {end}");
        }
        let followed = [bytes.as_slice(), b"next"].concat();
        assert_eq!(request_in(&followed), Ok(Some((Message::Request(request), bytes.len()))));
    }
    assert_eq!(request_in(b"\0\0\0\0\x10"), Ok(Some((Message::Cancel, 5))));
}

#[test]
fn every_answer_in_every_cut() {
    for answer in answers() {
        let bytes = answer_bytes(&answer);
        for end in 0..bytes.len() {
            assert_eq!(answer_in(&bytes[..end]), Ok(None), "{answer:?} at {end}");
        }
        let followed = [bytes.as_slice(), b"next"].concat();
        assert_eq!(answer_in(&followed), Ok(Some((answer, bytes.len()))));
    }
}

/// A body that is shorter or longer than its fields, in a frame that tells its true length.
#[test]
fn bodies_must_end_with_their_last_field() {
    for request in requests() {
        let bytes = request_bytes(&request);
        let (kind, body) = (bytes[4], &bytes[5..]);
        for end in 0..body.len() {
            assert!(request_in(&framed(kind, &body[..end])).is_err(), "{request:?} cut at {end}");
        }
        assert_eq!(request_in(&framed(kind, &[body, &[0]].concat())), Err(Malformed::Trailing(1)), "{request:?}");
    }
    assert_eq!(request_in(&framed(16, &[0])), Err(Malformed::Trailing(1)));
    for answer in answers() {
        let bytes = answer_bytes(&answer);
        let (kind, body) = (bytes[4], &bytes[5..]);
        for end in 0..body.len() {
            assert!(answer_in(&framed(kind, &body[..end])).is_err(), "{answer:?} cut at {end}");
        }
        // What a newer server says of a reason of its own is not ours to judge.
        if !matches!(answer, Answer::Answered(Err(Refusal::Other { .. }))) {
            assert_eq!(answer_in(&framed(kind, &[body, &[0]].concat())), Err(Malformed::Trailing(1)), "{answer:?}");
        }
    }
}

#[test]
fn a_newer_clients_request_is_refused_and_the_next_one_answered() {
    let bytes = [b"\x03\0\0\0\x20abc".as_slice(), &request_bytes(&Request::Ping)].concat();
    let Ok(Some((Message::Refuse(Refusal::Unsupported { store }), len))) = request_in(&bytes) else { panic!() };
    assert!(store.contains("kind 32"), "{store}");
    assert_eq!(request_in(&bytes[len..]), Ok(Some((Message::Request(Request::Ping), 5))));
}

#[test]
fn a_newer_servers_refusal_keeps_its_words() {
    let body = b"\xc8\x05\0\0\0sorrymore fields";
    let frame = framed(0x86, body);
    let refusal = Refusal::Other { text: "sorry".into() };
    assert_eq!(refusal.to_string(), "sorry");
    assert_eq!(answer_in(&frame), Ok(Some((Answer::Answered(Err(refusal)), frame.len()))));
}

#[test]
fn too_many_keys_are_refused_with_the_reason() {
    let request = Request::Wait { keys: vec![key("k"); 4] };
    let refused = Message::Refuse(Refusal::TooManyKeys { count: 4, limit: 3 });
    let bytes = request_bytes(&request);
    assert_eq!(Decoder::new(Limits::default().keys(3)).decode(&bytes), Ok(Some((refused, bytes.len()))));
    assert_eq!(
        Decoder::new(Limits::default().keys(4)).decode(&bytes),
        Ok(Some((Message::Request(request), bytes.len())))
    );
}

#[test]
fn frames_beyond_the_limit_are_refused_at_their_head() {
    let limits = Limits::default().message(16);
    let too_long = Malformed::Length { what: "a frame", len: 17, limit: 16 };
    assert_eq!(Decoder::new(limits).decode(b"\x11\0\0\0\x0f"), Err(too_long.clone()));
    assert_eq!(Answers::new(&limits).decode(b"\x11\0\0\0\x81"), Err(too_long));
    assert_eq!(Decoder::new(limits).decode(b"\x10\0\0\0\x01"), Ok(None));
    for kind in 0..=255 {
        assert!(request_in(&[255, 255, 255, 255, kind]).is_err());
        assert!(answer_in(&[255, 255, 255, 255, kind]).is_err());
    }
}

/// 2^32-1 things in a frame of a few bytes, in every place where a length or count can stand.
#[test]
fn lengths_beyond_the_frame_are_refused() {
    for request in requests() {
        let bytes = request_bytes(&request);
        for at in 5..bytes.len().saturating_sub(3) {
            let mut bytes = bytes.clone();
            bytes[at..at + 4].fill(255);
            // What stands there may also be part of a number or a key: then it is another request, of the same length.
            if let Ok(Some((_, len))) = request_in(&bytes) {
                assert_eq!(len, bytes.len());
            }
        }
    }
    let bomb = b"\x04\0\0\0\x85\xff\xff\xff\xff";
    assert_eq!(answer_in(bomb), Err(Malformed::Short("a key")));
    assert_eq!(answer_in(b"\x04\0\0\0\x84\xff\xff\xff\xff"), Err(Malformed::Short("whether there is a value")));
}

#[test]
fn a_reply_too_long_becomes_a_refusal() {
    let limits = Limits::default().message(16);
    let reply = Answer::Answered(Ok(Reply::Values(vec![Some(value("0123456789"))])));
    let mut out = vec![];
    encode_answer(&reply, &limits, &mut out);
    let refusal = Answer::Answered(Err(Refusal::MessageTooLong { len: 19, limit: 16 }));
    assert_eq!(answer_in(&out), Ok(Some((refusal, out.len()))));
}

#[test]
fn any_bytes_are_survived() {
    let mut random = fastrand::Rng::with_seed(0x5068);
    for _ in 0..100_000 {
        let body: Vec<u8> = (0..random.usize(..48)).map(|_| if random.bool() { 0 } else { random.u8(..6) }).collect();
        let len = if random.u8(..) == 0 { random.u32(..) } else { body.len() as u32 };
        let request = framed_as(len, random.u8(..20), &body);
        if let Ok(Some((Message::Request(request), _))) = request_in(&request) {
            let again = request_bytes(&request);
            assert_eq!(request_in(&again), Ok(Some((Message::Request(request), again.len()))));
        }
        let answer = framed_as(len, random.u8(0x80..0x90), &body);
        if let Ok(Some((answer, _))) = answer_in(&answer) {
            let again = answer_bytes(&answer);
            assert_eq!(answer_in(&again), Ok(Some((answer, again.len()))));
        }
    }
}
