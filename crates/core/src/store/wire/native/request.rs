//! Requests and cancels: how a client writes them and a server reads them.

use super::field::{key, many, put_key, put_keys, put_len, put_value, value};
use super::{frame, kind};
use crate::store::wire::Malformed;
use crate::store::wire::cursor::Cursor;
use crate::store::wire::sink::{Numbers, Sink};
use crate::store::{Key, Limits, Refusal, Request, Value};

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request.
    Request(Request),
    /// Stop waiting.
    Cancel,
    /// A request that is not carried out, and why: of a kind that only newer servers know, or with too many keys. It is
    /// answered like any other.
    Refuse(Refusal),
}

/// Finds messages in what a client sends.
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
}

impl Decoder {
    /// A decoder that takes no longer frames than `limits` allow. Keys and values are the table's to refuse, which can say
    /// why.
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits }
    }

    /// The next message and its length, once `bytes` hold all of it. They begin where the last message ended.
    ///
    /// After an error the connection is of no more use; a [`Malformed::Length`] can be refused before it is closed.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for what is no message, and for a frame that is longer than allowed.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
        let Some((kind, body)) = frame::decode(bytes, self.limits.message_byte_len())? else { return Ok(None) };
        let len = frame::HEAD + body.len();
        let message = match kind {
            kind::CANCEL => {
                Cursor::new(body).end()?;
                Message::Cancel
            }
            kind::SET..kind::CANCEL => self.request(kind, Cursor::new(body))?,
            unknown => Message::Refuse(unsupported(unknown)),
        };
        Ok(Some((message, len)))
    }

    fn request(&self, kind: u8, mut body: Cursor<'_>) -> Result<Message, Malformed> {
        match request(kind, &mut body, self.limits.key_count()) {
            Ok(request) => body.end().map(|()| Message::Request(request)),
            // The only lengths refused within a frame are counts of keys.
            Err(Malformed::Length { len: count, limit, .. }) => {
                Ok(Message::Refuse(Refusal::TooManyKeys { count, limit }))
            }
            Err(other) => Err(other),
        }
    }
}

/// Writes a request. One that no frame takes is refused, and nothing written.
///
/// # Errors
///
/// [`MessageTooLong`](Refusal::MessageTooLong) beyond 4 GiB.
pub fn encode_request(request: &Request, out: &mut impl Sink) -> Result<(), Refusal> {
    let too_long = |len| Refusal::MessageTooLong { len, limit: u32::MAX.into() };
    frame::encode(kind_of(request), u32::MAX.into(), request, out).map_err(too_long)
}

/// Writes a cancel.
pub fn encode_cancel(out: &mut impl Sink) {
    out.put_u32(0);
    out.put_u8(kind::CANCEL);
}

fn kind_of(request: &Request) -> u8 {
    match request {
        Request::Set { .. } => kind::SET,
        Request::Get { .. } => kind::GET,
        Request::Wait { .. } => kind::WAIT,
        Request::Check { .. } => kind::CHECK,
        Request::Add { .. } => kind::ADD,
        Request::CompareSet { .. } => kind::COMPARE_SET,
        Request::Delete { .. } => kind::DELETE,
        Request::Append { .. } => kind::APPEND,
        Request::NumKeys => kind::NUM_KEYS,
        Request::ListKeys => kind::LIST_KEYS,
        Request::Push { .. } => kind::PUSH,
        Request::Pop { .. } => kind::POP,
        Request::QueueLen { .. } => kind::QUEUE_LEN,
        Request::Barrier { .. } => kind::BARRIER,
        Request::Ping => kind::PING,
    }
}

impl frame::Body for Request {
    fn write(&self, out: &mut impl Sink) {
        match self {
            Request::Set { pairs } => {
                put_len(pairs.len(), out);
                pairs.iter().for_each(|(key, value)| put_pair(key, value, out));
            }
            Request::Get { keys, wait } => {
                out.put_u8((*wait).into());
                put_keys(keys, out);
            }
            Request::Wait { keys } | Request::Check { keys } => put_keys(keys, out),
            Request::Add { key, delta: number } | Request::Barrier { key, size: number } => {
                put_key(key, out);
                out.put_i64(*number);
            }
            Request::CompareSet { key, expected, desired } => {
                put_pair(key, expected, out);
                put_value(desired, out);
            }
            Request::Delete { key } | Request::QueueLen { key } => put_key(key, out),
            Request::Append { key, value } | Request::Push { key, value } => put_pair(key, value, out),
            Request::Pop { key, wait } => {
                out.put_u8((*wait).into());
                put_key(key, out);
            }
            Request::NumKeys | Request::ListKeys | Request::Ping => {}
        }
    }
}

fn put_pair(key: &Key, value: &Value, out: &mut impl Sink) {
    put_key(key, out);
    put_value(value, out);
}

fn unsupported(kind: u8) -> Refusal {
    Refusal::Unsupported { store: format!("a server that does not know requests of kind {kind}") }
}

fn request(kind: u8, body: &mut Cursor<'_>, keys: usize) -> Result<Request, Malformed> {
    Ok(match kind {
        kind::SET => Request::Set { pairs: many(body, keys, |body| Ok((key(body)?, value(body)?)))? },
        kind::GET => {
            let wait = body.flag("whether to wait")?;
            Request::Get { keys: many(body, keys, key)?, wait }
        }
        kind::WAIT => Request::Wait { keys: many(body, keys, key)? },
        kind::CHECK => Request::Check { keys: many(body, keys, key)? },
        kind::ADD => Request::Add { key: key(body)?, delta: body.i64("the delta")? },
        kind::COMPARE_SET => Request::CompareSet { key: key(body)?, expected: value(body)?, desired: value(body)? },
        kind::DELETE => Request::Delete { key: key(body)? },
        kind::APPEND => Request::Append { key: key(body)?, value: value(body)? },
        kind::NUM_KEYS => Request::NumKeys,
        kind::LIST_KEYS => Request::ListKeys,
        kind::PUSH => Request::Push { key: key(body)?, value: value(body)? },
        kind::POP => {
            let wait = body.flag("whether to wait")?;
            Request::Pop { key: key(body)?, wait }
        }
        kind::QUEUE_LEN => Request::QueueLen { key: key(body)? },
        kind::BARRIER => Request::Barrier { key: key(body)?, size: body.i64("the size")? },
        kind::PING => Request::Ping,
        other => return Err(Malformed::Kind(other)),
    })
}
