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
}

impl Standing {
    /// The bytes under a rank's key.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.has_left), self.prints.len() as u8, self.digests.len() as u8];
        bytes.extend(self.beat.to_le_bytes());
        bytes.extend(self.called.to_le_bytes());
        self.prints.iter().for_each(|print| bytes.extend(print.encode()));
        for (sequence, digest) in &self.digests {
            bytes.extend(sequence.to_le_bytes());
            bytes.extend(digest.to_le_bytes());
        }
        bytes
    }

    /// What these bytes say; nothing where they are not of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Standing> {
        let (head, mut rest) = bytes.split_at_checked(4)?;
        let [VERSION, left, prints, digests] = *head else { return None };
        let beat = u64::from_le_bytes(next(&mut rest)?);
        let called = u32::from_le_bytes(next(&mut rest)?);
        let prints = (0..prints).map(|_| Fingerprint::decode(&next(&mut rest)?).ok()).collect::<Option<_>>()?;
        let digests = (0..digests)
            .map(|_| Some((u32::from_le_bytes(next(&mut rest)?), u64::from_le_bytes(next(&mut rest)?))))
            .collect::<Option<_>>()?;
        rest.is_empty().then_some(Standing { beat, has_left: left == 1, called, prints, digests })
    }
}

fn next<const LEN: usize>(rest: &mut &[u8]) -> Option<[u8; LEN]> {
    let (head, tail) = rest.split_at_checked(LEN)?;
    *rest = tail;
    head.try_into().ok()
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_core::{DType, Op, ReduceOp};

    #[test]
    fn what_is_told_is_read_back_and_nothing_else() {
        let print = Fingerprint::of(&Op::AllReduce { count: 3, reduce: ReduceOp::Sum }, DType::F32, 2, 0, 7);
        let standing =
            Standing { beat: 9, has_left: true, called: 8, prints: vec![print], digests: vec![(6, u64::MAX), (7, 1)] };
        let bytes = standing.encode();
        assert_eq!(Standing::decode(&bytes), Some(standing));
        for len in 0..bytes.len() {
            assert_eq!(Standing::decode(&bytes[..len]), None);
        }
        assert_eq!(Standing::decode(&[&bytes[..], &[0]].concat()), None);
    }
}
