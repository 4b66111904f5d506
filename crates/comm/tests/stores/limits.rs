//! What a store refuses: told in full, and nothing changed.

use phalanx_core::store::{Limits, Refusal, StoreError};

use crate::setting::Setting;

/// How it was refused.
fn refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> Refusal {
    match answer {
        Err(StoreError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?} where a refusal was due"),
    }
}

pub(crate) fn keys(setting: &Setting) {
    let door = setting.limited(Limits::default().key(8).keys(4));
    let store = door();
    let expected = Refusal::KeyTooLong { len: 9, limit: 8, start: "123456789".into() };
    assert_eq!(refused(store.set("123456789", "")), expected);
    assert_eq!(refused(store.get("123456789")), expected);
    assert_eq!(refused(store.wait(&["a", "123456789"])), expected);
    assert_eq!(refused(store.pop("123456789")), expected);
    assert_eq!(refused(store.barrier("123456789", 9)), expected);
    assert_eq!(
        refused(store.scope("1234567").find("x")),
        Refusal::KeyTooLong { len: 9, limit: 8, start: "1234567/x".into() }
    );
    let expected = Refusal::TooManyKeys { count: 5, limit: 4 };
    assert_eq!(refused(store.check(&["a"; 5])), expected);
    assert_eq!(refused(store.wait(&["a"; 5])), expected);
    assert_eq!(refused(store.multi_get(&["a"; 5])), expected);
    assert_eq!(refused(store.multi_set(&[("a", &b""[..]); 5])), expected);
    assert_eq!(store.num_keys().unwrap(), 0);
    store.multi_set(&[("12345678", &b""[..]); 4]).unwrap();
}

pub(crate) fn values(setting: &Setting) {
    let door = setting.limited(Limits::default().value(8));
    let store = door();
    let expected = Refusal::ValueTooLong { len: 9, limit: 8, key: "a".into() };
    assert_eq!(refused(store.set("a", "123456789")), expected);
    assert_eq!(refused(store.push("a", "123456789")), expected);
    assert_eq!(refused(store.append("a", "123456789")), expected);
    assert_eq!(refused(store.compare_set("a", "", "123456789")), expected);
    store.set("a", "12345678").unwrap();
    assert_eq!(refused(store.append("a", "9")), expected);
    assert_eq!(refused(store.multi_set(&[("b", b""), ("a", b"123456789")])), expected);
    assert_eq!(store.get("a").unwrap(), b"12345678");
    assert_eq!(store.find("b").unwrap(), None, "all or nothing");
}

pub(crate) fn messages(setting: &Setting) {
    let door = setting.limited(Limits::default().message(1000));
    let store = door();
    let long = [0; 400];
    assert!(matches!(
        refused(store.multi_set(&[("a", &long), ("b", &long), ("c", &long)])),
        Refusal::MessageTooLong { limit: 1000, .. }
    ));
    for key in ["a", "b", "c"] {
        store.set(key, long).unwrap();
    }
    let answer = store.multi_get(&["a", "b", "c"]);
    assert!(matches!(refused(answer), Refusal::MessageTooLong { limit: 1000, .. }));
    assert_eq!(store.multi_get(&["a", "b"]).unwrap(), [long, long]);
}

pub(crate) fn clients(setting: &Setting) {
    let door = setting.limited(Limits::default().client(1000));
    let (one, other) = (door(), door());
    one.set("a", [0; 900]).unwrap();
    // Over a wire each key is a byte longer.
    let full = |refusal| matches!(refusal, Refusal::ClientFull { len: 1031..=1033, limit: 1000 });
    assert!(full(refused(one.set("b", "1"))));
    assert!(full(refused(one.push("b", "1"))));
    assert!(full(refused(one.append("b", "1"))));
    assert!(full(refused(one.add("b", 1))));
    other.set("b", "1").unwrap();
    other.delete("a").unwrap();
    one.set("c", "1").unwrap();
    assert_eq!(one.list_keys().unwrap(), ["b", "c"]);
}

pub(crate) fn whole(setting: &Setting) {
    let door = setting.limited(Limits::default().total(1000));
    let (one, other) = (door(), door());
    one.set("a", [0; 900]).unwrap();
    let full = |refusal| matches!(refusal, Refusal::StoreFull { len: 1031..=1033, limit: 1000 });
    assert!(full(refused(other.set("b", "1"))));
    assert!(full(refused(other.compare_set("b", "", "1"))));
    assert!(full(refused(one.push("b", "1"))));
    assert_eq!(other.get("a").unwrap().len(), 900, "everybody goes on");
    one.set("a", "").unwrap();
    other.push("b", "1").unwrap();
}

pub(crate) fn numbers(setting: &Setting) {
    let door = setting.door();
    let store = door();
    store.set("n", "many").unwrap();
    assert_eq!(refused(store.add("n", 1)), Refusal::NotANumber { key: "n".into(), start: "many".into() });
    store.set("n", i64::MIN.to_string()).unwrap();
    assert_eq!(refused(store.add("n", -1)), Refusal::Overflow { key: "n".into(), value: i64::MIN, delta: -1 });
    assert_eq!(store.get("n").unwrap(), i64::MIN.to_string().as_bytes());
}

pub(crate) fn arguments(setting: &Setting) {
    let door = setting.door();
    let refusal = refused(door().barrier("b", 0));
    assert!(matches!(&refusal, Refusal::Argument { argument, value, .. } if argument == "size" && value == "0"));
    assert_eq!(door().num_keys().unwrap(), 0);
}
