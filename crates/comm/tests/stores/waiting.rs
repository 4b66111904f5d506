//! Who waits is woken by whatever makes it true, and by the deadline otherwise.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::store::{Store, StoreError};

use crate::setting::Setting;

pub(crate) fn woken_by_every_change(setting: &Setting) {
    let changes: [fn(&Store, &str); 6] = [
        |store, key| store.set(key, "1").unwrap(),
        |store, key| store.append(key, "1").unwrap(),
        |store, key| drop(store.compare_set(key, "", "1").unwrap()),
        |store, key| assert_eq!(store.add(key, 1).unwrap(), 1),
        |store, key| store.multi_set(&[("another", b""), (key, b"1")]).unwrap(),
        |store, key| store.barrier(key, 1).unwrap(),
    ];
    let waits: [fn(&Store, &str); 3] = [
        |store, key| store.wait(&[key]).unwrap(),
        |store, key| assert_eq!(store.get(key).unwrap(), b"1"),
        |store, key| assert_eq!(store.multi_get(&[key, key]).unwrap(), [b"1", b"1"]),
    ];
    // Each waits for what the other does next, so that whoever waits mostly waits before it is done.
    setting.run(2, |number, store| {
        for round in 0..10 {
            for (change, make) in changes.iter().enumerate() {
                for (wait, see) in waits.iter().enumerate() {
                    let (mine, theirs) = (number, 1 - number);
                    let key = |of: usize| format!("{round}/{change}/{wait}/{of}");
                    if number == 0 {
                        make(&store, &key(mine));
                    }
                    see(&store, &key(theirs));
                    if number == 1 {
                        make(&store, &key(mine));
                    }
                }
            }
        }
    });
}

pub(crate) fn seen_one_after_the_other(setting: &Setting) {
    let door = setting.door();
    let (waiter, changer) = (door(), door());
    thread::scope(|scope| {
        let waiter = scope.spawn(move || waiter.wait(&["a", "b"]));
        // At no moment both are there.
        while !waiter.is_finished() {
            for key in ["a", "b"] {
                changer.set(key, "").unwrap();
                changer.delete(key).unwrap();
            }
        }
        waiter.join().unwrap().unwrap();
    });
}

pub(crate) fn values_of_one_moment(setting: &Setting) {
    let door = setting.door();
    let (reader, writer) = (door(), door());
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            for _ in 0..50 {
                let values = reader.multi_get(&["a", "b"]).unwrap();
                assert_eq!(values[0], values[1]);
            }
        });
        for number in 0_u32.. {
            let value = number.to_le_bytes();
            writer.multi_set(&[("a", &value), ("b", &value)]).unwrap();
            writer.delete(if number % 2 == 0 { "a" } else { "b" }).unwrap();
            if reader.is_finished() {
                break;
            }
        }
        reader.join().unwrap();
    });
}

pub(crate) fn deadlines(setting: &Setting) {
    let door = setting.door();
    let timeout = Duration::from_millis(100);
    let store = door().with_timeout(timeout);
    store.set("there", "1").unwrap();
    let waits: [Wait; 5] = [
        |store| store.wait(&["there", "absent"]),
        |store| store.get("absent").map(drop),
        |store| store.multi_get(&["there", "absent"]).map(drop),
        |store| store.pop("absent").map(drop),
        |store| store.barrier("barrier", 1 << 40),
    ];
    for wait in waits {
        // A busy machine may be late once; a store that is late is late every time.
        let took = (0..5).map(|_| timed(|| wait(&store), timeout)).find(|took| *took <= timeout + LATE);
        assert!(took.is_some(), "later than {LATE:?} every time");
    }
}

fn timed(wait: impl Fn() -> Result<(), StoreError>, timeout: Duration) -> Duration {
    let began = Instant::now();
    let error = wait().unwrap_err();
    let took = began.elapsed();
    assert!(took >= timeout, "{error} after {took:?}");
    assert!(matches!(error, StoreError::Timeout { after, .. } if after == timeout), "{error}");
    took
}

pub(crate) fn a_time_of_zero(setting: &Setting) {
    let door = setting.door();
    let store = door().with_timeout(Duration::ZERO);
    assert!(store.wait(&["absent"]).unwrap_err().is_timeout());
    assert!(store.get("absent").unwrap_err().is_timeout());
    assert!(store.pop("absent").unwrap_err().is_timeout());
}

pub(crate) fn many_who_wait(setting: &Setting) {
    let sums = setting.run(16, |number, store| {
        if number == 0 {
            store.wait(&["ready"]).unwrap();
            store.set("go", "1").unwrap();
            return 0;
        }
        if store.add("arrived", 1).unwrap() == 15 {
            store.set("ready", "").unwrap();
        }
        store.get("go").unwrap().len()
    });
    assert_eq!(sums.into_iter().sum::<usize>(), 15);
}

pub(crate) fn given_up(setting: &Setting) {
    let door = setting.door();
    let (store, hasty) = (door(), door().with_timeout(Duration::from_millis(1)));
    for number in 0..20_u8 {
        assert!(hasty.pop("q").unwrap_err().is_timeout());
        store.push("q", [number]).unwrap();
        assert_eq!(store.pop("q").unwrap(), [number], "no waiter of the past has taken it");
    }
}

/// A call that is not answered before its deadline.
type Wait = fn(&Store) -> Result<(), StoreError>;

/// How late an answer may be.
const LATE: Duration = Duration::from_millis(250);
