//! A node's place: whose card is there, and when another may come instead.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::store::{Store, StoreError};

use super::agent::life_key;
use super::card::Card;
use super::meeting::{Meeting, card_key, insist};
use super::roster::{self, Roster};

impl Meeting {
    /// Takes this node's place, unless another has it. One that waits there and says nothing for so long is gone.
    pub(super) fn put_card(
        &self,
        store: &Store,
        deadline: Instant,
        silence: Duration,
    ) -> Result<Result<(), String>, StoreError> {
        loop {
            let there = self.swap_card(store, b"", deadline)?;
            if self.is_mine(&there) {
                return Ok(Ok(()));
            }
            if !self.is_free(store, &there, silence)? {
                return Ok(Err(self.taken(&there)));
            }
            // Where the card is another one by now, all begins anew.
            if self.is_mine(&self.swap_card(store, &there, deadline)?) {
                return Ok(Ok(()));
            }
        }
    }

    /// Puts this node's card in the place of another, or of none; the one that is there now. Asking twice does no harm: the card is
    /// this node's own.
    fn swap_card(&self, store: &Store, other: &[u8], deadline: Instant) -> Result<Vec<u8>, StoreError> {
        insist(deadline, || store.compare_set(&card_key(self.node), other, self.card.to_text()))
    }

    pub(super) fn is_mine(&self, card: &[u8]) -> bool {
        card == self.card.to_text().as_bytes()
    }

    /// Says whose card is where this node's should be.
    pub(super) fn taken(&self, card: &[u8]) -> String {
        self.taken_by(Card::from_text(card).as_ref())
    }

    pub(super) fn taken_by(&self, other: Option<&Card>) -> String {
        let other = other.map_or_else(|| "another".to_owned(), |card| format!("host {}, pid {}", card.host, card.pid));
        format!("--node-rank is {}, which is taken by {other}", self.node)
    }

    /// Whether who has this node's place has left, or is silent for so long and does not count any more. Once the nodes have met the epoch is
    /// theirs, whatever becomes of them.
    fn is_free(&self, store: &Store, there: &[u8], silence: Duration) -> Result<bool, StoreError> {
        let Some(mark) = Card::from_text(there).map(|card| card.mark) else { return Ok(false) };
        let life = life_key(self.node);
        let count = store.find(&life)?;
        // By looks and not by the clock: a node that was halted itself meanwhile has not seen that another one was silent.
        for look in 0..=LOOKS {
            if look > 0 {
                thread::sleep(silence / LOOKS);
            }
            match roster::read(store)? {
                Roster::Met(_) => return Ok(false),
                Roster::Open(gone) if gone.contains(&mark) => return Ok(true),
                Roster::Open(_) if store.find(&life)? != count => return Ok(false),
                Roster::Open(_) => {}
            }
        }
        let is_struck = roster::strike(store, mark)?.is_none();
        if is_struck {
            let taken = self.taken(there);
            log::warn!("{taken}, who gave no sign of life for {silence:?}: this node takes its place");
        }
        Ok(is_struck)
    }
}

/// How often a node looks whether the one in its place is silent.
const LOOKS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::super::sample::{BRIEF, LONG, await_met, gather, meeting, put, store, taken};
    use super::*;

    #[test]
    fn a_place_is_taken_over_from_one_that_is_silent() {
        let store = store();
        assert_eq!([7, 7, 8].map(|pid| put(1, pid, &store, BRIEF)), [Ok(()), Ok(()), Ok(())]);
        let there = store.get(&card_key(1)).unwrap();
        assert_eq!(Card::from_text(&there).map(|card| card.pid), Some(8));
    }

    #[test]
    fn a_place_is_kept_by_one_that_lives() {
        let store = store();
        assert_eq!(put(1, 7, &store, BRIEF), Ok(()));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| await_met(1, 7, &store));
            // Refused once it has seen a sign of life, long before the nodes have met.
            assert_eq!(put(1, 8, &store, LONG / 6), taken(7));
            assert_eq!([0, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(())]);
            assert_eq!(gather(&store), waiting.join().unwrap());
        });
    }

    #[test]
    fn places_are_kept_once_the_nodes_have_met() {
        let store = store();
        assert_eq!([0, 1, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(()), Ok(())]);
        assert_eq!(gather(&store).map(|cards| cards.len()), Ok(3));
        assert_eq!(put(1, 8, &store, LONG), taken(7));
    }

    /// Containers have one process number, and one name where they have their host's.
    #[test]
    fn two_that_look_alike_are_told_apart() {
        let store = store();
        assert_eq!(put(1, 7, &store, BRIEF), Ok(()));
        let mut twin = meeting(1, 7, &store);
        twin.card.mark += 1000;
        assert_eq!(twin.withdraw().map(|(_, cards)| cards), None);
        assert_eq!([0, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(())]);
        assert_eq!(gather(&store).map(|cards| cards[1].mark), Ok(meeting(1, 7, &store).card.mark));
        assert_eq!(twin.put_card(&store, Instant::now() + LONG, LONG).unwrap(), taken(7));
    }
}
