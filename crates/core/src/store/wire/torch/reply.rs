//! The server's side: how answers are written.

use super::encode::{put_key, put_value};
use super::number::*;
use crate::store::wire::Sink;
use crate::store::wire::sink::Numbers;
use crate::store::{Refusal, Reply, Value, Verb};

/// Writes the answer to a request of that verb; whether there is a way to say it. Where not, as for every refusal, nothing
/// was written and the connection is to be closed. The answers to `Set`, `Append` and `Push` are no bytes at all.
#[must_use]
pub fn encode_reply(verb: Verb, answer: &Result<Reply, Refusal>, out: &mut impl Sink) -> bool {
    let Ok(reply) = answer else { return false };
    match (verb, reply) {
        (Verb::Set | Verb::Append | Verb::Push, Reply::Done) => {}
        (Verb::Wait | Verb::Barrier, Reply::Done) => out.put_u8(STOP_WAITING),
        (Verb::Check, Reply::Flag(ready)) => out.put_u8(if *ready { READY } else { NOT_READY }),
        (Verb::Delete, Reply::Flag(deleted)) => out.put_i64((*deleted).into()),
        (Verb::Add | Verb::NumKeys | Verb::QueueLen, Reply::Number(number)) => out.put_i64(*number),
        (Verb::Get | Verb::CompareSet, Reply::Values(values)) => {
            let absent = Value::default();
            values.iter().for_each(|value| put_value(value.as_ref().unwrap_or(&absent), out));
        }
        (Verb::Pop, Reply::Values(values)) => match values.as_slice() {
            [value] => encode_popped(value.is_some().into(), value.as_ref(), out),
            _ => return false,
        },
        (Verb::ListKeys, Reply::Keys(keys)) => {
            out.put_i64(keys.len() as i64);
            keys.iter().for_each(|key| put_key(key, out));
        }
        _ => return false,
    }
    true
}

/// Writes the answer to `Pop` with the queue's length `before`, which only a server knows that asked; [`encode_reply`] says
/// 1. PyTorch's client looks only whether it is above 0.
pub fn encode_popped(before: i64, value: Option<&Value>, out: &mut impl Sink) {
    match value {
        Some(value) => {
            out.put_i64(before.max(1));
            put_value(value, out);
        }
        None => out.put_i64(0),
    }
}

/// Writes the answer to a ping.
pub fn encode_pong(nonce: u32, out: &mut impl Sink) {
    out.put_u32(nonce);
}

/// Writes the answer to a cancel, after that of the wait if it was satisfied first.
pub fn encode_cancelled(out: &mut impl Sink) {
    out.put_u8(WAIT_CANCELLED);
}
