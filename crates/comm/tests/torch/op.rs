//! Operations of a store as plain data, what they answer, and how they are drawn.

use std::fmt::Write;
use std::time::Duration;

use phalanx_core::store::{Refusal, Store, StoreError};

/// One operation, as both sides understand it.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set(String, Vec<u8>),
    MultiSet(Vec<(String, Vec<u8>)>),
    Get(String),
    MultiGet(Vec<String>),
    Wait(Vec<String>, Duration),
    Check(Vec<String>),
    Add(String, i64),
    CompareSet(String, Vec<u8>, Vec<u8>),
    Delete(String),
    Append(String, Vec<u8>),
    NumKeys,
    ListKeys,
    Push(String, Vec<u8>),
    Pop(String),
    QueueLen(String),
    Barrier(String, i64, Duration),
}

/// What a store answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Done,
    Value(Vec<u8>),
    Values(Vec<Vec<u8>>),
    Flag(bool),
    Number(i64),
    Keys(Vec<String>),
    Timeout,
    Unsupported,
}

/// Somebody who carries out operations: our client, PyTorch's, or a model.
pub(crate) trait Player {
    fn play(&mut self, op: &Op) -> Answer;
}

impl Player for Store {
    fn play(&mut self, op: &Op) -> Answer {
        match play(self, op) {
            Ok(answer) => answer,
            Err(error) if error.is_timeout() => Answer::Timeout,
            Err(StoreError::Refused { refusal: Refusal::Unsupported { .. }, .. }) => Answer::Unsupported,
            Err(error) => panic!("{op:?}: {error}"),
        }
    }
}

fn play(store: &Store, op: &Op) -> Result<Answer, StoreError> {
    Ok(match op {
        Op::Set(key, value) => store.set(key, value).map(done)?,
        Op::MultiSet(pairs) => {
            let pairs: Vec<(&str, &[u8])> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
            store.multi_set(&pairs).map(done)?
        }
        Op::Get(key) => Answer::Value(store.get(key)?),
        Op::MultiGet(keys) => Answer::Values(store.multi_get(&borrowed(keys))?),
        Op::Wait(keys, within) => store.with_timeout(*within).wait(&borrowed(keys)).map(done)?,
        Op::Check(keys) => Answer::Flag(store.check(&borrowed(keys))?),
        Op::Add(key, delta) => Answer::Number(store.add(key, *delta)?),
        Op::CompareSet(key, expected, desired) => Answer::Value(store.compare_set(key, expected, desired)?),
        Op::Delete(key) => Answer::Flag(store.delete(key)?),
        Op::Append(key, value) => store.append(key, value).map(done)?,
        Op::NumKeys => Answer::Number(store.num_keys()?.try_into().expect("few keys")),
        Op::ListKeys => Answer::Keys(store.list_keys()?),
        Op::Push(key, value) => store.push(key, value).map(done)?,
        Op::Pop(key) => Answer::Value(store.pop(key)?),
        Op::QueueLen(key) => Answer::Number(store.queue_len(key)?.try_into().expect("a short queue")),
        Op::Barrier(key, size, within) => {
            let size = usize::try_from(*size).expect("a size");
            store.with_timeout(*within).barrier(key, size).map(done)?
        }
    })
}

impl Op {
    /// Whether PyTorch's older server, which has no queues, answers it too.
    pub(crate) fn is_old(&self) -> bool {
        !matches!(self, Op::Push(..) | Op::Pop(_) | Op::QueueLen(_) | Op::ListKeys | Op::Barrier(..))
    }

    /// An operation with few keys, so that they meet often.
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Op {
        let (key, keys) = (name(rng), names(rng));
        match rng.u8(..16) {
            0 => Op::Set(key, bytes(rng)),
            1 => Op::MultiSet(keys.into_iter().map(|key| (key, bytes(rng))).collect()),
            2 => Op::Get(key),
            3 => Op::MultiGet(keys),
            4 => Op::Wait(keys, SHORT),
            5 => Op::Check(keys),
            6 | 7 => Op::Add(format!("number{}", rng.u8(..3)), rng.i64(-1_000_000..1_000_000)),
            8 => {
                let expected = if rng.bool() { Vec::new() } else { bytes(rng) };
                Op::CompareSet(key, expected, bytes(rng))
            }
            9 => Op::Delete(key),
            10 => Op::Append(key, bytes(rng)),
            11 => Op::NumKeys,
            12 => Op::ListKeys,
            13 => Op::Push(queue(rng), bytes(rng)),
            14 => Op::Pop(queue(rng)),
            _ => Op::QueueLen(queue(rng)),
        }
    }
}

/// Bytes as hexadecimal text, as they travel to Python.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn name(rng: &mut fastrand::Rng) -> String {
    NAMES[rng.usize(..NAMES.len())].to_owned()
}

fn names(rng: &mut fastrand::Rng) -> Vec<String> {
    (0..rng.usize(1..4)).map(|_| name(rng)).collect()
}

fn queue(rng: &mut fastrand::Rng) -> String {
    format!("queue{}", rng.u8(..2))
}

/// Few values, so that a comparison sometimes holds; now and then a long one, or bytes that are no text.
fn bytes(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..10) {
        0 => Vec::new(),
        1 => (0..rng.usize(..70_000)).map(|_| rng.u8(..)).collect(),
        2 => vec![0, 255, b'\n', rng.u8(..)],
        _ => vec![b'a' + rng.u8(..2)],
    }
}

fn borrowed(keys: &[String]) -> Vec<&str> {
    keys.iter().map(String::as_str).collect()
}

fn done((): ()) -> Answer {
    Answer::Done
}

/// How long a wait for something that is not there lasts.
pub(crate) const SHORT: Duration = Duration::from_millis(10);

const NAMES: [&str; 7] = ["a", "b", "c/d", "/e", "with space", "naïve", "init/"];
