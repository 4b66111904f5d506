//! Answers: how a server writes them and a client reads them.

use super::field::{key, many, put_keys, put_len, put_value, value};
use super::{frame, kind, refusal};
use crate::store::wire::Malformed;
use crate::store::wire::cursor::Cursor;
use crate::store::wire::sink::{Numbers, Sink};
use crate::store::{Limits, Refusal, Reply};

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a request.
    Answered(Result<Reply, Refusal>),
    /// To a cancel: the request, unless it was answered before, has no other answer.
    Cancelled,
}

/// Finds answers in what a server sends.
#[derive(Clone, Debug)]
pub struct Answers {
    limit: usize,
}

impl Answers {
    /// A decoder that takes no longer frames than `limits` allow.
    pub fn new(limits: &Limits) -> Answers {
        Answers { limit: limits.message_byte_len() }
    }

    /// The next answer and its length, once `bytes` hold all of it. They begin where the last answer ended.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for what is no answer, and for a frame that is longer than allowed. The connection is of no more use then.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Option<(Answer, usize)>, Malformed> {
        let Some((kind, body)) = frame::decode(bytes, self.limit)? else { return Ok(None) };
        let len = frame::HEAD + body.len();
        let mut body = Cursor::new(body);
        let answer = match kind {
            kind::CANCELLED => Answer::Cancelled,
            kind::REFUSED => return Ok(Some((Answer::Answered(Err(refusal::decode(body)?)), len))),
            kind => Answer::Answered(Ok(reply(kind, &mut body)?)),
        };
        body.end()?;
        Ok(Some((answer, len)))
    }
}

/// Writes an answer. A reply longer than `limits` allow becomes a refusal that says so.
pub fn encode_answer(answer: &Answer, limits: &Limits, out: &mut impl Sink) {
    let limit = (limits.message_byte_len() as u64).min(u32::MAX.into());
    let written = match answer {
        Answer::Answered(Ok(reply)) => frame::encode(kind_of(reply), limit, reply, out),
        Answer::Answered(Err(refusal)) => frame::encode(kind::REFUSED, u32::MAX.into(), refusal, out),
        Answer::Cancelled => frame::encode(kind::CANCELLED, limit, &(), out),
    };
    if let Err(len) = written {
        let refusal = Refusal::MessageTooLong { len, limit };
        // A few bytes, which every frame takes.
        let _ = frame::encode(kind::REFUSED, u32::MAX.into(), &refusal, out);
    }
}

fn kind_of(reply: &Reply) -> u8 {
    match reply {
        Reply::Done => kind::DONE,
        Reply::Flag(_) => kind::FLAG,
        Reply::Number(_) => kind::NUMBER,
        Reply::Values(_) => kind::VALUES,
        Reply::Keys(_) => kind::KEYS,
    }
}

impl frame::Body for Reply {
    fn write(&self, out: &mut impl Sink) {
        match self {
            Reply::Done => {}
            Reply::Flag(flag) => out.put_u8((*flag).into()),
            Reply::Number(number) => out.put_i64(*number),
            Reply::Values(values) => {
                put_len(values.len(), out);
                for value in values {
                    out.put_u8(value.is_some().into());
                    value.iter().for_each(|value| put_value(value, out));
                }
            }
            Reply::Keys(keys) => put_keys(keys, out),
        }
    }
}

fn reply(kind: u8, body: &mut Cursor<'_>) -> Result<Reply, Malformed> {
    Ok(match kind {
        kind::DONE => Reply::Done,
        kind::FLAG => Reply::Flag(body.flag("the answer")?),
        kind::NUMBER => Reply::Number(body.i64("a number")?),
        kind::VALUES => Reply::Values(many(body, usize::MAX, |body| {
            if body.flag("whether there is a value")? { value(body).map(Some) } else { Ok(None) }
        })?),
        kind::KEYS => Reply::Keys(many(body, usize::MAX, key)?),
        other => return Err(Malformed::Kind(other)),
    })
}
