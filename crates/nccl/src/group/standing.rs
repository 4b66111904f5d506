//! How a rank stands, as it tells the others through the store: what it called last, what came of it, and that it is still there.

use phalanx_core::Fingerprint;

use super::held::Held;

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
    pub(super) messages: Vec<Message>,
    /// How many messages of batches it has called with those ranks with which its last were.
    pub(super) met: Vec<Met>,
    /// What of another group holds its operations up, if anything does.
    pub(super) held: Option<Held>,
}

/// A message: with whom, which one between the two, and whether it is sent. Those that go alone are counted together, those of batches each
/// way by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) peer: u32,
    pub(super) turn: u32,
    pub(super) is_sent: bool,
}

/// How many messages of batches a rank has called with a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Met {
    pub(super) peer: u32,
    pub(super) sent: u32,
    pub(super) received: u32,
}

impl Standing {
    /// The bytes under a rank's key.
    pub(super) fn encode(&self) -> Vec<u8> {
        let lens = [self.prints.len(), self.digests.len(), self.messages.len(), self.met.len()].map(|len| len as u8);
        let mut bytes = [&[VERSION, u8::from(self.has_left), u8::from(self.held.is_some())], &lens[..]].concat();
        bytes.extend(self.beat.to_le_bytes());
        bytes.extend(self.called.to_le_bytes());
        self.prints.iter().for_each(|print| bytes.extend(print.encode()));
        for (sequence, digest) in &self.digests {
            bytes.extend(sequence.to_le_bytes());
            bytes.extend(digest.to_le_bytes());
        }
        for Message { peer, turn, is_sent } in &self.messages {
            bytes.extend(peer.to_le_bytes());
            bytes.extend(turn.to_le_bytes());
            bytes.push(u8::from(*is_sent));
        }
        for Met { peer, sent, received } in &self.met {
            [peer, sent, received].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        self.held.iter().for_each(|held| bytes.extend(held.encode()));
        bytes
    }

    /// What these bytes say; nothing where they are not of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Standing> {
        let (head, mut rest) = bytes.split_at_checked(7)?;
        let [VERSION, left, is_held, prints, digests, messages, met] = *head else { return None };
        let beat = u64::from_le_bytes(next(&mut rest)?);
        let called = u32::from_le_bytes(next(&mut rest)?);
        let prints = (0..prints).map(|_| Fingerprint::decode(&next(&mut rest)?).ok()).collect::<Option<_>>()?;
        let digests = (0..digests)
            .map(|_| Some((u32::from_le_bytes(next(&mut rest)?), u64::from_le_bytes(next(&mut rest)?))))
            .collect::<Option<_>>()?;
        let mut message = || {
            let (peer, turn) = (u32::from_le_bytes(next(&mut rest)?), u32::from_le_bytes(next(&mut rest)?));
            let [is_sent] = next(&mut rest)?;
            Some(Message { peer, turn, is_sent: is_sent == 1 })
        };
        let messages = (0..messages).map(|_| message()).collect::<Option<_>>()?;
        let mut number = || Some(u32::from_le_bytes(next(&mut rest)?));
        let met = (0..met)
            .map(|_| Some(Met { peer: number()?, sent: number()?, received: number()? }))
            .collect::<Option<_>>()?;
        let held = if is_held == 1 { Some(Held::decode(&mut rest)?) } else { None };
        let has_left = left == 1;
        rest.is_empty().then_some(Standing { beat, has_left, called, prints, digests, messages, met, held })
    }

    /// Whether it has called its side of a message of a batch of this rank's, as far as it tells.
    pub(super) fn has_met(&self, rank: usize, message: &Message) -> bool {
        let with = self.met.iter().find(|met| usize::try_from(met.peer) == Ok(rank));
        let called = |met: &Met| if message.is_sent { met.received } else { met.sent };
        // Of more ranks than it tells, this one may be left out. What is counted begins again from 0 in the end.
        with.map_or(self.met.len() >= TOLD, |met| message.turn.wrapping_sub(called(met)) > u32::MAX / 2)
    }
}

pub(super) fn next<const LEN: usize>(rest: &mut &[u8]) -> Option<[u8; LEN]> {
    let (head, tail) = rest.split_at_checked(LEN)?;
    *rest = tail;
    head.try_into().ok()
}

const VERSION: u8 = 4;
/// How many messages, and ranks of batches, a rank tells of at most.
pub(super) const TOLD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_core::{DType, Op, ReduceOp};

    #[test]
    fn what_is_told_is_read_back_and_nothing_else() {
        let print = Fingerprint::of(&Op::AllReduce { count: 3, reduce: ReduceOp::Sum }, DType::F32, 2, 0, 7);
        let digests = vec![(6, u64::MAX), (7, 1)];
        let messages = vec![Message { peer: 3, turn: 0, is_sent: true }, Message { peer: 1, turn: 7, is_sent: false }];
        let met = vec![Met { peer: 2, sent: 5, received: u32::MAX }];
        let by = "barrier (operation 7) of group \"rows\"".to_owned();
        let held = Some(Held { from: 7, by, ranks: vec![5, u32::MAX] });
        let standing =
            Standing { beat: 9, has_left: true, called: 8, prints: vec![print], digests, messages, met, held };
        let bytes = standing.encode();
        assert_eq!(Standing::decode(&bytes), Some(standing));
        for len in 0..bytes.len() {
            assert_eq!(Standing::decode(&bytes[..len]), None);
        }
        assert_eq!(Standing::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn who_has_called_its_side_of_a_message_has_come_to_it() {
        let met = |peer| Met { peer, sent: 2, received: 1 };
        let standing = Standing { met: vec![met(4), met(0)], ..Standing::default() };
        let comes = |rank, turn, is_sent| standing.has_met(rank, &Message { peer: 7, turn, is_sent });
        assert!(comes(0, 1, false) && !comes(0, 2, false), "it has sent two");
        assert!(comes(0, 0, true) && !comes(0, 1, true), "it has received one");
        assert!(comes(0, u32::MAX, true), "the one before 0 was long ago");
        assert!(!comes(3, 0, false), "it has called nothing with rank 3");
        let busy = Standing { met: (0..64).map(met).collect(), ..Standing::default() };
        assert!(busy.has_met(64, &Message { peer: 7, turn: 9, is_sent: true }), "it does not tell of all");
    }
}
