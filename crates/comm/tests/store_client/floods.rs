//! Servers that send without end: a call ends in its time all the same, and keeps little of what came.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use phalanx_core::store::wire::native::{Answer, encode_answer};
use phalanx_core::store::{Doubt, Home, Limits, Reply, Request, StoreError};

use crate::scripted::{Scripted, greet, welcome};

const TIME: Duration = Duration::from_millis(200);
/// What a busy machine may take.
const SLACK: Duration = Duration::from_secs(2);

/// Sends `piece` again and again, until the client goes; how many bytes it or the system took.
fn flood(stream: &mut TcpStream, piece: &[u8]) -> usize {
    std::iter::repeat_with(|| stream.write_all(piece)).take_while(Result::is_ok).count() * piece.len()
}

/// Many answers to nothing, in our frames.
fn answers() -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..10_000 {
        encode_answer(&Answer::Answered(Ok(Reply::Done)), &Limits::default(), &mut bytes);
    }
    bytes
}

/// Asks a server that floods from its first answer on, and fails the test unless the call ends in its time.
fn ask(server: &Scripted, request: Request) -> Result<Reply, StoreError> {
    let store = server.client();
    let start = Instant::now();
    let outcome = store.ask(request, TIME);
    assert!(start.elapsed() <= TIME + SLACK, "{:?}", start.elapsed());
    outcome
}

/// More than the system takes for a server that reads nothing.
fn long() -> Request {
    Request::Append { key: "k".into(), value: vec![7; 8 << 20].into() }
}

#[test]
fn while_a_request_is_sent() {
    let (tell, told) = mpsc::channel();
    let torch = Scripted::start(move |_, mut stream| {
        if greet(&mut stream) {
            let _ = tell.send(flood(&mut stream, &[0; 64 << 10]));
        }
    });
    let error = ask(&torch, long()).unwrap_err();
    assert!(error.is_timeout() && error.doubt() == Doubt::None, "{error}");
    drop(torch);
    // What the client keeps, and what the system does on both sides.
    let taken: Vec<usize> = told.iter().collect();
    assert!(taken.iter().all(|&taken| taken <= 48 << 20), "{taken:?}");
    let native = Scripted::start(|_, mut stream| {
        if welcome(&mut stream) {
            // The length of a frame that never ends.
            flood(&mut stream, &[0, 0, 0, 0x30].repeat(16 << 10));
        }
    });
    let error = ask(&native, long()).unwrap_err();
    assert!(error.is_timeout() && error.doubt() == Doubt::None, "{error}");
}

#[test]
fn while_an_answer_is_awaited() {
    // The beginning of a value of 512 MiB.
    let mut endless = (512_u64 << 20).to_le_bytes().to_vec();
    endless.resize(1 << 10, 0);
    let server = Scripted::start(move |_, mut stream| {
        if greet(&mut stream) && matches!(stream.read(&mut [0; 256]), Ok(1..)) {
            flood(&mut stream, &endless);
        }
    });
    let swap =
        Request::CompareSet { key: "k".into(), expected: b"a".as_slice().into(), desired: b"b".as_slice().into() };
    let error = ask(&server, swap).unwrap_err();
    assert!(error.is_timeout() && error.doubt() == Doubt::Unknown, "{error}");
}

/// The first answer counts, as one that meets the cancel on its way; of the others none is waited for.
#[test]
fn after_a_cancel() {
    let server = Scripted::start(|_, mut stream| {
        let mut bytes = [0; 256];
        // The request first; then, when its time is over, the cancel.
        if welcome(&mut stream) && (0..2).all(|_| matches!(stream.read(&mut bytes), Ok(1..))) {
            flood(&mut stream, &answers());
        }
    });
    let wait = Request::Wait { keys: vec!["k".into()] };
    assert_eq!(ask(&server, wait), Ok(Reply::Done));
}
