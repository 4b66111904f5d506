//! A communicator made of another: every rank posts what it wants, and those of one colour take seats in the order of their keys.

use phalanx_core::store::Store;

use super::member::{Member, Seat};
use super::trouble::Trouble;
use crate::api::{CommConfig, Cuda, Device, Status};

/// What one rank wants of a split: none has no part in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    colour: Option<i32>,
    key: i32,
}

impl Wish {
    fn encode(self) -> Vec<u8> {
        let words = [i32::from(self.colour.is_some()), self.colour.unwrap_or(0), self.key];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Wish> {
        let mut words = bytes.chunks_exact(4).map(|word| word.first_chunk().map(|word| i32::from_le_bytes(*word)));
        let (has_colour, colour, key) = (words.next()??, words.next()??, words.next()??);
        (bytes.len() == 12).then_some(Wish { colour: (has_colour == 1).then_some(colour), key })
    }
}

/// A split under way: of which communicator, and which of its splits it is.
pub(super) struct Split {
    store: Store,
    number: u64,
    rank: usize,
    size: usize,
    device: Device,
}

impl Split {
    /// Posts what this rank wants of the next split.
    pub(super) fn begin<C: Cuda>(of: &mut Member<C>, colour: Option<i32>, key: i32) -> Result<Split, Trouble> {
        of.is_free()?;
        let number = of.splits;
        of.splits += 1;
        of.store.set(&place(number, of.rank), Wish { colour, key }.encode())?;
        Ok(Split { store: of.store.clone(), number, rank: of.rank, size: of.size, device: of.device })
    }

    /// This rank's seat among those of its colour, once all have posted.
    pub(super) fn seat(&self, colour: i32, config: &CommConfig, piece: usize) -> Result<Seat, Trouble> {
        let places: Vec<String> = (0..self.size).map(|rank| place(self.number, rank)).collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let mut members: Vec<(i32, usize)> = Vec::new();
        for (peer, bytes) in self.store.multi_get(&places)?.iter().enumerate() {
            let cut = || Trouble::new(Status::INTERNAL, format!("what rank {peer} posted of a split is cut short"));
            let wish = Wish::decode(bytes).ok_or_else(cut)?;
            members.extend((wish.colour == Some(colour)).then_some((wish.key, peer)));
        }
        members.sort_unstable();
        let own = members.iter().position(|&(_, peer)| peer == self.rank);
        let rank = own.ok_or_else(|| Trouble::new(Status::INTERNAL, "a rank is none of its own split"))?;
        let store = self.store.scope(&format!("split/{}/of/{colour}", self.number));
        Ok(Seat { device: self.device, rank, size: members.len(), is_blocking: config.blocking, store, piece })
    }
}

fn place(number: u64, rank: usize) -> String {
    format!("split/{number}/{rank}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_as_it_was_posted_and_nothing_else_is() {
        for wish in [Wish { colour: Some(-3), key: 7 }, Wish { colour: None, key: -1 }] {
            let bytes = wish.encode();
            assert_eq!(Wish::decode(&bytes), Some(wish));
            assert_eq!((Wish::decode(&bytes[..11]), Wish::decode(&[&bytes[..], &[0]].concat())), (None, None));
        }
    }
}
