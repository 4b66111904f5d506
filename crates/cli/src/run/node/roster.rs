//! Who is in: one value in the store, which nobody changes but from what it was. Until the nodes have met it tells who has left, and then
//! who they are. So whoever leaves, or is taken for gone, is either not among those that meet, or learns that it is.

use phalanx_core::store::{Store, StoreError};
use serde_json::{Value, json};

use super::card::Card;

/// What is written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roster {
    /// The nodes have not met. The marks of cards that do not count any more, whenever they come.
    Open(Vec<u64>),
    /// The nodes that have met.
    Met(Vec<Card>),
}

impl Roster {
    fn to_text(&self) -> String {
        let value = match self {
            Roster::Open(gone) => json!({ "gone": gone }),
            Roster::Met(cards) => json!({ "met": cards.iter().map(Card::to_text).collect::<Vec<_>>() }),
        };
        value.to_string()
    }

    /// What a text says; none is there before anybody has left.
    fn from_text(text: &[u8]) -> Roster {
        let value: Value = serde_json::from_slice(text).unwrap_or_default();
        let card = |card: &Value| Card::from_text(card.as_str()?.as_bytes());
        match value["met"].as_array().and_then(|cards| cards.iter().map(card).collect()) {
            Some(cards) => Roster::Met(cards),
            None => Roster::Open(value["gone"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()),
        }
    }
}

/// What is written now.
pub(super) fn read(store: &Store) -> Result<Roster, StoreError> {
    Ok(Roster::from_text(&store.find(ROSTER)?.unwrap_or_default()))
}

/// The marks of the cards that do not count any more, as far as the store tells.
pub(super) fn gone(store: &Store) -> Vec<u64> {
    match read(store) {
        Ok(Roster::Open(gone)) => gone,
        Ok(Roster::Met(_)) | Err(_) => vec![],
    }
}

/// Waits until the nodes have met; who they are.
pub(super) fn await_met(store: &Store) -> Result<Option<Vec<Card>>, StoreError> {
    match Roster::from_text(&store.get(MET)?) {
        Roster::Met(cards) => Ok(Some(cards)),
        Roster::Open(_) => Ok(None),
    }
}

/// Lets the card of this mark count no more, unless the nodes have met: then says who they are. Asking twice does no harm.
pub(super) fn strike(store: &Store, mark: u64) -> Result<Option<Vec<Card>>, StoreError> {
    let mut there = store.find(ROSTER)?.unwrap_or_default();
    loop {
        let mut gone = match Roster::from_text(&there) {
            Roster::Met(cards) => return Ok(Some(cards)),
            Roster::Open(gone) => gone,
        };
        if gone.contains(&mark) {
            return Ok(None);
        }
        gone.push(mark);
        there = store.compare_set(ROSTER, &there, Roster::Open(gone).to_text())?;
    }
}

/// Writes down that these have met, and wakes those that wait for it; none where one of them is gone. Only node 0 does so. Asking twice does no
/// harm: who has met is what was written first.
pub(super) fn seal(store: &Store, cards: &[Card]) -> Result<Option<Vec<Card>>, StoreError> {
    let mut there = store.find(ROSTER)?.unwrap_or_default();
    loop {
        match Roster::from_text(&there) {
            Roster::Met(met) => {
                store.set(MET, &there)?;
                return Ok(Some(met));
            }
            Roster::Open(gone) if cards.iter().any(|card| gone.contains(&card.mark)) => return Ok(None),
            Roster::Open(_) => {}
        }
        there = store.compare_set(ROSTER, &there, Roster::Met(cards.to_vec()).to_text())?;
    }
}

const ROSTER: &str = "roster";
/// The same once the nodes have met: this key is absent until then, so that it can be waited for.
const MET: &str = "met";

#[cfg(test)]
mod tests {
    use std::thread;

    use phalanx_comm::store::LocalStore;
    use phalanx_core::store::Limits;

    use super::*;

    fn store() -> Store {
        Store::new(LocalStore::new(Limits::default()))
    }

    fn card(mark: u64) -> Card {
        Card { host: "a\"".to_owned(), pid: 7, mark, ranks: 1, nodes: 2, restarts: 0, master: None }
    }

    #[test]
    fn what_is_written_is_read() {
        for roster in
            [Roster::Open(vec![]), Roster::Open(vec![0, u64::MAX]), Roster::Met(vec![card(u64::MAX), card(1)])]
        {
            assert_eq!(Roster::from_text(roster.to_text().as_bytes()), roster);
        }
        for odd in ["", "7", "[]", r#"{"met":7}"#, r#"{"met":["x"]}"#] {
            assert_eq!(Roster::from_text(odd.as_bytes()), Roster::Open(vec![]), "{odd}");
        }
    }

    #[test]
    fn who_has_left_does_not_meet() {
        let (store, cards) = (store(), [card(1), card(2)]);
        assert_eq!([strike(&store, 2), strike(&store, 2)], [Ok(None), Ok(None)]);
        assert_eq!((seal(&store, &cards), gone(&store)), (Ok(None), vec![2]));
        let others = vec![card(1), card(3)];
        assert_eq!(seal(&store, &others), Ok(Some(others.clone())));
        assert_eq!((await_met(&store), strike(&store, 3)), (Ok(Some(others.clone())), Ok(Some(others.clone()))));
        // What was written first holds.
        assert_eq!(seal(&store, &cards), Ok(Some(others)));
    }

    #[test]
    fn nobody_that_leaves_is_forgotten() {
        let store = store();
        thread::scope(|scope| {
            for mark in 0..8 {
                let store = &store;
                scope.spawn(move || strike(store, mark).unwrap());
            }
        });
        let mut gone = gone(&store);
        gone.sort_unstable();
        assert_eq!(gone, (0..8).collect::<Vec<_>>());
    }

    /// Whichever comes first: the one that leaves and node 0 agree on it.
    #[test]
    fn who_leaves_as_the_nodes_meet_knows_whether_it_has_met() {
        for _ in 0..100 {
            let (store, cards) = (store(), vec![card(1), card(2)]);
            let (left, met) = thread::scope(|scope| {
                let leaving = scope.spawn(|| strike(&store, 2).unwrap());
                let met = seal(&store, &cards).unwrap();
                (leaving.join().unwrap(), met)
            });
            assert_eq!(left, met);
            assert!(left.is_none_or(|met| met == cards));
        }
    }
}
