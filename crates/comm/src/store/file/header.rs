//! How a store's file begins: what it is, which version, and the limits of whoever made it, which bind everybody.

use phalanx_core::store::Limits;

/// How long a header is.
pub(super) const BYTE_LEN: usize = MAGIC.len() + 4 + 7 * 8 + 4;

/// What every process that shares the file must agree on, or their copies would differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) limits: Limits,
    /// How long the file may become.
    pub(super) log: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Header { limits, log } = self;
        let mut out = Vec::with_capacity(BYTE_LEN);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        let bytes = [limits.key_byte_len(), limits.value_byte_len(), limits.key_count(), limits.message_byte_len()];
        let bytes = bytes.into_iter().chain([limits.client_byte_len(), limits.total_byte_len()]);
        out.extend(bytes.flat_map(|number| (number as u64).to_le_bytes()));
        out.extend(log.to_le_bytes());
        out.extend(crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// The header in the first bytes of a file; none where its maker has not written all of it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Header>, String> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err("the file is no store and stays untouched".into());
        }
        let Some((bytes, check)) = bytes.get(..BYTE_LEN).and_then(|bytes| bytes.split_at_checked(BYTE_LEN - 4)) else {
            return Ok(None);
        };
        let Some((version, numbers)) = bytes[MAGIC.len()..].split_first_chunk() else { return Ok(None) };
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(format!("the file has version {version} of the format, this program knows {VERSION}"));
        }
        if crc32c::crc32c(bytes).to_le_bytes() != check {
            return Err("the file's header is corrupt".into());
        }
        let numbers: Vec<u64> = numbers.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let at = |index: usize| usize::try_from(numbers[index]).unwrap_or(usize::MAX);
        let limits = Limits::default().key(at(0)).value(at(1)).keys(at(2)).message(at(3)).client(at(4)).total(at(5));
        Ok(Some(Header { limits, log: numbers[6] }))
    }
}

const MAGIC: &[u8; 8] = b"phalanx\n";
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header { limits: Limits::default().key(1).value(2).keys(3).message(4).client(5).total(6), log: 7 }
    }

    #[test]
    fn a_header_comes_back_once_it_is_whole() {
        let bytes = header().encode();
        assert_eq!(bytes.len(), BYTE_LEN);
        assert_eq!(Header::decode(&bytes), Ok(Some(header())));
        assert!((0..BYTE_LEN).all(|len| Header::decode(&bytes[..len]) == Ok(None)));
    }

    #[test]
    fn anything_else_is_refused() {
        for bit in 0..BYTE_LEN * 8 {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bytes).is_err(), "bit {bit}");
        }
        assert!(Header::decode(b"p").is_ok() && Header::decode(b"#!/bin/sh\n").is_err());
    }
}
