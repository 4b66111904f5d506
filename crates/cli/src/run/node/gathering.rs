//! How it comes out who is in: node 0 waits for all cards and says so, the others wait for that. And what is said where nothing becomes of it.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::store::{Store, StoreError};

use super::agent::life_key;
use super::card::Card;
use super::meeting::{FAREWELL, Meeting, OFF, card_key, heard, insist};
use super::roster;

impl Meeting {
    /// Waits at node 0 for the cards of all nodes, and writes down who they are.
    pub(super) fn gather(&self, store: &Store, deadline: Instant) -> Result<Vec<Card>, String> {
        let keys: Vec<String> = (0..self.card.nodes).map(card_key).collect();
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let look = store.with_timeout(left.min(LOOK));
            let _ = look.add(&life_key(self.node), 1);
            let come = match look.multi_get(&names) {
                Ok(come) => come,
                Err(StoreError::Timeout { .. } | StoreError::Lost { .. }) if left > LOOK => continue,
                Err(error) if error.is_timeout() => return Err(self.missing(store)),
                Err(error) => return Err(error.to_string()),
            };
            if let Some(cards) = self.seal(store, &come, deadline)? {
                return Ok(cards);
            }
            if left.is_zero() {
                return Err(self.missing(store));
            }
            // A store tells nobody that another card has come to the place of one that does not count any more.
            thread::sleep(PAUSE.min(left));
        }
    }

    /// Writes down that these have met, unless one of them has left.
    fn seal(&self, store: &Store, come: &[Vec<u8>], deadline: Instant) -> Result<Option<Vec<Card>>, String> {
        let gone = roster::gone(store);
        let has_left = |text: &Vec<u8>| Card::from_text(text).is_some_and(|card| gone.contains(&card.mark));
        if come.iter().any(has_left) {
            return Ok(None);
        }
        let cards = self.read(come)?;
        insist(deadline, || roster::seal(store, &cards)).map_err(|error| error.to_string())
    }

    /// Waits until node 0 says who is in, or that it has given up, and shows meanwhile that this node lives.
    pub(super) fn await_met(&self, store: &Store, deadline: Instant) -> Result<Vec<Card>, String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let look = store.with_timeout(left.min(LOOK));
            let _ = look.add(&life_key(self.node), 1);
            match roster::await_met(&look) {
                Ok(met) => return self.admitted(met.ok_or_else(|| foreign(0))?),
                Err(StoreError::Timeout { .. } | StoreError::Lost { .. }) if left > LOOK => {}
                Err(error) if error.is_timeout() => return Err(self.missing(store)),
                Err(error) => return Err(error.to_string()),
            }
            self.check_hope(&look)?;
        }
    }

    /// Refuses to wait for what will not be.
    fn check_hope(&self, store: &Store) -> Result<(), String> {
        if let Ok(Some(why)) = store.find(OFF) {
            return Err(String::from_utf8_lossy(&why).into_owned());
        }
        if roster::gone(store).contains(&self.card.mark) {
            let there = store.find(&card_key(self.node)).ok().flatten();
            return Err(self.taken(&there.filter(|there| !self.is_mine(there)).unwrap_or_default()));
        }
        match store.find(&card_key(0)) {
            Ok(Some(text)) => {
                let first = Card::from_text(&text).ok_or_else(|| foreign(0))?;
                // It tells of other differences once all have come. Nodes that this one does not know of may never come.
                if first.nodes > self.card.nodes { Err(self.other_nodes(0, first.nodes)) } else { Ok(()) }
            }
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Those that have met, where this node is one of them.
    fn admitted(&self, met: Vec<Card>) -> Result<Vec<Card>, String> {
        if met.len() != self.card.nodes {
            return Err(self.other_nodes(0, met.len()));
        }
        if met.get(self.node) == Some(&self.card) { Ok(met) } else { Err(self.taken_by(met.get(self.node))) }
    }

    /// Tells those who have come why nothing becomes of it, and stays until they have heard: the store goes with this node.
    pub(super) fn call_off(&self, store: &Store, why: &str) {
        let gone = roster::gone(store);
        let card = |node: usize| Card::from_text(&store.find(&card_key(node)).ok()??);
        let others = (1..self.card.nodes).filter_map(card).map(|card| card.mark);
        let others: Vec<String> = others.filter(|mark| !gone.contains(mark)).map(heard).collect();
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        if !names.is_empty() && store.set(OFF, why.as_bytes()).is_ok() {
            let _ = store.with_timeout(FAREWELL).multi_get(&names);
        }
    }

    /// Says who did not come in time.
    fn missing(&self, store: &Store) -> String {
        let gone = roster::gone(store);
        let is_missing = |node: &usize| match store.find(&card_key(*node)) {
            Ok(Some(text)) => Card::from_text(&text).is_some_and(|card| gone.contains(&card.mark)),
            Ok(None) => true,
            Err(_) => false,
        };
        let missing: Vec<String> = (0..self.card.nodes).filter(is_missing).map(|node| node.to_string()).collect();
        let (all, time) = (self.card.nodes, self.timeout);
        if missing.is_empty() {
            return format!("the nodes did not meet within {time:?}, although all {all} came");
        }
        let nodes = if missing.len() == 1 { "node" } else { "nodes" };
        let (came, missing) = (all - missing.len(), missing.join(", "));
        format!("{nodes} {missing} never came within {time:?}: {came} of {all} nodes came")
    }

    /// The cards in these texts, where all were told the same.
    fn read(&self, cards: &[Vec<u8>]) -> Result<Vec<Card>, String> {
        let cards = cards.iter().zip(0..).map(|(text, node): (_, usize)| {
            let card = Card::from_text(text).ok_or_else(|| foreign(node))?;
            let (here, own) = (self.node, &self.card);
            if card.nodes != own.nodes {
                return Err(self.other_nodes(node, card.nodes));
            }
            if card.restarts != own.restarts {
                let (own, other) = (own.restarts, card.restarts);
                return Err(format!("--max-restarts is {own} on node {here} and {other} on node {node}"));
            }
            Ok(card)
        });
        cards.collect()
    }

    fn other_nodes(&self, node: usize, nodes: usize) -> String {
        format!("--nnodes is {} on node {} and {nodes} on node {node}", self.card.nodes, self.node)
    }
}

fn foreign(node: usize) -> String {
    format!("node {node} speaks another version of this program")
}

/// How often a node that waits for others looks there.
const LOOK: Duration = Duration::from_millis(500);
/// How long node 0 waits before it looks for another card where one does not count any more.
const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::super::sample::{BRIEF, await_met, gather, meeting, put, store, taken};
    use super::*;

    #[test]
    fn who_was_taken_for_gone_does_not_begin() {
        let store = store();
        assert_eq!([7, 8].map(|pid| put(1, pid, &store, BRIEF)), [Ok(()), Ok(())]);
        // It need not wait until the nodes have met to learn that.
        assert_eq!(await_met(1, 7, &store).map(drop), taken(8));
        assert_eq!([0, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(())]);
        assert_eq!(gather(&store).map(|cards| cards[1].pid), Ok(8));
        let met = |pid| await_met(1, pid, &store).map(|cards| cards.len());
        assert_eq!((met(8), met(7)), (Ok(3), taken(8).map(|()| 0)));
    }

    /// Node 0 may have read the card before another came in its place.
    #[test]
    fn who_is_taken_for_gone_as_the_nodes_meet_is_in_or_not_and_nobody_is_in_beside_it() {
        let store = store();
        assert_eq!([0, 1, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(()), Ok(())]);
        let first = meeting(0, 7, &store);
        let come = [0, 1, 2].map(|node| store.get(&card_key(node)).unwrap());
        assert_eq!(put(1, 8, &store, BRIEF), Ok(()));
        let deadline = Instant::now() + FAREWELL;
        assert_eq!(first.seal(&store, &come, deadline), Ok(None));
        assert_eq!(gather(&store).map(|cards| cards[1].pid), Ok(8));
        assert_eq!(put(1, 9, &store, BRIEF), taken(8));
    }

    #[test]
    fn a_card_that_comes_after_its_node_has_left_is_nobodys() {
        let store = store();
        assert_eq!([0, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(())]);
        assert!(meeting(1, 7, &store).withdraw().is_none());
        assert_eq!(put(1, 7, &store, BRIEF), Ok(()));
        let missing = meeting(0, 7, &store).gather(&store, Instant::now());
        assert_eq!(missing.map(drop), Err("node 1 never came within 60s: 2 of 3 nodes came".to_owned()));
        assert_eq!(put(1, 8, &store, FAREWELL), Ok(()));
        assert_eq!(gather(&store).map(|cards| cards[1].pid), Ok(8));
    }

    #[test]
    fn a_node_that_knows_of_fewer_nodes_than_the_first_says_so() {
        let store = store();
        assert_eq!(put(0, 7, &store, BRIEF), Ok(()));
        let mut second = meeting(1, 7, &store);
        second.card.nodes = 2;
        let expected = "--nnodes is 2 on node 1 and 3 on node 0".to_owned();
        assert_eq!(second.check_hope(&store), Err(expected));
    }
}
