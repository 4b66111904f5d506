//! Who is elected into the next world, of all who want to be in it. When that is, and what becomes of it, is not decided here.

use std::time::Duration;

use super::bytes::{Reader, put_bytes};

/// Somebody who wants to be in the next world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Tells it from all others, whoever has its rank.
    pub(super) token: [u8; 16],
    /// Its rank in this world; none for a newcomer.
    pub(super) seat: Option<u32>,
    pub(super) card: Vec<u8>,
}

/// Who decides, where it may.
pub(super) struct Elector<'a> {
    /// The size of this world.
    pub(super) size: usize,
    /// The ranks that are not waited for, nor let in.
    pub(super) lost: &'a [usize],
    /// How long to wait for the others.
    pub(super) patience: Duration,
}

impl Elector<'_> {
    pub(super) fn is_complete(&self, entries: &[Entry]) -> bool {
        let came = |rank: usize| entries.iter().any(|entry| entry.seat.is_some_and(|seat| seat as usize == rank));
        (0..self.size).filter(|rank| !self.lost.contains(rank)).all(came)
    }

    /// Ranks of this world in their order, then newcomers as they came, but for those who have gone again. Whoever came twice counts once.
    pub(super) fn elect(&self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut elected: Vec<Entry> = vec![];
        let gone: Vec<[u8; 16]> =
            entries.iter().filter(|entry| entry.seat == Some(WITHDRAWN)).map(|entry| entry.token).collect();
        for entry in entries.into_iter().filter(|entry| !gone.contains(&entry.token)) {
            let seat = entry.seat.map(|seat| seat as usize);
            let is_lost = seat.is_some_and(|seat| seat >= self.size || self.lost.contains(&seat));
            let is_known = |known: &Entry| known.token == entry.token || (seat.is_some() && known.seat == entry.seat);
            if !is_lost && !elected.iter().any(is_known) {
                elected.push(entry);
            }
        }
        elected.sort_by_key(|entry| entry.seat.map_or(u64::MAX, u64::from));
        elected
    }
}

impl Entry {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.token.to_vec();
        out.extend(self.seat.unwrap_or(NO_SEAT).to_le_bytes());
        put_bytes(&mut out, &self.card);
        out
    }

    /// All entries up to the first that makes no sense.
    pub(super) fn decode_list(bytes: &[u8]) -> Vec<Entry> {
        let mut reader = Reader::new(bytes);
        std::iter::from_fn(|| {
            let token = reader.take(16)?.try_into().ok()?;
            let seat = Some(reader.u32()?).filter(|seat| *seat != NO_SEAT);
            Some(Entry { token, seat, card: reader.bytes()?.to_vec() })
        })
        .collect()
    }
}

const NO_SEAT: u32 = u32::MAX;
/// The seat of a newcomer that has gone again.
pub(super) const WITHDRAWN: u32 = u32::MAX - 1;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::rendezvous) fn entry(token: u8, seat: Option<u32>) -> Entry {
        Entry { token: [token; 16], seat, card: vec![token; 3] }
    }

    pub(in crate::rendezvous) fn elector(lost: &[usize]) -> Elector<'_> {
        Elector { size: 3, lost, patience: Duration::ZERO }
    }

    #[test]
    fn ranks_come_first_and_lost_ones_stay_out() {
        let came = [
            entry(9, None),
            entry(2, Some(2)),
            entry(1, Some(1)),
            entry(0, Some(0)),
            entry(7, Some(2)),
            entry(9, None),
        ];
        let elected =
            |lost: &[usize]| elector(lost).elect(came.to_vec()).iter().map(|entry| entry.token[0]).collect::<Vec<_>>();
        assert_eq!(elected(&[]), [0, 1, 2, 9]);
        assert_eq!(elected(&[0]), [1, 2, 9]);
        assert!(elector(&[]).is_complete(&came) && !elector(&[1]).is_complete(&came[..2]));
        assert!(elector(&[0]).is_complete(&came[..3]));
    }
}
