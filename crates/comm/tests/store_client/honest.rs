//! The client over our server, in our frames, in PyTorch's words, encrypted, and over a Unix socket: the same everywhere.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::JobKey;
use phalanx_comm::store::{ClientOptions, ServerOptions, Speech, StoreAddress, StoreServer, TcpStore};
use phalanx_core::store::{Doubt, Limits, Refusal, Store, StoreError};

/// A server, and a store over it.
struct Setting {
    name: &'static str,
    store: Store,
    server: StoreServer,
}

fn settings(limits: Limits) -> Vec<Setting> {
    let key = JobKey::mint().unwrap();
    let path = std::env::temp_dir().join(format!("phalanx-client-{}-{}", std::process::id(), fastrand::u64(..)));
    let loopback: StoreAddress = "127.0.0.1:0".parse().unwrap();
    let setting = |name, address: &StoreAddress, key: Option<JobKey>, speech| {
        let options = ServerOptions::new(address.clone()).limits(limits);
        let server = StoreServer::start(key.clone().into_iter().fold(options, ServerOptions::key)).unwrap();
        let options = ClientOptions::new(server.address().clone()).speech(speech).timeout(Duration::from_secs(30));
        let home = TcpStore::connect(key.into_iter().fold(options, ClientOptions::key)).unwrap();
        Setting { name, store: Store::new(home).with_timeout(Duration::from_secs(30)), server }
    };
    vec![
        setting("our frames", &loopback, None, Speech::Either),
        setting("PyTorch's words", &loopback, None, Speech::PyTorch),
        setting("encrypted", &loopback, Some(key), Speech::Either),
        setting("Unix socket", &StoreAddress::unix(path), None, Speech::Either),
    ]
}

fn everywhere(test: impl Fn(&Store)) {
    for Setting { name, store, server } in settings(Limits::default()) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&store)));
        assert!(outcome.is_ok(), "over {name}");
        drop(server);
    }
}

#[test]
fn every_operation() {
    everywhere(|store| {
        store.set("k", "v1").unwrap();
        assert_eq!(store.get("k").unwrap(), b"v1");
        assert_eq!(store.find("absent").unwrap(), None);
        store.set("", "").unwrap();
        assert_eq!(store.find("").unwrap(), Some(vec![]));
        store.multi_set(&[("a", b"\0\xff"), ("b", b"2")]).unwrap();
        assert_eq!(store.multi_get(&["a", "b", "a"]).unwrap(), [b"\0\xff".to_vec(), b"2".to_vec(), b"\0\xff".to_vec()]);
        assert_eq!((store.add("n", 5).unwrap(), store.add("n", -7).unwrap()), (5, -2));
        assert_eq!(store.compare_set("c", "", "x").unwrap(), b"x");
        assert_eq!(store.compare_set("c", "y", "z").unwrap(), b"x");
        assert!(store.check(&["a", "b"]).unwrap() && !store.check(&["a", "absent"]).unwrap());
        store.append("k", "more").unwrap();
        assert_eq!(store.get("k").unwrap(), b"v1more");
        assert!(store.delete("k").unwrap() && !store.delete("k").unwrap());
        assert_eq!(store.list_keys().unwrap(), ["", "a", "b", "c", "n"]);
        assert_eq!(store.num_keys().unwrap(), 5);
        store.push("q", "e1").unwrap();
        store.push("q", "").unwrap();
        assert_eq!(store.queue_len("q").unwrap(), 2);
        assert_eq!(store.pop("q").unwrap(), b"e1");
        assert_eq!((store.try_pop("q").unwrap(), store.try_pop("q").unwrap()), (Some(vec![]), None));
        store.ping().unwrap();
        store.barrier("all", 1).unwrap();
    });
}

#[test]
fn large_values() {
    for Setting { name, store, server: _server } in settings(Limits::default()) {
        // Without optimisation a cipher takes seconds for the longest value of PyTorch.
        let len = if name == "encrypted" { 1 << 20 } else { 8 << 20 };
        let value: Vec<u8> = (0..len).map(|number: u32| number.to_le_bytes()[2]).collect();
        store.set("large", &value).unwrap();
        assert!(store.get("large").unwrap() == value, "over {name}");
        assert!(store.multi_get(&["large", "large"]).unwrap() == [value.clone(), value], "over {name}");
    }
}

/// Threads that share a store each have a connection: who waits keeps nobody from what he waits for.
#[test]
fn waiting_keeps_nobody_waiting() {
    everywhere(|store| {
        let ready = Barrier::new(9);
        thread::scope(|scope| {
            for rank in 0..8 {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    assert_eq!(store.get("late").unwrap(), b"now");
                    assert_eq!(store.pop("each").unwrap().len(), 1);
                    store.barrier("end", 9).unwrap();
                    store.add("sum", rank).unwrap();
                });
            }
            ready.wait();
            store.set("late", "now").unwrap();
            (0..8).for_each(|number: u8| store.push("each", [number]).unwrap());
            store.barrier("end", 9).unwrap();
        });
        assert_eq!(store.add("sum", 0).unwrap(), 28);
        assert_eq!(store.queue_len("each").unwrap(), 0);
    });
}

#[test]
fn time_is_kept_and_nothing_lost_when_it_ends() {
    everywhere(|store| {
        let hasty = store.with_timeout(Duration::from_millis(100));
        type Call<'a> = &'a dyn Fn() -> Result<(), StoreError>;
        let calls: [Call<'_>; 4] = [
            &|| hasty.wait(&["never"]),
            &|| hasty.get("never").map(|_| ()),
            &|| hasty.pop("never").map(|_| ()),
            &|| hasty.barrier("never", 2),
        ];
        for call in calls {
            let start = Instant::now();
            assert!(call().unwrap_err().is_timeout());
            let took = start.elapsed();
            assert!((100..=350).contains(&took.as_millis()), "{took:?}");
        }
        store.push("never", "kept").unwrap();
        assert_eq!(store.pop("never").unwrap(), b"kept");
    });
}

/// Poppers that give up all the time, and a queue: every value is taken once, and none lost unless it was said.
#[test]
fn a_queue_among_hasty_poppers() {
    everywhere(|store| {
        let (hasty, count) = (store.with_timeout(Duration::from_millis(5)), 200);
        let taken = thread::scope(|scope| {
            let poppers: Vec<_> = (0..3).map(|_| scope.spawn(|| pop_until_told(&hasty))).collect();
            (0..count).for_each(|number: u32| store.push("q", number.to_le_bytes()).unwrap());
            let ends: Vec<_> = poppers.into_iter().map(|popper| end(store, popper)).collect();
            ends.into_iter().flatten().collect::<Vec<_>>()
        });
        let doubted = taken.iter().filter(|value| value.is_none()).count();
        let mut taken: Vec<_> = taken.into_iter().flatten().collect();
        let all = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), all, "nothing is taken twice");
        assert!(all <= count as usize && all + doubted >= count as usize, "{all} taken, {doubted} perhaps");
    });
}

/// Pops until it is told to stop; nothing stands for what may have been taken or not.
fn pop_until_told(store: &Store) -> Vec<Option<Vec<u8>>> {
    let mut taken = Vec::new();
    loop {
        match store.pop("q") {
            Ok(value) if value == b"stop" => return taken,
            Ok(value) => taken.push(Some(value)),
            Err(error) => {
                assert!(error.is_timeout(), "{error}");
                taken.extend((error.doubt() == Doubt::Unknown).then_some(None));
            }
        }
    }
}

/// Tells a popper to stop, once more where that may have been lost.
fn end<T>(store: &Store, popper: thread::ScopedJoinHandle<'_, T>) -> T {
    let start = Instant::now();
    while !popper.is_finished() {
        assert!(start.elapsed() < Duration::from_secs(60), "a popper takes nothing");
        if store.queue_len("q").unwrap() == 0 {
            store.push("q", "stop").unwrap();
        }
    }
    popper.join().unwrap()
}

#[test]
fn no_time_at_all_asks_once() {
    everywhere(|store| {
        store.set("k", "v").unwrap();
        let now = store.with_timeout(Duration::ZERO);
        assert_eq!(now.get("k").unwrap(), b"v");
        assert!(now.get("absent").unwrap_err().is_timeout());
        assert_eq!(now.add("n", 1).unwrap(), 1);
    });
}

#[test]
fn refusals_say_why_in_our_frames() {
    for Setting { name, store, server: _server } in settings(Limits::default().value(1 << 20).message(2 << 20)) {
        if name == "PyTorch's words" {
            continue;
        }
        let refusal = |outcome: Result<(), StoreError>| match outcome {
            Err(StoreError::Refused { refusal, .. }) => refusal,
            other => panic!("over {name}: {other:?}"),
        };
        store.set("text", "abc").unwrap();
        let not_a_number = Refusal::NotANumber { key: "text".into(), start: "abc".into() };
        assert_eq!(refusal(store.add("text", 1).map(|_| ())), not_a_number);
        store.add("n", i64::MAX).unwrap();
        let overflow = Refusal::Overflow { key: "n".into(), value: i64::MAX, delta: 1 };
        assert_eq!(refusal(store.add("n", 1).map(|_| ())), overflow);
        let long = refusal(store.set(&"k".repeat(8192), "v"));
        assert!(
            matches!(&long, Refusal::KeyTooLong { len: 8192, limit: 8191, start } if start.starts_with('k')),
            "{long}"
        );
        let limit = 1 << 20;
        let value_too_long = Refusal::ValueTooLong { len: limit + 1, limit, key: "k".into() };
        assert_eq!(refusal(store.set("k", vec![0; limit as usize + 1])), value_too_long);
        let too_long = refusal(store.set("k", vec![0; 3 << 20]));
        assert!(matches!(too_long, Refusal::MessageTooLong { limit, .. } if limit == 2 << 20), "{too_long}");
        assert_eq!(store.get("text").unwrap(), b"abc", "over {name} the connection goes on");
    }
}
