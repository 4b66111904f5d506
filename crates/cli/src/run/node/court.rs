//! Node 0's court: it sees to it that every node lives, collects their accounts, and decides for all.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use phalanx_core::Ranks;
use phalanx_core::store::{Store, StoreError};

use super::agent::{JUDGEMENT, OVER, Patience, SILENCE, account_key, await_parting, cry_out, life_key, named};
use super::card::Card;
use super::judgement::{Account, Cry, Judgement, decide};
use crate::run::watch::Event;

/// The court of one epoch.
#[derive(Debug)]
pub(crate) struct Court {
    store: Store,
    cards: Vec<Card>,
    epoch: u32,
    max_restarts: u32,
    accounts: BTreeMap<usize, Account>,
    lost: BTreeMap<usize, String>,
    signs: Vec<Sign>,
}

/// The last sign of life of a node.
#[derive(Clone, Debug)]
struct Sign {
    count: Option<Vec<u8>>,
    seen: Instant,
}

impl Court {
    /// Sits until all nodes have given their accounts or are lost, and sends the judgement as an event.
    pub(crate) fn start(
        store: &Store,
        cards: Vec<Card>,
        epoch: u32,
        max_restarts: u32,
        events: &Sender<Event>,
    ) -> std::io::Result<()> {
        let signs = vec![Sign { count: None, seen: Instant::now() }; cards.len()];
        let (accounts, lost) = (BTreeMap::new(), BTreeMap::new());
        let court = Court { store: store.clone(), cards, epoch, max_restarts, accounts, lost, signs };
        let events = events.clone();
        named("phalanx-court").spawn(move || {
            let judged = court.sit().map_err(|error| error.to_string());
            // Nobody listens any more once the launcher is at its end.
            let _ = events.send(Event::Judged(epoch, judged));
        })?;
        Ok(())
    }

    fn sit(mut self) -> Result<Judgement, StoreError> {
        let mut patience = Patience::new();
        while let Some(next) = self.awaited().first().copied() {
            // An account ends the wait; the signs of life are looked at now and then.
            let waited = self.store.with_timeout(LOOK).wait(&[&account_key(next)]);
            patience.judge(waited)?;
            patience.judge(self.look())?;
        }
        let cry = persist(|| self.store.find(OVER))?.and_then(|text| Cry::from_text(&text));
        let judgement = decide(&self.accounts, &self.lost, cry.as_ref(), self.epoch, self.max_restarts);
        let text = judgement.to_text();
        let told = [(OVER, b"all is over".as_slice()), (JUDGEMENT, text.as_bytes())];
        persist(|| self.store.multi_set(&told))?;
        // All that gave an account, but for this node.
        await_parting(&self.store, self.accounts.len().saturating_sub(1));
        Ok(judgement)
    }

    /// Nodes that live and have not given their accounts.
    fn awaited(&self) -> Vec<usize> {
        let is_awaited = |node: &usize| !self.accounts.contains_key(node) && !self.lost.contains_key(node);
        (0..self.cards.len()).filter(is_awaited).collect()
    }

    fn look(&mut self) -> Result<(), StoreError> {
        for node in self.awaited() {
            match self.store.find(&account_key(node))? {
                Some(text) => self.take(node, &text),
                None => self.look_for_life(node)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, node: usize, text: &[u8]) {
        match Account::from_text(text) {
            Some(account) => drop(self.accounts.insert(node, account)),
            None => drop(self.lost.insert(node, "it speaks another version of this program".to_owned())),
        }
    }

    /// Gives a node up that has shown no sign of life for too long, and tells the others to stop.
    fn look_for_life(&mut self, node: usize) -> Result<(), StoreError> {
        let count = self.store.find(&life_key(node))?;
        let sign = &mut self.signs[node];
        if count != sign.count {
            *sign = Sign { count, seen: Instant::now() };
        } else if sign.seen.elapsed() > SILENCE {
            let why = self.last_words(node);
            cry_out(&self.store, &Cry::new(format!("node {node} was lost"), true))?;
            self.lost.insert(node, why);
        }
        Ok(())
    }

    fn last_words(&self, node: usize) -> String {
        let card = &self.cards[node];
        let first: usize = self.cards[..node].iter().map(|card| card.ranks).sum();
        let ranks = Ranks(&(first..first + card.ranks).collect::<Vec<_>>()).named();
        format!("no sign of life for {SILENCE:?} from its launcher (host {}, pid {}) with {ranks}", card.host, card.pid)
    }
}

/// Asks until there is an answer, or the store is given up.
fn persist<T>(ask: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut patience = Patience::new();
    loop {
        if let Some(answer) = patience.judge(ask())? {
            return Ok(answer);
        }
    }
}

const LOOK: Duration = Duration::from_millis(500);
