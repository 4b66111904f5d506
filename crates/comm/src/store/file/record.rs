//! One change as bytes in the log, and back. It checks its own form, not whether the change makes sense.
//!
//! A record is a length, the length's checksum, the payload, and the payload's checksum. Numbers are little-endian. With a
//! checksum of its own a length can be believed: a record that goes beyond the end of the file was being written when its
//! writer was killed, and anything else that does not fit is corrupt.

use phalanx_core::store::{ClientId, Key, Request, Value};

/// What stands at one place of the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// A whole record with this payload.
    Record(&'a [u8]),
    /// The beginning of a record that takes so many bytes.
    Part(usize),
    /// No record.
    Corrupt,
}

/// Reads the record at the beginning of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Parsed::Part(HEAD) };
    let (len, check) = head.split_at(4);
    if crc32c::crc32c(len).to_le_bytes() != check {
        return Parsed::Corrupt;
    }
    let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
    let (Some(payload), Some(check)) = (rest.get(..len), rest.get(len..len + CHECK)) else {
        return Parsed::Part(framed_byte_len(len));
    };
    if crc32c::crc32c(payload).to_le_bytes() == check { Parsed::Record(payload) } else { Parsed::Corrupt }
}

/// What a payload of `len` bytes takes in the log.
pub(super) fn framed_byte_len(len: usize) -> usize {
    HEAD + len + CHECK
}

/// The record of a change by `client`; none for what changes nothing or is too long to be counted.
pub(super) fn encode(client: ClientId, request: &Request) -> Option<Vec<u8>> {
    let mut out = vec![0; HEAD];
    out.extend(client.0.to_le_bytes());
    put_request(&mut out, request)?;
    let payload = &out[HEAD..];
    let (len, check) = (u32::try_from(payload.len()).ok()?.to_le_bytes(), crc32c::crc32c(payload).to_le_bytes());
    out[..4].copy_from_slice(&len);
    out[4..HEAD].copy_from_slice(&crc32c::crc32c(&len).to_le_bytes());
    out.extend(check);
    Some(out)
}

/// The change in a payload; none if it is malformed.
pub(super) fn decode(payload: &[u8]) -> Option<(ClientId, Request)> {
    let mut reader = Reader(payload);
    let client = ClientId(reader.number()?);
    let request = reader.request()?;
    reader.0.is_empty().then_some((client, request))
}

fn put_request(out: &mut Vec<u8>, request: &Request) -> Option<()> {
    match request {
        Request::Set { pairs } => {
            out.push(SET);
            out.extend((pairs.len() as u64).to_le_bytes());
            pairs.iter().for_each(|(key, value)| put_all(out, &[key.as_bytes(), value]));
        }
        Request::Add { key, delta } => put_number(out, ADD, key, *delta),
        Request::CompareSet { key, expected, desired } => {
            out.push(COMPARE_SET);
            put_all(out, &[key.as_bytes(), expected, desired]);
        }
        Request::Delete { key } => put_with(out, DELETE, &[key.as_bytes()]),
        Request::Append { key, value } => put_with(out, APPEND, &[key.as_bytes(), value]),
        Request::Push { key, value } => put_with(out, PUSH, &[key.as_bytes(), value]),
        Request::Pop { key, .. } => put_with(out, POP, &[key.as_bytes()]),
        Request::Barrier { key, size } => put_number(out, BARRIER, key, *size),
        _ => return None,
    }
    Some(())
}

fn put_number(out: &mut Vec<u8>, kind: u8, key: &Key, number: i64) {
    put_with(out, kind, &[key.as_bytes()]);
    out.extend(number.to_le_bytes());
}

fn put_with(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    out.push(kind);
    put_all(out, parts);
}

fn put_all(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend((part.len() as u64).to_le_bytes());
        out.extend_from_slice(part);
    }
}

/// What is left of a payload.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn request(&mut self) -> Option<Request> {
        let (&kind, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(match kind {
            SET => Request::Set { pairs: self.pairs()? },
            ADD => Request::Add { key: self.key()?, delta: self.number()?.cast_signed() },
            COMPARE_SET => Request::CompareSet { key: self.key()?, expected: self.value()?, desired: self.value()? },
            DELETE => Request::Delete { key: self.key()? },
            APPEND => Request::Append { key: self.key()?, value: self.value()? },
            PUSH => Request::Push { key: self.key()?, value: self.value()? },
            POP => Request::Pop { key: self.key()?, wait: false },
            BARRIER => Request::Barrier { key: self.key()?, size: self.number()?.cast_signed() },
            _ => return None,
        })
    }

    /// The count is not believed: memory grows only with pairs that are there.
    fn pairs(&mut self) -> Option<Vec<(Key, Value)>> {
        let count = self.number()?;
        (0..count).map(|_| Some((self.key()?, self.value()?))).collect()
    }

    fn key(&mut self) -> Option<Key> {
        self.bytes().map(Key::from)
    }

    fn value(&mut self) -> Option<Value> {
        self.bytes().map(Value::from)
    }

    fn bytes(&mut self) -> Option<&[u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }
}

const HEAD: usize = 8;
const CHECK: usize = 4;

const SET: u8 = 1;
const ADD: u8 = 2;
const COMPARE_SET: u8 = 3;
const DELETE: u8 = 4;
const APPEND: u8 = 5;
const PUSH: u8 = 6;
const POP: u8 = 7;
const BARRIER: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Request> {
        let (key, value) = (|| Key::from("key"), || Value::from(&b"\0value\xff"[..]));
        vec![
            Request::Set { pairs: vec![] },
            Request::Set { pairs: vec![(key(), value()), (Key::from(""), Value::default())] },
            Request::Add { key: key(), delta: i64::MIN },
            Request::CompareSet { key: key(), expected: Value::default(), desired: value() },
            Request::Delete { key: key() },
            Request::Append { key: key(), value: value() },
            Request::Push { key: key(), value: value() },
            Request::Pop { key: key(), wait: false },
            Request::Barrier { key: key(), size: 7 },
        ]
    }

    #[test]
    fn every_change_comes_back() {
        for request in changes() {
            let record = encode(ClientId(u64::MAX), &request).unwrap();
            let Parsed::Record(payload) = parse(&record) else { panic!("{request:?}") };
            assert_eq!(record.len(), framed_byte_len(payload.len()));
            assert_eq!(decode(payload), Some((ClientId(u64::MAX), request)));
        }
        assert_eq!(encode(ClientId(1), &Request::Ping), None);
    }

    #[test]
    fn a_cut_is_told_from_a_flipped_bit() {
        for request in changes() {
            let record = encode(ClientId(1), &request).unwrap();
            for len in 0..record.len() {
                let expected = if len < HEAD { HEAD } else { record.len() };
                assert_eq!(parse(&record[..len]), Parsed::Part(expected), "{request:?} cut at {len}");
            }
            for bit in 0..record.len() * 8 {
                let mut flipped = record.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(parse(&flipped), Parsed::Corrupt, "{request:?} with bit {bit} flipped");
            }
        }
    }

    #[test]
    fn hostile_payloads_are_refused() {
        for request in changes() {
            let record = encode(ClientId(1), &request).unwrap();
            let payload = &record[HEAD..record.len() - CHECK];
            assert!((0..payload.len()).all(|len| decode(&payload[..len]).is_none()), "{request:?}");
            assert_eq!(decode(&[payload, &[0]].concat()), None);
        }
        let mut bomb = vec![0; 8];
        bomb.push(SET);
        bomb.extend(u64::MAX.to_le_bytes());
        assert_eq!(decode(&bomb), None);
        bomb[8] = APPEND;
        assert_eq!(decode(&bomb), None);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let mut payload: Vec<u8> = (0..random.usize(..64)).map(|_| random.u8(..)).collect();
            payload.iter_mut().skip(8).step_by(2).for_each(|byte| *byte %= 10);
            if let Some((client, request)) = decode(&payload) {
                let again = encode(client, &request).unwrap();
                assert_eq!(parse(&again), Parsed::Record(&payload));
            }
        }
    }
}
