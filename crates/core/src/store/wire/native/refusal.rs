//! Refusals, field by field, so that a client can act on them. Their text goes along for clients that know fewer.

use super::field::{key, put_bytes, put_key, text};
use super::{frame, kind};
use crate::store::Refusal;
use crate::store::wire::Malformed;
use crate::store::wire::cursor::Cursor;
use crate::store::wire::sink::{Numbers, Sink};

impl frame::Body for Refusal {
    fn write(&self, out: &mut impl Sink) {
        out.put_u8(code(self));
        put_bytes(self.to_string().as_bytes(), out);
        match self {
            Refusal::KeyTooLong { len, limit, start } => {
                put_sizes(*len, *limit, out);
                put_bytes(start.as_bytes(), out);
            }
            Refusal::ValueTooLong { len, limit, key } => {
                put_sizes(*len, *limit, out);
                put_key(key, out);
            }
            Refusal::TooManyKeys { count: len, limit }
            | Refusal::MessageTooLong { len, limit }
            | Refusal::ClientFull { len, limit }
            | Refusal::StoreFull { len, limit } => put_sizes(*len, *limit, out),
            Refusal::NotANumber { key, start } => {
                put_key(key, out);
                put_bytes(start.as_bytes(), out);
            }
            Refusal::Overflow { key, value, delta } => {
                put_key(key, out);
                out.put_i64(*value);
                out.put_i64(*delta);
            }
            Refusal::Argument { argument, value, expected } => {
                [argument, value, expected].into_iter().for_each(|text| put_bytes(text.as_bytes(), out));
            }
            Refusal::Unsupported { store } => put_bytes(store.as_bytes(), out),
            Refusal::Closed | Refusal::Other { .. } => {}
        }
    }
}

/// The refusal in a body; one that is not known keeps its text.
pub(super) fn decode(mut body: Cursor<'_>) -> Result<Refusal, Malformed> {
    let code = body.u8("a refusal's number")?;
    let said = text(&mut body)?;
    let refusal = match code {
        kind::KEY_TOO_LONG => {
            let (len, limit) = sizes(&mut body)?;
            Refusal::KeyTooLong { len, limit, start: text(&mut body)? }
        }
        kind::VALUE_TOO_LONG => {
            let (len, limit) = sizes(&mut body)?;
            Refusal::ValueTooLong { len, limit, key: key(&mut body)? }
        }
        kind::TOO_MANY_KEYS => sizes(&mut body).map(|(count, limit)| Refusal::TooManyKeys { count, limit })?,
        kind::MESSAGE_TOO_LONG => sizes(&mut body).map(|(len, limit)| Refusal::MessageTooLong { len, limit })?,
        kind::CLIENT_FULL => sizes(&mut body).map(|(len, limit)| Refusal::ClientFull { len, limit })?,
        kind::STORE_FULL => sizes(&mut body).map(|(len, limit)| Refusal::StoreFull { len, limit })?,
        kind::NOT_A_NUMBER => Refusal::NotANumber { key: key(&mut body)?, start: text(&mut body)? },
        kind::OVERFLOW => {
            Refusal::Overflow { key: key(&mut body)?, value: body.i64("a counter")?, delta: body.i64("the delta")? }
        }
        kind::ARGUMENT => {
            Refusal::Argument { argument: text(&mut body)?, value: text(&mut body)?, expected: text(&mut body)? }
        }
        kind::UNSUPPORTED => Refusal::Unsupported { store: text(&mut body)? },
        kind::CLOSED => Refusal::Closed,
        _ => return Ok(Refusal::Other { text: said }),
    };
    body.end()?;
    Ok(refusal)
}

fn code(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::KeyTooLong { .. } => kind::KEY_TOO_LONG,
        Refusal::ValueTooLong { .. } => kind::VALUE_TOO_LONG,
        Refusal::TooManyKeys { .. } => kind::TOO_MANY_KEYS,
        Refusal::MessageTooLong { .. } => kind::MESSAGE_TOO_LONG,
        Refusal::ClientFull { .. } => kind::CLIENT_FULL,
        Refusal::StoreFull { .. } => kind::STORE_FULL,
        Refusal::NotANumber { .. } => kind::NOT_A_NUMBER,
        Refusal::Overflow { .. } => kind::OVERFLOW,
        Refusal::Argument { .. } => kind::ARGUMENT,
        Refusal::Unsupported { .. } => kind::UNSUPPORTED,
        Refusal::Closed => kind::CLOSED,
        Refusal::Other { .. } => kind::OTHER,
    }
}

fn put_sizes(len: u64, limit: u64, out: &mut impl Sink) {
    out.put_u64(len);
    out.put_u64(limit);
}

fn sizes(body: &mut Cursor<'_>) -> Result<(u64, u64), Malformed> {
    Ok((body.u64("a length")?, body.u64("a limit")?))
}
