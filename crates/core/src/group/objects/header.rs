//! What ranks tell each other before objects travel: 128 bytes that say what is called, of which type, and how long.
//!
//! docs/wire.md holds the layout.

use crate::{OpKind, fnv};

/// What one rank says of its part in an exchange of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Which exchange this is.
    pub(super) kind: OpKind,
    /// The rank that gives or gets alone, or 0.
    pub(super) root: u32,
    /// What this rank gives.
    pub(super) given: Given,
    /// The most bytes that an object may have here.
    pub(super) largest: u64,
    /// A hash of the whole name of the type.
    pub(super) type_hash: u64,
    /// The name of the type, or its end.
    pub(super) type_name: String,
}

/// What a rank gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// An object of so many bytes; of several the longest.
    Bytes(u64),
    /// Nothing, as another rank gives alone.
    Nothing,
    /// Nothing, though it should: it reports why itself.
    Refused,
}

/// Bytes that are no header of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value}")]
pub(super) struct BadHeader {
    field: &'static str,
    value: u64,
}

impl Header {
    /// Bytes on the wire.
    pub(super) const BYTE_LEN: usize = 128;

    /// What a rank says that gives `given` of the type of this name.
    pub(super) fn new(kind: OpKind, root: usize, given: Given, largest: usize, type_name: &str) -> Header {
        Header {
            kind,
            root: root as u32,
            given,
            largest: largest as u64,
            type_hash: fnv::hash64(type_name.bytes()),
            type_name: end_of(type_name).to_owned(),
        }
    }

    /// The bytes on the wire.
    pub(super) fn encode(&self) -> [u8; Header::BYTE_LEN] {
        let (given, byte_len) = match self.given {
            Given::Bytes(byte_len) => (BYTES, byte_len),
            Given::Nothing => (NOTHING, 0),
            Given::Refused => (REFUSED, 0),
        };
        let name = self.type_name.as_bytes();
        let mut bytes = [0; Header::BYTE_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[VERSION, self.kind as u8, given, name.len() as u8]);
        bytes[8..12].copy_from_slice(&self.root.to_le_bytes());
        bytes[12..20].copy_from_slice(&byte_len.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.largest.to_le_bytes());
        bytes[28..NAME].copy_from_slice(&self.type_hash.to_le_bytes());
        bytes[NAME..NAME + name.len()].copy_from_slice(name);
        bytes
    }

    /// The header in these bytes, which are another process's.
    pub(super) fn decode(bytes: &[u8; Header::BYTE_LEN]) -> Result<Header, BadHeader> {
        let bad = |field, value: u8| BadHeader { field, value: value.into() };
        let [m0, m1, m2, m3, version, kind, given, name_len, ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(BadHeader { field: "magic", value: u32::from_be_bytes([m0, m1, m2, m3]).into() });
        }
        if version != VERSION {
            return Err(bad("version", version));
        }
        let byte_len = u64::from_le_bytes(field(bytes, 12));
        let given = match given {
            BYTES => Given::Bytes(byte_len),
            NOTHING => Given::Nothing,
            REFUSED => Given::Refused,
            other => return Err(bad("gift", other)),
        };
        let name = bytes[NAME..].get(..usize::from(name_len)).ok_or(bad("name length", name_len))?;
        Ok(Header {
            kind: OpKind::from_wire(kind).ok_or(bad("op", kind))?,
            root: u32::from_le_bytes(field(bytes, 8)),
            given,
            largest: u64::from_le_bytes(field(bytes, 20)),
            type_hash: u64::from_le_bytes(field(bytes, 28)),
            type_name: String::from_utf8_lossy(name).into_owned(),
        })
    }
}

/// As much of a type's name as a header has room for: its end, which tells more than the path before it.
fn end_of(name: &str) -> &str {
    let most = Header::BYTE_LEN - NAME;
    let start = (name.len().saturating_sub(most)..=name.len()).find(|&start| name.is_char_boundary(start));
    &name[start.unwrap_or(name.len())..]
}

/// The `N` bytes at `at`, which is a constant within the length.
fn field<const N: usize>(bytes: &[u8; Header::BYTE_LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

const MAGIC: [u8; 4] = *b"PHXO";
const VERSION: u8 = 1;
/// Where the name begins.
const NAME: usize = 36;
const BYTES: u8 = 0;
const NOTHING: u8 = 1;
const REFUSED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_every_wrong_head() {
        for given in [Given::Bytes(u64::MAX), Given::Nothing, Given::Refused] {
            let header = Header::new(OpKind::Gather, 7, given, 1 << 40, "alloc::vec::Vec<u8>");
            let bytes = header.encode();
            assert_eq!(Header::decode(&bytes), Ok(header));
            for (at, value) in [(0, 0), (3, 1), (4, 2), (5, 0), (5, 99), (6, 3), (7, 93), (7, 255)] {
                let mut broken = bytes;
                broken[at] = value;
                let error = Header::decode(&broken).unwrap_err();
                assert!(at < 4 || error.value == u64::from(value), "byte {at}: {error}");
            }
        }
    }

    #[test]
    fn of_a_long_name_the_end_is_told_and_all_is_hashed() {
        let long = |first| format!("{first}{}", "é".repeat(60));
        let [one, other] = ["a", "b"].map(|first| Header::new(OpKind::Send, 0, Given::Nothing, 0, &long(first)));
        assert_eq!((&one.type_name, one.type_name.len()), (&other.type_name, 92));
        assert_ne!(one.type_hash, other.type_hash);
        assert_eq!(Header::decode(&one.encode()), Ok(one));
    }
}
