//! The messages between two ranks, byte by byte. What is read is another process's input, and either a message or nothing.

use phalanx_core::{Error, Fingerprint};

use crate::secure::DatagramKey;
use crate::{verdict, waits};

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// The rank lives, and has begun these collectives since the last message like this.
    Beat(Vec<Fingerprint>),
    /// The rank has failed of this: was it the first?
    Proposal(Error),
    /// The group has failed of this.
    Verdict(Error),
    /// The rank leaves. One that leaves in order waits until what it sent has arrived.
    Leave { failed: bool },
    /// All that the leaving rank sent has arrived.
    Arrived,
    /// The rank is there again after a failure that the group outlives; its next collective would have this number.
    Return { upcoming: u32 },
    /// It has heard that all are there again, and goes on with them.
    GoOn { upcoming: u32 },
    /// The rank has given the group up, which may have failed before.
    Abandon,
    /// Whom the rank says that it waits for.
    Wait([u64; waits::WORDS]),
    /// Where the rank takes datagrams, and sealed how.
    Beacon { port: u16, key: DatagramKey },
}

impl Message {
    /// The most collectives that one beat tells.
    pub(super) const PRINTS: usize = 64;

    /// The bytes on the wire.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Message::Beat(prints) => {
                let prints = &prints[prints.len().saturating_sub(Message::PRINTS)..];
                (BEAT, prints.iter().flat_map(Fingerprint::encode).collect())
            }
            Message::Proposal(error) => (PROPOSAL, failure(error)),
            Message::Verdict(error) => (VERDICT, failure(error)),
            Message::Leave { failed } => (LEAVE, vec![u8::from(*failed)]),
            Message::Arrived => (ARRIVED, vec![]),
            Message::Return { upcoming } => (RETURN, upcoming.to_le_bytes().to_vec()),
            Message::GoOn { upcoming } => (GO_ON, upcoming.to_le_bytes().to_vec()),
            Message::Abandon => (ABANDON, vec![]),
            Message::Wait(words) => (WAIT, words.iter().flat_map(|word| word.to_le_bytes()).collect()),
            Message::Beacon { port, key } => (BEACON, [&port.to_le_bytes()[..], key].concat()),
        };
        let mut bytes = vec![kind];
        // At most 2 KiB.
        bytes.extend((body.len() as u16).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// The message at the front of `bytes`, once it is whole, and its length there.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Message, usize)>, String> {
        let Some((&[kind, low, high], rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes([low, high]));
        if !is_possible(kind, len) {
            return Err(format!("a control message of kind {kind} and {len} bytes"));
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        Ok(Some((Message::decode(kind, body)?, HEAD + len)))
    }

    fn decode(kind: u8, body: &[u8]) -> Result<Message, String> {
        match (kind, body) {
            (BEAT, prints) => {
                let (prints, _) = prints.as_chunks();
                let prints: Result<_, _> = prints.iter().map(Fingerprint::decode).collect();
                prints.map(Message::Beat).map_err(|bad| format!("a control message with {bad}"))
            }
            (PROPOSAL, words) => failure_of(words).map(Message::Proposal),
            (VERDICT, words) => failure_of(words).map(Message::Verdict),
            (LEAVE, [failed @ 0..=1]) => Ok(Message::Leave { failed: *failed == 1 }),
            (ARRIVED, []) => Ok(Message::Arrived),
            (RETURN, &[a, b, c, d]) => Ok(Message::Return { upcoming: u32::from_le_bytes([a, b, c, d]) }),
            (GO_ON, &[a, b, c, d]) => Ok(Message::GoOn { upcoming: u32::from_le_bytes([a, b, c, d]) }),
            (ABANDON, []) => Ok(Message::Abandon),
            (WAIT, words) => {
                let (words, _) = words.as_chunks();
                Ok(Message::Wait(std::array::from_fn(|at| u64::from_le_bytes(words[at]))))
            }
            (BEACON, [low, high, key @ ..]) => {
                let key = DatagramKey::try_from(key).map_err(|_| "a beacon without a key".to_owned())?;
                Ok(Message::Beacon { port: u16::from_le_bytes([*low, *high]), key })
            }
            (kind, _) => Err(format!("a control message of kind {kind} that makes no sense")),
        }
    }
}

fn failure(error: &Error) -> Vec<u8> {
    verdict::encode(error).map(u64::to_le_bytes).concat()
}

fn failure_of(words: &[u8]) -> Result<Error, String> {
    let (words, _) = words.as_chunks();
    let words = std::array::from_fn(|at| words.get(at).copied().map_or(0, u64::from_le_bytes));
    verdict::decode(&words).ok_or_else(|| "a failure that cannot be read".to_owned())
}

fn is_possible(kind: u8, len: usize) -> bool {
    match kind {
        BEAT => len.is_multiple_of(Fingerprint::BYTE_LEN) && len <= Message::PRINTS * Fingerprint::BYTE_LEN,
        PROPOSAL | VERDICT => len == verdict::WORDS * size_of::<u64>(),
        LEAVE => len == 1,
        ARRIVED | ABANDON => len == 0,
        RETURN | GO_ON => len == size_of::<u32>(),
        WAIT => len == waits::WORDS * size_of::<u64>(),
        BEACON => len == size_of::<u16>() + size_of::<DatagramKey>(),
        _ => false,
    }
}

const HEAD: usize = 3;
const BEAT: u8 = 1;
const VERDICT: u8 = 2;
const LEAVE: u8 = 3;
const ARRIVED: u8 = 4;
const PROPOSAL: u8 = 5;
const BEACON: u8 = 6;
const RETURN: u8 = 7;
const WAIT: u8 = 8;
const ABANDON: u8 = 9;
const GO_ON: u8 = 10;

#[cfg(test)]
mod tests {
    use phalanx_core::{DType, Op, PeerReason};

    use super::*;

    fn samples() -> Vec<Message> {
        let print = |sequence| Fingerprint::of(&Op::Barrier, DType::U8, 3, 7, sequence);
        let dead = Error::peer(2, PeerReason::Dead, "planted");
        vec![
            Message::Beat(vec![]),
            Message::Beat((0..64).map(print).collect()),
            Message::Proposal(dead.clone()),
            Message::Verdict(dead),
            Message::Leave { failed: false },
            Message::Leave { failed: true },
            Message::Arrived,
            Message::Return { upcoming: 7_000_000 },
            Message::GoOn { upcoming: 7_000_001 },
            Message::Abandon,
            Message::Wait([1, 2, 3, 4, u64::MAX]),
            Message::Beacon { port: 4100, key: [9; 32] },
        ]
    }

    #[test]
    fn messages_travel_whole_however_they_are_cut() {
        let wire: Vec<u8> = samples().iter().flat_map(Message::encode).collect();
        let (mut inbox, mut came) = (vec![], vec![]);
        for byte in wire {
            inbox.push(byte);
            if let Some((message, len)) = Message::read(&inbox).expect("a good message") {
                came.push(message);
                inbox.drain(..len);
            }
        }
        assert_eq!(came, samples());
        assert!(inbox.is_empty());
    }

    #[test]
    fn any_bytes_are_survived_and_long_ones_refused_at_once() {
        let mut random = fastrand::Rng::with_seed(11);
        for message in samples() {
            for _ in 0..5000 {
                let mut bytes = message.encode();
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u32(..8);
                if let Ok(Some((_, len))) = Message::read(&bytes) {
                    assert!((1..=bytes.len()).contains(&len));
                }
            }
        }
        assert!(Message::read(&[BEAT, 255, 255]).is_err());
        assert!(Message::read(&[0, 0, 0]).is_err());
    }
}
