//! The client's side: what a server answers, which only who asked can tell apart.

use super::decode::{key, many, value};
use super::number::*;
use super::scan::{Part, Scan};
use crate::store::wire::Malformed;
use crate::store::wire::cursor::Cursor;
use crate::store::{Limits, Reply, Request, Verb};

/// Reads the answer to one request.
#[derive(Debug)]
pub struct Answer {
    kind: Kind,
    scan: Scan,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    To(Verb, usize),
    Pong(u32),
}

impl Answer {
    /// The answer to `request`, as [`encode_request`](super::encode_request) writes it.
    pub fn to(request: &Request) -> Answer {
        match request {
            Request::Ping => Answer::pong(0),
            Request::Get { keys, .. } => {
                Answer { kind: Kind::To(Verb::Get, keys.len()), scan: Scan::values(keys.len()) }
            }
            other => Answer { kind: Kind::To(other.verb(), 1), scan: Scan::new(0, parts(other.verb())) },
        }
    }

    /// The answer to a ping.
    pub fn pong(nonce: u32) -> Answer {
        Answer { kind: Kind::Pong(nonce), scan: Scan::new(0, parts(Verb::Ping)) }
    }

    /// The reply and its length, once `bytes` hold all of it. They begin where the answer does and from call to call only
    /// grow. A cancelled wait has no reply: [`WAIT_CANCELLED`] is malformed here.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for what is no answer to the request, and for one that is longer than `limits` allow.
    pub fn decode(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<(Reply, usize)>, Malformed> {
        let Some(end) = self.scan.end(bytes, limits)? else { return Ok(None) };
        let mut body = Cursor::new(bytes.get(..end).unwrap_or_default());
        let reply = self.reply(&mut body)?;
        body.end()?;
        Ok(Some((reply, end)))
    }

    fn reply(&self, body: &mut Cursor<'_>) -> Result<Reply, Malformed> {
        let (verb, count) = match self.kind {
            Kind::To(verb, count) => (verb, count),
            Kind::Pong(nonce) => return pong(nonce, body),
        };
        Ok(match verb {
            Verb::Wait | Verb::Barrier => match body.u8("the answer")? {
                STOP_WAITING => Reply::Done,
                value => return Err(Malformed::Value { what: "the answer to a wait", value: value.into() }),
            },
            Verb::Check => Reply::Flag(!body.flag("the answer to a check")?),
            Verb::Delete => Reply::Flag(body.i64("a number")? > 0),
            Verb::Add | Verb::NumKeys | Verb::QueueLen => Reply::Number(body.i64("a number")?),
            Verb::Get | Verb::CompareSet => {
                Reply::Values((0..count).map(|_| value(body).map(Some)).collect::<Result<_, _>>()?)
            }
            Verb::Pop => {
                let there = body.i64("a length")? > 0;
                Reply::Values(vec![if there { Some(value(body)?) } else { None }])
            }
            Verb::ListKeys => Reply::Keys(many(body, key)?),
            Verb::Set | Verb::Append | Verb::Push | Verb::Ping | Verb::Connect => Reply::Done,
        })
    }
}

fn pong(nonce: u32, body: &mut Cursor<'_>) -> Result<Reply, Malformed> {
    match body.u32("the nonce")? {
        value if value == nonce => Ok(Reply::Done),
        value => Err(Malformed::Value { what: "the answer to a ping", value }),
    }
}

fn parts(verb: Verb) -> &'static [Part] {
    match verb {
        Verb::Set | Verb::Append | Verb::Push | Verb::Get | Verb::Connect => &[],
        Verb::Wait | Verb::Barrier | Verb::Check => &[Part::Fixed(1)],
        Verb::Ping => &[Part::Fixed(4)],
        Verb::Add | Verb::NumKeys | Verb::QueueLen | Verb::Delete => &[Part::Fixed(8)],
        Verb::CompareSet => &[Part::Value],
        Verb::Pop => &[Part::Popped],
        Verb::ListKeys => &[Part::Listed],
    }
}
