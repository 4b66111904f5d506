//! How a meeting ended, decided once for all who came, and how that is written into the store.

use std::time::Duration;

use super::MeetError;
use super::arrival::{Arrival, missing};
use super::bytes::{Reader, put_bytes, put_index};

/// The end of a meeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All came, with these cards in rank order.
    All(Vec<Vec<u8>>),
    /// It does not take place.
    Failed(MeetError),
}

/// Who judges, and what it says of those who are not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) patience: Duration,
    /// Names the bearer of a card, for messages.
    pub(super) naming: fn(&[u8]) -> String,
}

impl Judge {
    /// What follows from those who came.
    pub(super) fn judge(&self, arrivals: &[Arrival<'_>]) -> Outcome {
        match self.seats(arrivals) {
            Err(error) => Outcome::Failed(error),
            Ok(seats) => match seats.iter().map(|seat| seat.map(<[u8]>::to_vec)).collect() {
                Some(cards) => Outcome::All(cards),
                None => Outcome::Failed(self.absent(arrivals)),
            },
        }
    }

    /// Each rank's card, where it came once and expects to meet as many as this one.
    fn seats<'a>(&self, arrivals: &[Arrival<'a>]) -> Result<Vec<Option<&'a [u8]>>, MeetError> {
        let mut seats = vec![None; self.size];
        for arrival in arrivals {
            if arrival.size != self.size || arrival.rank >= self.size {
                let (rank, size) = (self.rank, self.size);
                return Err(MeetError::Sizes { rank, size, other: arrival.rank, other_size: arrival.size });
            }
            if let Some(first) = seats[arrival.rank].replace(arrival.card) {
                return Err(self.twice(arrival.rank, first, arrival.card));
            }
        }
        Ok(seats)
    }

    /// Two cards came as `rank`.
    pub(super) fn twice(&self, rank: usize, first: &[u8], second: &[u8]) -> MeetError {
        MeetError::Twice { rank, first: (self.naming)(first), second: (self.naming)(second) }
    }

    fn absent(&self, arrivals: &[Arrival<'_>]) -> MeetError {
        let missing = missing(arrivals, self.size);
        MeetError::Missing { missing, size: self.size, by: self.rank, after: self.patience }
    }
}

impl Outcome {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Outcome::All(cards) => {
                out.push(ALL);
                put_index(&mut out, cards.len());
                cards.iter().for_each(|card| put_bytes(&mut out, card));
            }
            Outcome::Failed(MeetError::Missing { missing, size, by, after }) => {
                out.push(MISSING);
                [*size, *by, missing.len()].iter().chain(missing).for_each(|index| put_index(&mut out, *index));
                out.extend(u64::try_from(after.as_millis()).unwrap_or(u64::MAX).to_le_bytes());
            }
            Outcome::Failed(MeetError::Twice { rank, first, second }) => {
                out.push(TWICE);
                put_index(&mut out, *rank);
                [first, second].iter().for_each(|name| put_bytes(&mut out, name.as_bytes()));
            }
            Outcome::Failed(MeetError::Sizes { rank, size, other, other_size }) => {
                out.push(SIZES);
                [rank, size, other, other_size].iter().for_each(|index| put_index(&mut out, **index));
            }
            Outcome::Failed(MeetError::Garbled { key }) => {
                out.push(GARBLED);
                put_bytes(&mut out, key.as_bytes());
            }
            // These are nobody's but this rank's, and never decided; a reader would take them for garbled.
            Outcome::Failed(MeetError::Rank { .. } | MeetError::Busy | MeetError::Store(_)) => {}
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Outcome> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let outcome = match reader.u8()? {
            ALL => Outcome::All(decode_cards(&mut reader)?),
            MISSING => Outcome::Failed(decode_missing(&mut reader)?),
            TWICE => {
                let (rank, first, second) = (reader.index()?, reader.text()?.to_owned(), reader.text()?.to_owned());
                Outcome::Failed(MeetError::Twice { rank, first, second })
            }
            SIZES => {
                let (rank, size, other, other_size) =
                    (reader.index()?, reader.index()?, reader.index()?, reader.index()?);
                Outcome::Failed(MeetError::Sizes { rank, size, other, other_size })
            }
            GARBLED => Outcome::Failed(MeetError::Garbled { key: reader.text()?.to_owned() }),
            _ => return None,
        };
        reader.is_empty().then_some(outcome)
    }
}

/// Collecting stops at the first entry that is not there, so a count that lies takes no memory.
fn decode_cards(reader: &mut Reader<'_>) -> Option<Vec<Vec<u8>>> {
    let count = reader.index()?;
    let mut cards = Vec::new();
    for _ in 0..count {
        cards.push(reader.bytes()?.to_vec());
    }
    Some(cards)
}

fn decode_missing(reader: &mut Reader<'_>) -> Option<MeetError> {
    let (size, by, count) = (reader.index()?, reader.index()?, reader.index()?);
    let mut missing = Vec::new();
    for _ in 0..count {
        missing.push(reader.index()?);
    }
    Some(MeetError::Missing { missing, size, by, after: Duration::from_millis(reader.u64()?) })
}

const VERSION: u8 = 1;
const ALL: u8 = 0;
const MISSING: u8 = 1;
const TWICE: u8 = 2;
const SIZES: u8 = 3;
const GARBLED: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGE: Judge = Judge {
        rank: 0,
        size: 3,
        patience: Duration::from_millis(1500),
        naming: |card| String::from_utf8_lossy(card).into_owned(),
    };

    fn came(rank: usize, card: &[u8]) -> Arrival<'_> {
        Arrival { rank, size: 3, card }
    }

    fn outcomes() -> Vec<Outcome> {
        let odd = Arrival { rank: 4, size: 5, card: b"" };
        vec![
            JUDGE.judge(&[came(2, b"c"), came(0, b"a"), came(1, b"")]),
            JUDGE.judge(&[came(0, b"a")]),
            JUDGE.judge(&[came(1, b"here"), came(0, b"a"), came(1, b"there")]),
            JUDGE.judge(&[came(1, b""), odd]),
            Outcome::Failed(MeetError::Garbled { key: "world/0/cards".into() }),
        ]
    }

    #[test]
    fn each_outcome_in_words() {
        let outcomes = outcomes();
        assert_eq!(outcomes[0], Outcome::All(vec![b"a".to_vec(), vec![], b"c".to_vec()]));
        let texts: Vec<String> = outcomes[1..]
            .iter()
            .map(|outcome| if let Outcome::Failed(error) = outcome { error.to_string() } else { String::new() })
            .collect();
        assert_eq!(
            texts,
            [
                "ranks 1, 2 of 3 did not come within 1.5s; rank 0 was the first to give up",
                "rank 1 came twice: as here and as there",
                "rank 0 came to meet 3 ranks, rank 4 to meet 5",
                "what stands under world/0/cards makes no sense",
            ]
        );
    }

    #[test]
    fn outcomes_travel_whole_or_not_at_all() {
        for outcome in outcomes() {
            let bytes = outcome.encode();
            assert_eq!(Outcome::decode(&bytes), Some(outcome));
            (0..bytes.len()).for_each(|cut| assert_eq!(Outcome::decode(&bytes[..cut]), None));
            assert_eq!(Outcome::decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(Outcome::decode(&[VERSION, ALL, 255, 255, 255, 255]), None);
        assert_eq!(Outcome::decode(&[VERSION + 1, ALL, 0, 0, 0, 0]), None);
        assert_eq!(Outcome::decode(&[VERSION, 9]), None);
    }
}
