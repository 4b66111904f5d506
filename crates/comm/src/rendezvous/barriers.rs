//! The barriers of a world, by name. Each use of a name is a meeting at a place of its own, and leaves nothing once all have left it.
//!
//! Which place that is stands under the name, put there by the rank that comes first. Ranks count themselves at the place, and the last one
//! takes the name down before its card is there: so nobody can have met before the name is free, and whoever comes again finds
//! another place, while others may still leave this one. After a failure all come to the same place again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use phalanx_core::store::{Doubt, Store, StoreError};

use super::{MeetError, Meeting};

/// A world's barriers, as one rank comes to them.
#[derive(Debug)]
pub(super) struct Barriers {
    store: Store,
    rank: usize,
    size: usize,
    /// How many places this rank has made.
    made: AtomicU64,
    /// Those that were begun and that not all have passed; none for one that another thread is at.
    begun: Mutex<HashMap<String, Option<Begun>>>,
}

/// What a rank knows of a use of a name.
#[derive(Debug, Default)]
struct Begun {
    /// How often it was here.
    visits: u64,
    place: Option<String>,
    counted: Counted,
    /// Whether it is to take the name down.
    is_last: bool,
}

/// Whether a rank has counted itself at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Counted {
    #[default]
    No,
    /// The store's answer was lost.
    Perhaps,
    Yes,
}

impl Barriers {
    pub(super) fn new(store: Store, rank: usize, size: usize) -> Barriers {
        Barriers { store, rank, size, made: AtomicU64::new(0), begun: Mutex::default() }
    }

    /// Waits until all ranks have come to the barrier of this name.
    pub(super) fn pass(&self, name: &str, timeout: Duration) -> Result<(), MeetError> {
        let mut begun = match self.begun().insert(name.to_owned(), None) {
            Some(None) => return Err(MeetError::Busy),
            known => known.flatten().unwrap_or_default(),
        };
        let passed = self.come(&mut begun, name, timeout);
        match passed {
            Ok(()) => self.begun().remove(name),
            Err(_) => self.begun().insert(name.to_owned(), Some(begun)),
        };
        passed
    }

    fn come(&self, begun: &mut Begun, name: &str, timeout: Duration) -> Result<(), MeetError> {
        let (visit, start) = (begun.visits, Instant::now());
        // Counted whatever happens: the others count it too.
        begun.visits += 1;
        let place = self.store.scope(self.find(begun, name, (start, timeout))?);
        let meeting = Meeting::new(place, name, self.rank, self.size).after(visit);
        meeting.meet_since(start, &[], timeout)?;
        meeting.end(timeout.saturating_sub(start.elapsed()).clamp(LEAST, MOST));
        Ok(())
    }

    /// The place of this use of the name.
    fn find<'a>(
        &self,
        begun: &'a mut Begun,
        name: &str,
        (start, timeout): (Instant, Duration),
    ) -> Result<&'a str, StoreError> {
        // For what is left of the time.
        let store = || self.store.with_timeout(timeout.saturating_sub(start.elapsed()));
        let sign = format!("{SIGN}/{name}");
        let place = match begun.place.take() {
            Some(place) => place,
            None => String::from_utf8_lossy(&store().compare_set(&sign, "", self.new_place())?).into_owned(),
        };
        let place = begun.place.insert(place);
        let count = format!("{place}/{name}/{FOUND}");
        if begun.counted != Counted::Yes {
            let counted = match begun.counted {
                // To count twice would take the name down too early. If this rank did, and was the last, nobody else does.
                Counted::Perhaps => store().find(&count).map(|count| count.and_then(number)),
                _ => store().add(&count, 1).map(Some),
            };
            match &counted {
                Ok(_) => begun.counted = Counted::Yes,
                Err(error) if error.doubt() == Doubt::None => {}
                Err(_) => begun.counted = Counted::Perhaps,
            }
            begun.is_last = counted? == Some(self.size as i64);
        }
        if begun.is_last {
            store().delete(&sign)?;
            store().delete(&count)?;
            begun.is_last = false;
        }
        Ok(place.as_str())
    }

    /// A place that nobody else makes.
    fn new_place(&self) -> String {
        format!("{}.{}", self.rank, self.made.fetch_add(1, Ordering::Relaxed))
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<String, Option<Begun>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counter as it stands on the store.
fn number(value: Vec<u8>) -> Option<i64> {
    String::from_utf8(value).ok()?.parse().ok()
}

const SIGN: &str = "now";
const FOUND: &str = "found";
/// How long it may take to say that a rank has left, however much of its time is left.
const LEAST: Duration = Duration::from_millis(250);
const MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use phalanx_core::store::{Home, Limits, Reply, Request};

    use super::*;
    use crate::store::LocalStore;

    const LONG: Duration = Duration::from_secs(60);

    /// Has each rank do this; what is left on the store.
    fn side_by_side(size: usize, rank: impl Fn(&Barriers, usize) + Sync) -> Vec<String> {
        let (store, rank) = (Store::new(LocalStore::new(Limits::default())), &rank);
        thread::scope(|scope| {
            for number in 0..size {
                let barriers = Barriers::new(store.clone(), number, size);
                scope.spawn(move || {
                    rank(&barriers, number);
                    assert!(barriers.begun().is_empty());
                });
            }
        });
        store.list_keys().expect("a store")
    }

    #[test]
    fn barriers_that_all_have_passed_leave_nothing() {
        for size in 1..=5 {
            let left = side_by_side(size, |barriers, number| {
                let mut random = fastrand::Rng::with_seed((size * 100 + number) as u64);
                for step in 0..50 {
                    (0..random.usize(..4)).for_each(|_| thread::yield_now());
                    let own = format!("step {step}");
                    ["again", &own, "again"].iter().for_each(|name| barriers.pass(name, LONG).expect("all come"));
                }
            });
            assert_eq!(left, Vec::<String>::new(), "{size} ranks");
        }
    }

    #[test]
    fn barriers_of_several_threads_do_not_meet_crosswise() {
        let left = side_by_side(3, |barriers, _| {
            thread::scope(|scope| {
                for name in ["one", "two", "one/0.0", "now"] {
                    scope.spawn(move || (0..30).for_each(|_| barriers.pass(name, LONG).expect("all come")));
                }
            });
        });
        assert_eq!(left, Vec::<String>::new());
    }

    /// A store to which the way is cut while somebody counts, before or after it has.
    struct Cut {
        home: LocalStore,
        is_cut: Arc<AtomicBool>,
        doubt: Doubt,
    }

    impl Home for Cut {
        fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
            let counts = matches!(&request, Request::Add { key, .. } if key.as_bytes().ends_with(FOUND.as_bytes()));
            if counts && self.is_cut.swap(false, Ordering::Relaxed) {
                let (verb, doubt) = (request.verb(), self.doubt);
                if doubt != Doubt::None {
                    self.home.ask(request, timeout)?;
                }
                return Err(StoreError::Lost { verb, detail: "it broke".to_owned(), doubt });
            }
            self.home.ask(request, timeout)
        }

        fn describe(&self) -> String {
            "a store".to_owned()
        }
    }

    #[test]
    fn a_rank_that_could_not_count_itself_counts_when_it_comes_again() {
        let (home, is_cut) = (LocalStore::new(Limits::default()), Arc::new(AtomicBool::new(true)));
        let store = Store::new(Cut { home, is_cut, doubt: Doubt::None });
        let [first, second] = [0, 1].map(|rank| Barriers::new(store.clone(), rank, 2));
        assert!(matches!(first.pass("b", LONG), Err(MeetError::Store(_))));
        assert!(matches!(second.pass("b", Duration::from_millis(50)), Err(MeetError::Missing { by: 1, .. })));
        thread::scope(|scope| {
            for barriers in [&first, &second] {
                scope.spawn(|| (0..2).for_each(|_| barriers.pass("b", LONG).expect("both come")));
            }
        });
        assert_eq!(store.list_keys().expect("a store"), Vec::<String>::new());
    }

    #[test]
    fn a_rank_that_was_the_last_to_count_and_did_not_hear_so_takes_the_name_down() {
        let (home, is_cut) = (LocalStore::new(Limits::default()), Arc::new(AtomicBool::new(false)));
        let store = Store::new(Cut { home, is_cut: Arc::clone(&is_cut), doubt: Doubt::Unknown });
        let [first, second] = [0, 1].map(|rank| Barriers::new(store.clone(), rank, 2));
        assert!(matches!(first.pass("b", Duration::from_millis(50)), Err(MeetError::Missing { by: 0, .. })));
        is_cut.store(true, Ordering::Relaxed);
        assert!(matches!(second.pass("b", LONG), Err(MeetError::Store(_))));
        thread::scope(|scope| {
            for barriers in [&first, &second] {
                scope.spawn(|| (0..3).for_each(|_| barriers.pass("b", LONG).expect("both come")));
            }
        });
        assert_eq!(store.list_keys().expect("a store"), Vec::<String>::new());
    }

    #[test]
    fn a_rank_is_at_one_barrier_once_at_a_time() {
        let store = Store::new(LocalStore::new(Limits::default()));
        let barriers = Barriers::new(store.clone(), 0, 2);
        thread::scope(|scope| {
            let first = scope.spawn(|| barriers.pass("b", Duration::from_millis(500)));
            store.wait(&["0.0/b/0/count"]).expect("it comes");
            assert_eq!(barriers.pass("b", LONG), Err(MeetError::Busy));
            assert!(matches!(first.join().expect("no panic"), Err(MeetError::Missing { .. })));
        });
        // The other one comes too late for that, and both in time for the next.
        let other = Barriers::new(store.clone(), 1, 2);
        assert!(matches!(other.pass("b", LONG), Err(MeetError::Missing { by: 0, .. })));
        thread::scope(|scope| {
            scope.spawn(|| barriers.pass("b", LONG).expect("both come"));
            other.pass("b", LONG).expect("both come");
        });
        assert_eq!(store.list_keys().expect("a store"), Vec::<String>::new());
    }
}
