//! The client's side: how requests are written.

use super::number::*;
use crate::store::wire::Sink;
use crate::store::wire::sink::Numbers;
use crate::store::{Key, Request, Value};

/// Writes the message that opens a connection.
pub fn encode_validate(out: &mut impl Sink) {
    out.put_u8(VALIDATE);
    out.put_u32(MAGIC);
}

/// Writes a ping, answered with its number.
pub fn encode_ping(nonce: u32, out: &mut impl Sink) {
    out.put_u8(PING);
    out.put_u32(nonce);
}

/// Writes a cancel, answered with [`WAIT_CANCELLED`].
pub fn encode_cancel(out: &mut impl Sink) {
    out.put_u8(CANCEL_WAIT);
}

/// Writes a request. Waiting is not said in a `Get` or a `Pop`: ask to `Wait` before. A ping's number is 0.
pub fn encode_request(request: &Request, out: &mut impl Sink) {
    match request {
        Request::Set { pairs } => put_pairs(pairs, out),
        Request::Get { keys, .. } => match keys.as_slice() {
            [key] => put_named(GET, key, out),
            keys => put_keys(MULTI_GET, keys, out),
        },
        Request::Wait { keys } => put_keys(WAIT, keys, out),
        Request::Check { keys } => put_keys(CHECK, keys, out),
        Request::Add { key, delta } => put_counted(ADD, key, *delta, out),
        Request::CompareSet { key, expected, desired } => {
            put_valued(COMPARE_SET, key, expected, out);
            put_value(desired, out);
        }
        Request::Delete { key } => put_named(DELETE, key, out),
        Request::Append { key, value } => put_valued(APPEND, key, value, out),
        Request::NumKeys => out.put_u8(NUM_KEYS),
        Request::ListKeys => out.put_u8(LIST_KEYS),
        Request::Push { key, value } => put_valued(QUEUE_PUSH, key, value, out),
        Request::Pop { key, .. } => put_named(QUEUE_POP, key, out),
        Request::QueueLen { key } => put_named(QUEUE_LEN, key, out),
        Request::Barrier { key, size } => put_counted(BARRIER, key, *size, out),
        Request::Ping => encode_ping(0, out),
    }
}

fn put_pairs(pairs: &[(Key, Value)], out: &mut impl Sink) {
    if let [(key, value)] = pairs {
        return put_valued(SET, key, value, out);
    }
    out.put_u8(MULTI_SET);
    out.put_u64(pairs.len() as u64);
    for (key, value) in pairs {
        put_key(key, out);
        put_value(value, out);
    }
}

fn put_named(opcode: u8, key: &Key, out: &mut impl Sink) {
    out.put_u8(opcode);
    put_key(key, out);
}

fn put_valued(opcode: u8, key: &Key, value: &Value, out: &mut impl Sink) {
    put_named(opcode, key, out);
    put_value(value, out);
}

fn put_counted(opcode: u8, key: &Key, number: i64, out: &mut impl Sink) {
    put_named(opcode, key, out);
    out.put_i64(number);
}

fn put_keys(opcode: u8, keys: &[Key], out: &mut impl Sink) {
    out.put_u8(opcode);
    out.put_u64(keys.len() as u64);
    keys.iter().for_each(|key| put_key(key, out));
}

pub(super) fn put_key(key: &Key, out: &mut impl Sink) {
    out.put_u64(key.as_bytes().len() as u64);
    out.put(key.as_bytes());
}

pub(super) fn put_value(value: &Value, out: &mut impl Sink) {
    out.put_u64(value.len() as u64);
    out.put_value(value);
}
