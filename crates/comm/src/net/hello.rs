//! The first words on a connection between two ranks: which group, who calls whom, and what the connection is for. The
//! answer is the same with the ranks the other way round.

use crate::rendezvous::bytes::Reader;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Traffic {
    Collectives = 0,
    Messages = 1,
    Control = 2,
}

/// What one rank says to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) token: [u8; 16],
    pub(crate) epoch: u32,
    /// Who speaks.
    pub(crate) from: u32,
    /// Who listens.
    pub(crate) to: u32,
    pub(crate) traffic: Traffic,
}

impl Traffic {
    pub(crate) const ALL: [Traffic; 3] = [Traffic::Collectives, Traffic::Messages, Traffic::Control];
}

impl Hello {
    pub(super) const BYTE_LEN: usize = 40;

    /// The bytes on the wire.
    pub(super) fn encode(&self) -> [u8; Hello::BYTE_LEN] {
        let mut bytes = Vec::with_capacity(Hello::BYTE_LEN);
        bytes.extend(MAGIC);
        bytes.extend(self.token);
        [self.epoch, self.from, self.to].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.push(self.traffic as u8);
        bytes.resize(Hello::BYTE_LEN, 0);
        std::array::from_fn(|at| bytes[at])
    }

    /// The hello in these bytes, if they are one of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Hello> {
        let mut reader = Reader::new(bytes);
        let is_ours = reader.take(MAGIC.len())? == MAGIC;
        let token = reader.take(16)?.try_into().ok()?;
        let (epoch, from, to, traffic) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u8()?);
        let traffic = Traffic::ALL.into_iter().find(|known| *known as u8 == traffic)?;
        let is_whole = reader.take(3)? == [0; 3] && reader.is_empty();
        (is_ours && is_whole).then_some(Hello { token, epoch, from, to, traffic })
    }

    /// The same from the other side.
    pub(super) fn turned(self) -> Hello {
        Hello { from: self.to, to: self.from, ..self }
    }
}

/// The last byte is the version.
const MAGIC: [u8; 8] = *b"PHXRANK\x01";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_travels_whole_and_any_other_bytes_are_none() {
        let hello = Hello { token: [7; 16], epoch: 3, from: 5, to: 1, traffic: Traffic::Control };
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Some(hello));
        assert_eq!(hello.turned().turned(), hello);
        assert!((0..bytes.len()).all(|len| Hello::decode(&bytes[..len]).is_none()));
        assert_eq!(Hello::decode(&[&bytes[..], &[0]].concat()), None);
        for at in (0..8).chain([36, 37, 38, 39]) {
            let mut changed = bytes;
            changed[at] = 99;
            assert_eq!(Hello::decode(&changed), None, "byte {at}");
        }
    }
}
