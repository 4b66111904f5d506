//! The store of one process: a table behind a lock. Who waits sleeps alone and is woken alone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use phalanx_core::store::{
    Asked, ClientId, Doubt, Home, Key, Limits, Refusal, Reply, Request, StoreError, Table, Ticket, Verb,
};

/// A store within this process.
///
/// Clones share what is stored. Each clone is a client of its own, for which [`Limits::client`] counts.
pub struct LocalStore {
    shared: Arc<Shared>,
    client: ClientId,
}

struct Shared {
    room: Mutex<Room>,
}

/// What the lock guards.
struct Room {
    table: Table,
    slots: BTreeMap<Ticket, Arc<Slot>>,
    clients: u64,
}

/// Where one thread waits for its answer. A lock of its own, so that those who wake together do not queue at the table.
#[derive(Default)]
struct Slot {
    answer: Mutex<Option<Answer>>,
    told: Condvar,
}

type Answer = Result<Reply, Refusal>;

impl LocalStore {
    /// An empty store that takes as much as `limits` say.
    pub fn new(limits: Limits) -> LocalStore {
        let room = Room { table: Table::new(limits), slots: BTreeMap::new(), clients: 0 };
        LocalStore { shared: Arc::new(Shared { room: Mutex::new(room) }), client: ClientId(0) }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.shared.lock().table.waiting()
    }

    /// What is stored and what waits, in bytes as [`Limits`] count them.
    pub fn byte_len(&self) -> usize {
        self.shared.lock().table.byte_len()
    }
}

impl Home for LocalStore {
    fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
        let (verb, deadline) = (request.verb(), Instant::now().checked_add(timeout));
        let mut room = self.shared.lock();
        let asked = room.table.ask(self.client, request);
        room.deliver();
        let answer = match asked {
            Asked::Answered(answer) => Ok(answer),
            Asked::Waiting(ticket) => {
                let slot = room.slots.entry(ticket).or_default().clone();
                drop(room);
                slot.wait(deadline).map_or_else(|| self.shared.give_up(ticket, &slot), Ok)
            }
        };
        match answer {
            Ok(answer) => answer.map_err(|refusal| StoreError::Refused { verb, refusal }),
            Err(keys) => {
                let detail = self.describe();
                Err(StoreError::Timeout { verb, after: timeout, keys, detail, doubt: doubt(verb) })
            }
        }
    }

    fn describe(&self) -> String {
        "the store of this process".into()
    }
}

impl Default for LocalStore {
    fn default() -> LocalStore {
        LocalStore::new(Limits::default())
    }
}

impl Clone for LocalStore {
    fn clone(&self) -> LocalStore {
        let mut room = self.shared.lock();
        room.clients += 1;
        LocalStore { shared: Arc::clone(&self.shared), client: ClientId(room.clients) }
    }
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        self.shared.lock().table.leave(self.client);
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let room = self.shared.lock();
        write!(f, "LocalStore({} values, {} waiting)", room.table.len(), room.table.waiting())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Past the deadline: the answer, if it came all the same, or the keys that are missing.
    fn give_up(&self, ticket: Ticket, slot: &Slot) -> Result<Answer, Vec<Key>> {
        let mut room = self.lock();
        let missing = room.table.missing(ticket);
        room.slots.remove(&ticket);
        let cancelled = room.table.cancel(ticket);
        // Answers are delivered under the lock: what is no longer in the table is in the slot.
        slot.take().filter(|_| !cancelled).ok_or(missing)
    }
}

impl Room {
    /// Takes the answers of those who waited to where they wait.
    fn deliver(&mut self) {
        while let Some((_, ticket, answer)) = self.table.woken() {
            if let Some(slot) = self.slots.remove(&ticket) {
                slot.tell(answer);
            }
        }
    }
}

impl Slot {
    fn tell(&self, answer: Answer) {
        *self.lock() = Some(answer);
        self.told.notify_one();
    }

    fn take(&self) -> Option<Answer> {
        self.lock().take()
    }

    /// The answer, unless the deadline passes first. Without a deadline it waits for ever.
    fn wait(&self, deadline: Option<Instant>) -> Option<Answer> {
        let mut answer = self.lock();
        while answer.is_none() {
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            let woken = self.told.wait_timeout(answer, left.min(LONGEST_SLEEP));
            answer = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        answer.take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Answer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of the requests that wait only an arrival at a barrier has changed something by then.
fn doubt(verb: Verb) -> Doubt {
    if verb == Verb::Barrier { Doubt::Unknown } else { Doubt::None }
}

/// Some systems refuse to sleep for centuries.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::thread;

    use phalanx_core::store::Store;

    use super::*;

    #[test]
    fn a_deadline_leaves_nothing_behind() {
        let home = LocalStore::default();
        let store = Store::new(home.clone()).with_timeout(Duration::from_millis(5));
        store.set("there", "").unwrap();
        let before = home.byte_len();
        assert!(store.pop("q").unwrap_err().is_timeout());
        let error = store.multi_get(&["there", "absent"]).unwrap_err();
        assert!(matches!(error, StoreError::Timeout { keys, .. } if keys == [Key::from("absent")]));
        assert_eq!((home.waiting(), home.byte_len()), (0, before));
        store.push("q", "1").unwrap();
        assert_eq!(store.try_pop("q").unwrap(), Some(b"1".to_vec()), "no waiter of the past has taken it");
    }

    #[test]
    fn a_barrier_given_up_is_in_doubt() {
        let store = Store::new(LocalStore::default()).with_timeout(Duration::ZERO);
        assert_eq!(store.barrier("b", 2).unwrap_err().doubt(), Doubt::Unknown);
        assert_eq!(store.wait(&["a"]).unwrap_err().doubt(), Doubt::None);
    }

    #[test]
    fn deadlines_beyond_the_clock_are_none() {
        let home = LocalStore::default();
        let store = Store::new(home.clone()).with_timeout(Duration::MAX);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| store.get("a"));
            while home.waiting() == 0 {
                thread::yield_now();
            }
            store.set("a", "1").unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), b"1");
        });
    }

    #[test]
    fn a_value_and_a_deadline_that_meet_lose_nothing() {
        let store = Store::new(LocalStore::default());
        let hasty = store.with_timeout(Duration::from_micros(50));
        let popped = thread::scope(|scope| {
            let popper = scope.spawn(|| (0..2000).filter(|_| hasty.pop("q").is_ok()).count());
            for _ in 0..1000 {
                store.push("q", "x").unwrap();
            }
            popper.join().unwrap()
        });
        assert_eq!(popped as u64 + store.queue_len("q").unwrap(), 1000);
    }

    #[test]
    fn a_clone_that_goes_leaves_what_it_stored() {
        let home = LocalStore::default();
        Store::new(home.clone()).set("a", "1").unwrap();
        assert_eq!(Store::new(home.clone()).find("a").unwrap(), Some(b"1".to_vec()));
        assert_eq!(format!("{home:?}"), "LocalStore(1 values, 0 waiting)");
    }
}
