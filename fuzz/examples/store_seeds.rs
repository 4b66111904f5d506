//! Writes the seeds of target `store`: `cargo run --example store_seeds`, from any directory.

use std::error::Error;
use std::fs;
use std::path::Path;

use phalanx_core::store::wire::{native, torch};
use phalanx_core::store::{Key, Limits, Refusal, Reply, Request, Value};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut torch_all, mut native_all) = (Vec::new(), Vec::new());
    for request in requests() {
        let name = request.verb().to_string();
        let (mut words, mut frame) = (Vec::new(), Vec::new());
        torch::encode_request(&request, &mut words);
        native::encode_request(&request, &mut frame)?;
        write(&format!("torch-{name}"), 0, &words)?;
        write(&format!("native-{name}"), 1, &frame)?;
        torch_all.extend(words);
        native_all.extend(frame);
    }
    torch::encode_cancel(&mut torch_all);
    native::encode_cancel(&mut native_all);
    write("torch-conversation", 0, &torch_all)?;
    write("native-conversation", 1, &native_all)?;
    for (number, (verb, reply)) in replies().into_iter().enumerate() {
        let mut words = Vec::new();
        let _said = torch::encode_reply(verb, &Ok(reply.clone()), &mut words);
        write(&format!("torch-reply-{number}"), 2, &words)?;
        write(&format!("native-reply-{number}"), 3, &framed(native::Answer::Answered(Ok(reply))))?;
    }
    for (number, refusal) in refusals().into_iter().enumerate() {
        write(&format!("native-refusal-{number}"), 3, &framed(native::Answer::Answered(Err(refusal))))?;
    }
    write("native-cancelled", 3, &framed(native::Answer::Cancelled))
}

fn framed(answer: native::Answer) -> Vec<u8> {
    let mut out = Vec::new();
    native::encode_answer(&answer, &Limits::default(), &mut out);
    out
}

fn key(name: &str) -> Key {
    name.into()
}

fn value(text: &str) -> Value {
    text.as_bytes().into()
}

fn requests() -> Vec<Request> {
    vec![
        Request::Set { pairs: vec![(key("/a"), value("1")), (key("/b"), value("text"))] },
        Request::Add { key: key("/a"), delta: -2 },
        Request::Append { key: key("/b"), value: value("more") },
        Request::CompareSet { key: key("/c"), expected: value(""), desired: value("new") },
        Request::Get { keys: vec![key("/a"), key("/b")], wait: true },
        Request::Check { keys: vec![key("/a"), key("/d")] },
        Request::Push { key: key("/q"), value: value("first") },
        Request::QueueLen { key: key("/q") },
        Request::Pop { key: key("/q"), wait: true },
        Request::NumKeys,
        Request::ListKeys,
        Request::Delete { key: key("/a") },
        Request::Barrier { key: key("/e"), size: 2 },
        Request::Wait { keys: vec![key("/d")] },
        Request::Ping,
    ]
}

fn replies() -> Vec<(phalanx_core::store::Verb, Reply)> {
    use phalanx_core::store::Verb;
    vec![
        (Verb::Wait, Reply::Done),
        (Verb::Check, Reply::Flag(false)),
        (Verb::Add, Reply::Number(-2)),
        (Verb::Get, Reply::Values(vec![Some(value("one")), None, Some(value(""))])),
        (Verb::Pop, Reply::Values(vec![Some(value("first"))])),
        (Verb::ListKeys, Reply::Keys(vec![key("/a"), key("init/")])),
    ]
}

fn refusals() -> Vec<Refusal> {
    let text = |text: &str| text.to_owned();
    vec![
        Refusal::KeyTooLong { len: 9, limit: 8, start: text("/k") },
        Refusal::ValueTooLong { len: 9, limit: 8, key: key("/k") },
        Refusal::TooManyKeys { count: 9, limit: 8 },
        Refusal::NotANumber { key: key("/k"), start: text("abc") },
        Refusal::Overflow { key: key("/k"), value: i64::MAX, delta: 1 },
        Refusal::Argument { argument: text("size"), value: text("0"), expected: text("must be 1 or more") },
        Refusal::Unsupported { store: text("this") },
        Refusal::Closed,
        Refusal::Other { text: text("new") },
    ]
}

/// A seed: the side, how it is cut, and what arrives.
fn write(name: &str, side: u8, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/store").join(name);
    fs::create_dir_all(path.parent().ok_or("a directory")?)?;
    fs::write(path, [&[side, 0], bytes].concat())?;
    Ok(())
}
