//! What is refused, and that nothing has changed then.

use super::*;

/// What an entry with a key and a value of these lengths counts.
fn entry(key: usize, value: usize) -> usize {
    key + value + 64
}

fn limits() -> Limits {
    Limits::default().key(4).value(10).keys(3).message(200)
}

/// Asks what must be refused and returns how; nothing may have changed.
fn refused(desk: &mut Desk, request: Request) -> Refusal {
    let before = (desk.table.byte_len(), desk.table.len(), desk.table.waiting());
    let refusal = desk.answer(request).unwrap_err();
    assert_eq!(before, (desk.table.byte_len(), desk.table.len(), desk.table.waiting()), "{refusal}");
    assert!(desk.woken().is_empty());
    refusal
}

#[test]
fn keys_have_a_longest() {
    let mut desk = Desk::with(limits());
    let pairs = vec![("a".into(), value("1")), ("abcde".into(), value("2"))];
    let requests = [Request::Set { pairs }, wait(&["a", "abcde"]), get(&["abcde"], true), pop("abcde", true)];
    for request in requests.into_iter().chain([push("abcde", ""), barrier("abcde", 9), delete("abcde")]) {
        let expected = Refusal::KeyTooLong { len: 5, limit: 4, start: "abcde".into() };
        assert_eq!(refused(&mut desk, request), expected);
    }
    assert_eq!(desk.reply(set("abcd", "")), Reply::Done);
}

#[test]
fn values_have_a_longest() {
    let mut desk = Desk::with(limits());
    desk.reply(set("a", "1234567890"));
    let expected = Refusal::ValueTooLong { len: 11, limit: 10, key: "a".into() };
    let long = "12345678901";
    for request in [set("a", long), append("a", "1"), append("a", long), push("a", long)] {
        assert_eq!(refused(&mut desk, request), expected);
    }
    for request in [compare_set("a", "", long), compare_set("a", long, "")] {
        assert_eq!(refused(&mut desk, request), expected);
    }
    assert_eq!(desk.reply(get(&["a"], false)), one("1234567890"));
    let mut narrow = Desk::with(Limits::default().value(1));
    narrow.reply(set("n", "9"));
    assert!(matches!(refused(&mut narrow, add("n", 1)), Refusal::ValueTooLong { len: 2, .. }));
    assert!(matches!(refused(&mut narrow, barrier("n", 99)), Refusal::ValueTooLong { len: 2, .. }));
}

#[test]
fn requests_have_a_most_and_a_longest() {
    let mut desk = Desk::with(limits().key(100).value(100));
    let expected = Refusal::TooManyKeys { count: 4, limit: 3 };
    let pairs = vec![("a".into(), value("")); 4];
    for request in [wait(&["a"; 4]), check(&["a"; 4]), get(&["a"; 4], true), Request::Set { pairs }] {
        assert_eq!(refused(&mut desk, request), expected);
    }
    let long = "x".repeat(90);
    let pairs = vec![("a".into(), value(&long)), ("b".into(), value(&long))];
    assert!(matches!(refused(&mut desk, Request::Set { pairs }), Refusal::MessageTooLong { limit: 200, .. }));
}

#[test]
fn answers_have_a_longest() {
    let mut desk = Desk::with(limits().key(100).value(150));
    let long = "x".repeat(100);
    let waiting = desk.waits(1, get(&["a", "b"], true));
    desk.reply(set("a", &long));
    desk.reply(set("b", &long));
    let (_, ticket, answer) = desk.table.woken().unwrap();
    let expected = Refusal::MessageTooLong { len: 232, limit: 200 };
    assert_eq!((ticket, answer), (waiting, Err(expected.clone())));
    assert_eq!(refused(&mut desk, get(&["a", "b"], false)), expected);
    assert_eq!(refused(&mut desk, get(&["a", "b"], true)), expected);
    desk.reply(set(&"k".repeat(100), ""));
    desk.reply(set(&"l".repeat(100), ""));
    assert!(matches!(refused(&mut desk, Request::ListKeys), Refusal::MessageTooLong { .. }));
    let mut grown = Desk::with(Limits::default().message(100));
    for _ in 0..3 {
        grown.reply(append("a", &"x".repeat(50)));
    }
    let expected = Refusal::MessageTooLong { len: 166, limit: 100 };
    assert_eq!(refused(&mut grown, get(&["a"], false)), expected);
    assert_eq!(refused(&mut grown, compare_set("a", "", "y")), expected);
}

#[test]
fn entries_count_for_who_wrote_them_last() {
    let room = 2 * entry(1, 10);
    let mut table = Table::new(Limits::default().client(room));
    let mut ask = |client: u64, request: Request| match table.ask(ClientId(client), request) {
        Asked::Answered(answer) => (answer.is_ok(), table.byte_len()),
        Asked::Waiting(_) => panic!("nothing here waits"),
    };
    assert_eq!(ask(1, set("a", "1234567890")), (true, entry(1, 10)));
    assert_eq!(ask(1, push("q", "1234567890")), (true, room));
    assert_eq!(ask(1, set("b", "")), (false, room), "full");
    assert_eq!(ask(1, append("a", "x")), (false, room), "full");
    assert_eq!(ask(1, set("a", "0123456789")), (true, room), "as long as before");
    assert_eq!(ask(2, append("a", "x")), (true, room + 1), "another's, who takes it over");
    assert_eq!(ask(1, set("b", "1234567890")), (true, room + 1 + entry(1, 10)), "which makes room");
    assert_eq!(ask(1, set("a", "x")), (false, room + 1 + entry(1, 10)), "to take it back there is none");
    assert_eq!(ask(2, pop("q", false)), (true, entry(1, 11) + entry(1, 10)), "whoever pops makes room");
    assert_eq!(ask(1, push("q", "1234567890")), (true, entry(1, 11) + room));
    assert_eq!(ask(2, delete("b")), (true, entry(1, 11) + entry(1, 10)), "whoever deletes too");
    assert_eq!(ask(1, compare_set("b", "", "1234567890")), (true, entry(1, 11) + room));
}

#[test]
fn the_whole_store_has_an_end_for_everybody() {
    let room = 2 * entry(1, 0);
    let mut desk = Desk::with(Limits::default().total(room));
    desk.reply(set("a", ""));
    desk.table.leave(ClientId(1));
    desk.reply(push("q", ""));
    let full = Refusal::StoreFull { len: (room + entry(1, 1)) as u64, limit: room as u64 };
    for request in [add("n", 1), set("n", "1"), push("n", "1"), append("n", "1"), barrier("n", 1)] {
        assert_eq!(refused(&mut desk, request), full);
    }
    assert!(matches!(refused(&mut desk, set("a", "1")), Refusal::StoreFull { .. }));
    desk.reply(delete("a"));
    assert_eq!(desk.table.byte_len(), entry(1, 0), "what a client left behind is freed too");
    let pairs = vec![("x".into(), value("")), ("y".into(), value(""))];
    assert!(matches!(refused(&mut desk, Request::Set { pairs }), Refusal::StoreFull { .. }));
    let pairs = vec![("x".into(), value("")), ("x".into(), value(""))];
    desk.reply(Request::Set { pairs });
    assert_eq!(desk.table.byte_len(), room);
}

#[test]
fn to_wait_takes_room_too() {
    let cost = 2 * entry(1, 0) + 64;
    let mut desk = Desk::with(Limits::default().client(cost).total(2 * cost));
    let ticket = desk.waits(1, wait(&["a", "b"]));
    assert_eq!(desk.table.byte_len(), cost);
    assert!(matches!(refused(&mut desk, pop("q", true)), Refusal::ClientFull { .. }));
    assert!(matches!(refused(&mut desk, barrier("n", 2)), Refusal::ClientFull { .. }));
    desk.waits(2, get(&["a", "b"], true));
    assert!(matches!(desk.table.ask(ClientId(3), pop("q", true)), Asked::Answered(Err(Refusal::StoreFull { .. }))));
    assert!(desk.table.cancel(ticket));
    desk.waits(1, pop("q", true));
    desk.table.leave(ClientId(1));
    desk.table.leave(ClientId(2));
    assert_eq!(desk.table.byte_len(), 0);
}

#[test]
fn a_barrier_is_counted_and_waited_for_or_neither() {
    let wait = entry(1, 0) + 64;
    let mut desk = Desk::with(Limits::default().client(wait + entry(1, 1) - 1));
    assert!(matches!(refused(&mut desk, barrier("b", 2)), Refusal::ClientFull { .. }));
    assert_eq!(desk.reply(check(&["b"])), Reply::Flag(false));
    assert_eq!(desk.reply(barrier("b", 1)), Reply::Done, "who need not wait needs no room to");
}

#[test]
fn full_or_not_a_value_may_shrink_and_go() {
    let (room, long) = (entry(1, 100), "x".repeat(100));
    let mut desk = Desk::with(Limits::default().client(room).total(room));
    desk.waits(7, pop("q", true));
    desk.reply(push("q", &long));
    desk.reply(set("a", &long));
    desk.table.leave(ClientId(7));
    assert_eq!(desk.table.byte_len(), 2 * room, "what goes back is not refused");
    assert_eq!(desk.reply(set("a", "123")), Reply::Done);
    assert!(matches!(refused(&mut desk, set("a", "1234")), Refusal::StoreFull { .. }));
    assert_eq!(desk.reply(pop("q", false)), one(&long));
    assert_eq!(desk.reply(set("a", &long)), Reply::Done);
}

#[test]
fn who_is_exempt_has_the_whole_store() {
    let mut desk = Desk::with(Limits::default().client(entry(1, 10)).message(100).total(3 * entry(1, 100)));
    let long = "x".repeat(100);
    assert!(desk.answer(set("a", &long)).is_err());
    desk.table.exempt(ClientId(1));
    for key in ["a", "b", "c"] {
        desk.reply(set(key, &long));
    }
    assert_eq!(desk.reply(get(&["a", "b"], false)), Reply::Values(vec![Some(value(&long)); 2]));
    assert!(matches!(refused(&mut desk, set("d", "")), Refusal::StoreFull { .. }));
    desk.table.leave(ClientId(1));
    assert!(matches!(refused(&mut desk, get(&["a", "b"], false)), Refusal::MessageTooLong { limit: 100, .. }));
}
