//! How a rank stands, as it tells the others through the store: what it called last, what came of it, and that it is still there.

use phalanx_core::Fingerprint;

/// What one rank says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Standing {
    /// How often it has said something.
    pub(super) beat: u64,
    /// Whether it has left.
    pub(super) has_left: bool,
    /// The number of its next collective.
    pub(super) called: u32,
    /// Its last collectives.
    pub(super) prints: Vec<Fingerprint>,
    /// Hashes of what its last collectives gave.
    pub(super) digests: Vec<(u32, u64)>,
    /// Messages that are under way alone.
    pub(super) messages: Vec<Alone>,
}

/// A message that goes alone: with whom, which one between the two, and whether it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alone {
    pub(super) peer: u32,
    pub(super) turn: u32,
    pub(super) is_sent: bool,
}

impl Standing {
    /// The bytes under a rank's key.
    pub(super) fn encode(&self) -> Vec<u8> {
        let lens = [self.prints.len(), self.digests.len(), self.messages.len()].map(|len| len as u8);
        let mut bytes = [&[VERSION, u8::from(self.has_left)], &lens[..]].concat();
        bytes.extend(self.beat.to_le_bytes());
        bytes.extend(self.called.to_le_bytes());
        self.prints.iter().for_each(|print| bytes.extend(print.encode()));
        for (sequence, digest) in &self.digests {
            bytes.extend(sequence.to_le_bytes());
            bytes.extend(digest.to_le_bytes());
        }
        for Alone { peer, turn, is_sent } in &self.messages {
            bytes.extend(peer.to_le_bytes());
            bytes.extend(turn.to_le_bytes());
            bytes.push(u8::from(*is_sent));
        }
        bytes
    }

    /// What these bytes say; nothing where they are not of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Standing> {
        let (head, mut rest) = bytes.split_at_checked(5)?;
        let [VERSION, left, prints, digests, messages] = *head else { return None };
        let beat = u64::from_le_bytes(next(&mut rest)?);
        let called = u32::from_le_bytes(next(&mut rest)?);
        let prints = (0..prints).map(|_| Fingerprint::decode(&next(&mut rest)?).ok()).collect::<Option<_>>()?;
        let digests = (0..digests)
            .map(|_| Some((u32::from_le_bytes(next(&mut rest)?), u64::from_le_bytes(next(&mut rest)?))))
            .collect::<Option<_>>()?;
        let mut message = || {
            let (peer, turn) = (u32::from_le_bytes(next(&mut rest)?), u32::from_le_bytes(next(&mut rest)?));
            let [is_sent] = next(&mut rest)?;
            Some(Alone { peer, turn, is_sent: is_sent == 1 })
        };
        let messages = (0..messages).map(|_| message()).collect::<Option<_>>()?;
        rest.is_empty().then_some(Standing { beat, has_left: left == 1, called, prints, digests, messages })
    }
}

fn next<const LEN: usize>(rest: &mut &[u8]) -> Option<[u8; LEN]> {
    let (head, tail) = rest.split_at_checked(LEN)?;
    *rest = tail;
    head.try_into().ok()
}

const VERSION: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_core::{DType, Op, ReduceOp};

    #[test]
    fn what_is_told_is_read_back_and_nothing_else() {
        let print = Fingerprint::of(&Op::AllReduce { count: 3, reduce: ReduceOp::Sum }, DType::F32, 2, 0, 7);
        let digests = vec![(6, u64::MAX), (7, 1)];
        let messages = vec![Alone { peer: 3, turn: 0, is_sent: true }, Alone { peer: 1, turn: 7, is_sent: false }];
        let standing = Standing { beat: 9, has_left: true, called: 8, prints: vec![print], digests, messages };
        let bytes = standing.encode();
        assert_eq!(Standing::decode(&bytes), Some(standing));
        for len in 0..bytes.len() {
            assert_eq!(Standing::decode(&bytes[..len]), None);
        }
        assert_eq!(Standing::decode(&[&bytes[..], &[0]].concat()), None);
    }
}
