//! The fields of bodies: byte strings and lists with 32-bit lengths.

use crate::store::wire::Malformed;
use crate::store::wire::cursor::Cursor;
use crate::store::wire::sink::{Numbers, Sink};
use crate::store::{Key, Value};

// Longer lengths than 32 bits make a body that no frame takes, so what is cut off here is never sent.

pub(super) fn put_len(len: usize, out: &mut impl Sink) {
    out.put_u32(len as u32);
}

pub(super) fn put_bytes(bytes: &[u8], out: &mut impl Sink) {
    put_len(bytes.len(), out);
    out.put(bytes);
}

pub(super) fn put_key(key: &Key, out: &mut impl Sink) {
    put_bytes(key.as_bytes(), out);
}

pub(super) fn put_value(value: &Value, out: &mut impl Sink) {
    put_len(value.len(), out);
    out.put_value(value);
}

pub(super) fn put_keys(keys: &[Key], out: &mut impl Sink) {
    put_len(keys.len(), out);
    keys.iter().for_each(|key| put_key(key, out));
}

pub(super) fn bytes<'a>(body: &mut Cursor<'a>, what: &'static str) -> Result<&'a [u8], Malformed> {
    let len = body.u32(what)?;
    body.take(len as usize, what)
}

pub(super) fn key(body: &mut Cursor<'_>) -> Result<Key, Malformed> {
    bytes(body, "a key").map(Key::from)
}

pub(super) fn value(body: &mut Cursor<'_>) -> Result<Value, Malformed> {
    bytes(body, "a value").map(Value::from)
}

pub(super) fn text(body: &mut Cursor<'_>) -> Result<String, Malformed> {
    std::str::from_utf8(bytes(body, "a text")?).map(str::to_owned).map_err(|_| Malformed::Text)
}

/// A list of at most `limit` things. What it says of its length is believed no further than there are bytes.
pub(super) fn many<'a, T>(
    body: &mut Cursor<'a>,
    limit: usize,
    thing: impl Fn(&mut Cursor<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = body.u32("a count")?;
    if count as usize > limit {
        return Err(Malformed::Length { what: "a count", len: count.into(), limit: limit as u64 });
    }
    (0..count).map(|_| thing(body)).collect()
}
