//! A frame: a length, a kind, a body.

use crate::store::wire::Malformed;
use crate::store::wire::sink::{Length, Numbers, Sink};

/// Writes a frame of `kind`, whose body `write` writes. Called twice: the length comes first. Nothing is written and the
/// body's length returned where it does not fit `limit`.
pub(super) fn encode<S: Sink>(kind: u8, limit: u64, body: &impl Body, out: &mut S) -> Result<(), u64> {
    let mut length = Length::default();
    body.write(&mut length);
    let fits = u32::try_from(length.0).ok().filter(|&len| u64::from(len) <= limit).ok_or(length.0)?;
    out.put_u32(fits);
    out.put_u8(kind);
    body.write(out);
    Ok(())
}

/// What a frame holds. It is written twice: once to be measured.
pub(super) trait Body {
    fn write(&self, out: &mut impl Sink);
}

/// Nothing.
impl Body for () {
    fn write(&self, _: &mut impl Sink) {}
}

/// The kind and body at the beginning of `bytes`, once they hold the whole frame.
pub(super) fn decode(bytes: &[u8], limit: usize) -> Result<Option<(u8, &[u8])>, Malformed> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let [a, b, c, d, kind] = *head;
    let len = u32::from_le_bytes([a, b, c, d]);
    if u64::from(len) > limit as u64 {
        return Err(Malformed::Length { what: "a frame", len: len.into(), limit: limit as u64 });
    }
    Ok(rest.get(..len as usize).map(|body| (kind, body)))
}

/// Bytes before the body.
pub(super) const HEAD: usize = 5;
