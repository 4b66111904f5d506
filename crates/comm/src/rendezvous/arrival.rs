//! What a rank writes down when it comes to a meeting.

use super::bytes::{Reader, put_bytes, put_index};

/// One entry in the list of those who came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival<'a> {
    pub(super) rank: usize,
    /// How many it thinks will meet.
    pub(super) size: usize,
    pub(super) card: &'a [u8],
}

impl<'a> Arrival<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12 + self.card.len());
        put_index(&mut out, self.rank);
        put_index(&mut out, self.size);
        put_bytes(&mut out, self.card);
        out
    }

    /// All entries of a list, in the order in which they came; `None` where it is none.
    pub(super) fn decode_list(list: &'a [u8]) -> Option<Vec<Arrival<'a>>> {
        let mut reader = Reader::new(list);
        let mut arrivals = Vec::new();
        while !reader.is_empty() {
            let (rank, size, card) = (reader.index()?, reader.index()?, reader.bytes()?);
            arrivals.push(Arrival { rank, size, card });
        }
        Some(arrivals)
    }
}

/// The ranks below `size` that are not among `arrivals`.
pub(super) fn missing(arrivals: &[Arrival<'_>], size: usize) -> Vec<usize> {
    let mut came = vec![false; size];
    arrivals.iter().for_each(|arrival| came.get_mut(arrival.rank).into_iter().for_each(|seat| *seat = true));
    (0..size).filter(|&rank| !came[rank]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_its_entries_one_after_another() {
        let first = Arrival { rank: 3, size: 4, card: b"three" };
        let second = Arrival { rank: 0, size: 4, card: b"" };
        let list = [first.encode(), second.encode()].concat();
        assert_eq!(Arrival::decode_list(&list), Some(vec![first, second]));
        assert_eq!(Arrival::decode_list(b""), Some(vec![]));
        for cut in 1..list.len() {
            let whole = Arrival::decode_list(&list[..cut]);
            assert_eq!(whole.is_some(), cut == first.encode().len(), "cut at {cut}");
        }
    }

    #[test]
    fn ranks_beyond_the_size_are_nobody() {
        let stray = Arrival { rank: 9, size: 2, card: b"" };
        assert_eq!(missing(&[stray, Arrival { rank: 1, ..stray }], 3), [0, 2]);
    }
}
