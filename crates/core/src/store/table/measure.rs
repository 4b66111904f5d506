//! How long requests and answers are, and those that are too long. It looks at a request alone, never at the store.

use crate::store::{Key, Limits, Refusal, Request, Value};

/// Refuses a request with a number or a length beyond the limits.
pub(super) fn check(request: &Request, limits: &Limits) -> Result<(), Refusal> {
    let count = request.keys().count();
    if count > limits.keys {
        return Err(Refusal::TooManyKeys { count: count as u64, limit: limits.keys as u64 });
    }
    request.keys().try_for_each(|key| check_key(key, limits))?;
    values(request).try_for_each(|(key, value)| check_value(key, value.len(), limits))?;
    let keys = request.keys().map(|key| key.as_bytes().len());
    check_message(keys.chain(values(request).map(|(_, value)| value.len())), limits)?;
    match request {
        Request::Barrier { size, .. } if *size < 1 => Err(Refusal::Argument {
            argument: "size".into(),
            value: size.to_string(),
            expected: "must be at least 1".into(),
        }),
        _ => Ok(()),
    }
}

pub(super) fn check_value(key: &Key, len: usize, limits: &Limits) -> Result<(), Refusal> {
    if len <= limits.value {
        return Ok(());
    }
    Err(Refusal::ValueTooLong { len: len as u64, limit: limits.value as u64, key: key.clone() })
}

/// Refuses a message with parts of these lengths if it is longer than messages may be.
pub(super) fn check_message(parts: impl Iterator<Item = usize>, limits: &Limits) -> Result<(), Refusal> {
    let len: usize = parts.map(|part| part + PART).sum();
    if len <= limits.message {
        return Ok(());
    }
    Err(Refusal::MessageTooLong { len: len as u64, limit: limits.message as u64 })
}

/// How `bytes` begin, as text for a message.
pub(super) fn start(bytes: &[u8]) -> String {
    Key::from(&bytes[..bytes.len().min(SHOWN)]).to_string()
}

fn check_key(key: &Key, limits: &Limits) -> Result<(), Refusal> {
    let (len, limit) = (key.as_bytes().len(), limits.key);
    if len <= limit {
        return Ok(());
    }
    Err(Refusal::KeyTooLong { len: len as u64, limit: limit as u64, start: start(key.as_bytes()) })
}

/// The values that a request brings, with the keys they are for.
fn values(request: &Request) -> impl Iterator<Item = (&Key, &Value)> {
    let (pairs, first, second) = match request {
        Request::Set { pairs } => (pairs.as_slice(), None, None),
        Request::CompareSet { key, expected, desired } => (&[][..], Some((key, expected)), Some((key, desired))),
        Request::Append { key, value } | Request::Push { key, value } => (&[][..], Some((key, value)), None),
        _ => (&[][..], None, None),
    };
    pairs.iter().map(|(key, value)| (key, value)).chain(first).chain(second)
}

/// What a key or a value counts besides its bytes: no encoding needs more to say how long it is.
const PART: usize = 16;
const SHOWN: usize = 32;
