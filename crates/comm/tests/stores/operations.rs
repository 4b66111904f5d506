//! Every operation as its documentation says, by one client and seen by another.

use phalanx_core::store::Store;

use crate::setting::Setting;

/// Runs `test` with two clients of an empty store.
fn two(setting: &Setting, test: impl Fn(Store, Store)) {
    let door = setting.door();
    test(door(), door());
}

pub(crate) fn values(setting: &Setting) {
    two(setting, |one, other| {
        assert_eq!(other.find("a").unwrap(), None);
        one.set("a", "1").unwrap();
        assert_eq!(other.find("a").unwrap(), Some(b"1".to_vec()));
        assert_eq!(other.get("a").unwrap(), b"1");
        other.set("a", "2").unwrap();
        assert_eq!(one.get("a").unwrap(), b"2");
        one.multi_set(&[("b", b"3"), ("c", b""), ("b", b"4")]).unwrap();
        assert_eq!(other.multi_get(&["c", "b", "a", "b"]).unwrap(), [&b""[..], b"4", b"2", b"4"]);
        assert_eq!(other.multi_get(&[]).unwrap(), Vec::<Vec<u8>>::new());
        assert!(other.delete("a").unwrap());
        assert!(!one.delete("a").unwrap());
        assert_eq!(one.find("a").unwrap(), None);
        one.ping().unwrap();
    });
}

pub(crate) fn presence(setting: &Setting) {
    two(setting, |one, other| {
        assert!(other.check(&[]).unwrap());
        assert!(!other.check(&["a"]).unwrap());
        other.wait(&[]).unwrap();
        one.set("a", "").unwrap();
        one.push("q", "").unwrap();
        assert!(other.check(&["a", "q", "a"]).unwrap());
        assert!(!other.check(&["a", "b"]).unwrap());
        other.wait(&["a", "q", "a"]).unwrap();
        assert_eq!(other.num_keys().unwrap(), 1, "queues do not count");
        assert_eq!(other.list_keys().unwrap(), ["a"]);
        one.pop("q").unwrap();
        assert!(!other.check(&["q"]).unwrap());
    });
}

pub(crate) fn counters(setting: &Setting) {
    two(setting, |one, other| {
        assert_eq!(one.add("n", 0).unwrap(), 0);
        assert_eq!(other.add("n", 5).unwrap(), 5);
        assert_eq!(one.add("n", -7).unwrap(), -2);
        assert_eq!(other.get("n").unwrap(), b"-2", "counters are text");
        one.set("n", "12abc").unwrap();
        assert_eq!(other.add("n", 1).unwrap(), 13);
        one.set("n", i64::MAX.to_string()).unwrap();
        assert_eq!(other.add("n", -1).unwrap(), i64::MAX - 1);
    });
}

pub(crate) fn compare_set(setting: &Setting) {
    two(setting, |one, other| {
        assert_eq!(one.compare_set("a", "x", "1").unwrap(), b"x", "absent, and something expected");
        assert_eq!(other.find("a").unwrap(), None);
        assert_eq!(one.compare_set("a", "", "1").unwrap(), b"1", "absent, as expected");
        assert_eq!(other.compare_set("a", "0", "2").unwrap(), b"1", "another is there");
        assert_eq!(other.compare_set("a", "", "2").unwrap(), b"1", "one is there");
        assert_eq!(other.compare_set("a", "1", "2").unwrap(), b"2");
        assert_eq!(one.compare_set("a", "2", "").unwrap(), b"");
        assert_eq!(other.compare_set("a", "", "3").unwrap(), b"3", "an empty value, as expected");
        assert_eq!(one.get("a").unwrap(), b"3");
    });
}

pub(crate) fn append(setting: &Setting) {
    two(setting, |one, other| {
        one.append("a", "").unwrap();
        assert_eq!(other.find("a").unwrap(), Some(vec![]));
        one.append("a", "1").unwrap();
        other.append("a", "23").unwrap();
        assert_eq!(one.get("a").unwrap(), b"123");
    });
}

pub(crate) fn queues(setting: &Setting) {
    two(setting, |one, other| {
        assert_eq!(one.try_pop("q").unwrap(), None);
        assert_eq!(one.queue_len("q").unwrap(), 0);
        for text in ["1", "2", "", "4"] {
            one.push("q", text).unwrap();
        }
        one.set("q", "a value of that name").unwrap();
        assert_eq!(other.queue_len("q").unwrap(), 4);
        assert_eq!(other.pop("q").unwrap(), b"1");
        assert_eq!(one.try_pop("q").unwrap(), Some(b"2".to_vec()));
        assert_eq!(other.pop("q").unwrap(), b"");
        assert_eq!(other.get("q").unwrap(), b"a value of that name");
        assert!(other.delete("q").unwrap(), "both go");
        assert_eq!((one.queue_len("q").unwrap(), one.find("q").unwrap()), (0, None));
        one.push("q", "5").unwrap();
        assert!(other.delete("q").unwrap(), "a queue alone is something");
        assert!(!one.delete("q").unwrap());
    });
}

pub(crate) fn barriers(setting: &Setting) {
    two(setting, |one, other| {
        one.barrier("b", 1).unwrap();
        other.barrier("b", 2).unwrap();
        one.barrier("b", 2).unwrap();
        assert_eq!(one.get("b").unwrap(), b"3", "arrivals are counted and never reset");
    });
}

pub(crate) fn bytes(setting: &Setting) {
    two(setting, |one, other| {
        let all: Vec<u8> = (0..=255).collect();
        one.set("", &all).unwrap();
        assert_eq!(other.get("").unwrap(), all);
        one.set("\0/\u{10ffff} \n", b"").unwrap();
        assert_eq!(other.get("\0/\u{10ffff} \n").unwrap(), b"");
        assert_eq!(other.list_keys().unwrap(), ["", "\0/\u{10ffff} \n"]);
        let long: Vec<u8> = (0..8 << 20).map(|index: u32| (index % 251) as u8).collect();
        one.set("long", &long).unwrap();
        assert!(other.get("long").unwrap() == long);
        one.push("long", &long).unwrap();
        assert!(other.pop("long").unwrap() == long);
        // With the slash that it gets on PyTorch's wire, the longest that is allowed there.
        let key = "k".repeat((8 << 10) - 1);
        one.set(&key, "1").unwrap();
        assert_eq!(other.get(&key).unwrap(), b"1");
    });
}

pub(crate) fn scopes(setting: &Setting) {
    two(setting, |one, other| {
        let (a, ab) = (one.scope("a"), other.scope("a").scope("b"));
        a.set("b/k", "1").unwrap();
        assert_eq!(ab.get("k").unwrap(), b"1");
        assert_eq!(one.get("a/b/k").unwrap(), b"1");
        ab.add("n", 2).unwrap();
        one.set("ab/k", "another scope").unwrap();
        assert_eq!(ab.list_keys().unwrap(), ["k", "n"]);
        assert_eq!(a.list_keys().unwrap(), ["b/k", "b/n"]);
        assert_eq!(one.list_keys().unwrap(), ["a/b/k", "a/b/n", "ab/k"]);
        assert_eq!(ab.num_keys().unwrap(), 3, "the whole store's");
        ab.push("q", "x").unwrap();
        assert_eq!(a.pop("b/q").unwrap(), b"x");
        assert!(a.delete("b/k").unwrap() && !ab.check(&["k"]).unwrap());
    });
}
