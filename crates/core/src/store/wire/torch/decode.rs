//! The server's side: what a client says.

use super::number::*;
use super::scan::{Part, Scan};
use crate::store::wire::Malformed;
use crate::store::wire::cursor::Cursor;
use crate::store::{Key, Limits, Request, Value};

/// What a client of PyTorch's protocol says. Requests never wait in `Get` and `Pop`: such a client says `Wait` first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first message; the number must be [`MAGIC`]. It has no answer.
    Validate(u32),
    /// A request.
    Request(Request),
    /// Stop waiting. The answer is always [`WAIT_CANCELLED`], also where nothing waits.
    CancelWait,
    /// Send the number back.
    Ping(u32),
}

/// Finds messages in what a client sends.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    scan: Option<Scan>,
}

impl Decoder {
    /// A decoder that takes no longer keys, values and messages than `limits` allow.
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits, scan: None }
    }

    /// The next message and its length, once `bytes` hold all of it.
    ///
    /// `bytes` begin where the last message ended, and from call to call only grow, until a message was found: it takes up
    /// where it stopped, so a message costs the same however it is cut. After an error the connection is of no more use.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for what is no message, and for keys, values and messages that are longer than allowed.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
        let Some(&opcode) = bytes.first() else { return Ok(None) };
        let scan = match &mut self.scan {
            Some(scan) => scan,
            None => self.scan.insert(Scan::new(1, parts(opcode)?)),
        };
        let Some(end) = scan.end(bytes, &self.limits)? else { return Ok(None) };
        self.scan = None;
        let mut body = Cursor::new(&bytes[1..end]);
        let message = message(opcode, &mut body)?;
        body.end()?;
        Ok(Some((message, end)))
    }
}

fn parts(opcode: u8) -> Result<&'static [Part], Malformed> {
    Ok(match opcode {
        VALIDATE | PING => &[Part::Fixed(4)],
        NUM_KEYS | CANCEL_WAIT | LIST_KEYS => &[],
        SET | APPEND | QUEUE_PUSH => &[Part::Key, Part::Value],
        COMPARE_SET => &[Part::Key, Part::Value, Part::Value],
        GET | DELETE | QUEUE_POP | QUEUE_LEN => &[Part::Key],
        ADD | BARRIER => &[Part::Key, Part::Fixed(8)],
        CHECK | WAIT | MULTI_GET => &[Part::Many(&[Part::Key])],
        MULTI_SET => &[Part::Many(&[Part::Key, Part::Value])],
        other => return Err(Malformed::Kind(other)),
    })
}

fn message(opcode: u8, body: &mut Cursor<'_>) -> Result<Message, Malformed> {
    Ok(match opcode {
        VALIDATE => Message::Validate(body.u32("the magic number")?),
        PING => Message::Ping(body.u32("the nonce")?),
        CANCEL_WAIT => Message::CancelWait,
        other => Message::Request(request(other, body)?),
    })
}

fn request(opcode: u8, body: &mut Cursor<'_>) -> Result<Request, Malformed> {
    Ok(match opcode {
        SET => Request::Set { pairs: vec![(key(body)?, value(body)?)] },
        MULTI_SET => Request::Set { pairs: many(body, |body| Ok((key(body)?, value(body)?)))? },
        GET => Request::Get { keys: vec![key(body)?], wait: false },
        MULTI_GET => Request::Get { keys: many(body, key)?, wait: false },
        COMPARE_SET => Request::CompareSet { key: key(body)?, expected: value(body)?, desired: value(body)? },
        ADD => Request::Add { key: key(body)?, delta: body.i64("the delta")? },
        CHECK => Request::Check { keys: many(body, key)? },
        WAIT => Request::Wait { keys: many(body, key)? },
        NUM_KEYS => Request::NumKeys,
        DELETE => Request::Delete { key: key(body)? },
        APPEND => Request::Append { key: key(body)?, value: value(body)? },
        QUEUE_PUSH => Request::Push { key: key(body)?, value: value(body)? },
        QUEUE_POP => Request::Pop { key: key(body)?, wait: false },
        QUEUE_LEN => Request::QueueLen { key: key(body)? },
        LIST_KEYS => Request::ListKeys,
        BARRIER => Request::Barrier { key: key(body)?, size: body.i64("the world size")? },
        other => return Err(Malformed::Kind(other)),
    })
}

/// As many things as the count before them says. The scan saw them all, so the count is no larger than what was received.
pub(super) fn many<'a, T>(
    body: &mut Cursor<'a>,
    thing: impl Fn(&mut Cursor<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = body.u64("a count")?;
    (0..count).map(|_| thing(body)).collect()
}

pub(super) fn key(body: &mut Cursor<'_>) -> Result<Key, Malformed> {
    bytes(body).map(Key::from)
}

pub(super) fn value(body: &mut Cursor<'_>) -> Result<Value, Malformed> {
    bytes(body).map(Value::from)
}

fn bytes<'a>(body: &mut Cursor<'a>) -> Result<&'a [u8], Malformed> {
    let len = body.u64("a length")?;
    body.take(usize::try_from(len).unwrap_or(usize::MAX), "bytes")
}
