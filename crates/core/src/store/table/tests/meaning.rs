//! One row a rule: the requests that come before, the request, its answer.

use super::*;

/// Asks all of `before` and then `request`.
fn row(what: &str, before: Vec<Request>, request: Request, expected: Reply) {
    let mut desk = Desk::new();
    for request in before {
        desk.reply(request);
    }
    assert_eq!(desk.reply(request), expected, "{what}");
}

#[test]
fn values_are_as_the_rows_say() {
    let absent = || Reply::Values(vec![None]);
    row("an absent key has no value", vec![], get(&["a"], false), absent());
    row("what was set is there", vec![set("a", "1")], get(&["a"], false), one("1"));
    row("the last value counts", vec![set("a", "1"), set("a", "2")], get(&["a"], true), one("2"));
    row("empty values are values", vec![set("a", "")], get(&["a"], true), one(""));
    row("empty keys are keys", vec![set("", "1")], get(&[""], true), one("1"));
    row("values in the order of the keys", vec![set("a", "1"), set("b", "2")], get(&["b", "x", "a", "b"], false), {
        Reply::Values(vec![Some(value("2")), None, Some(value("1")), Some(value("2"))])
    });
    let twice = Request::Set { pairs: vec![("a".into(), value("1")), ("a".into(), value("2"))] };
    row("of a key set twice at once the last counts", vec![twice], get(&["a"], false), one("2"));
    row("no keys have no values", vec![], get(&[], true), Reply::Values(vec![]));
    row("a deleted key is absent", vec![set("a", "1"), delete("a")], get(&["a"], false), absent());
    row("delete tells that there was one", vec![set("a", "1")], delete("a"), Reply::Flag(true));
    row("delete tells that there was none", vec![], delete("a"), Reply::Flag(false));
    row("append begins empty", vec![append("a", "1")], get(&["a"], false), one("1"));
    row("append adds", vec![set("a", "1"), append("a", "2"), append("a", "3")], get(&["a"], false), one("123"));
    row("nothing asked, answered", vec![], Request::Ping, Reply::Done);
}

#[test]
fn presence_is_as_the_rows_say() {
    row("nothing is all there", vec![], check(&[]), Reply::Flag(true));
    row("waiting for nothing is over", vec![], wait(&[]), Reply::Done);
    row("all must be there", vec![set("a", "1")], check(&["a", "b"]), Reply::Flag(false));
    row("all are there", vec![set("a", "1"), set("b", "1")], check(&["a", "b", "a"]), Reply::Flag(true));
    row("a queue with a value counts", vec![push("q", "1")], check(&["q"]), Reply::Flag(true));
    row("and need not be waited for", vec![push("q", "1")], wait(&["q"]), Reply::Done);
    row("an emptied queue does not", vec![push("q", "1"), pop("q", false)], check(&["q"]), Reply::Flag(false));
    row("values alone are counted", vec![set("a", "1"), add("n", 1), push("q", "1")], Request::NumKeys, {
        Reply::Number(2)
    });
    row("and listed", vec![set("b", "1"), set("a", "1"), push("q", "1")], Request::ListKeys, {
        Reply::Keys(keys(&["a", "b"]))
    });
}

#[test]
fn counters_are_as_the_rows_say() {
    row("a counter begins at 0", vec![], add("n", 0), Reply::Number(0));
    row("and is kept as text", vec![add("n", -3)], get(&["n"], false), one("-3"));
    row("text is added to", vec![set("n", "41")], add("n", 1), Reply::Number(42));
    row("as far as it is a number", vec![set("n", " 12abc")], add("n", 1), Reply::Number(13));
    row("to the last number", vec![set("n", "9223372036854775806")], add("n", 1), Reply::Number(i64::MAX));

    let mut desk = Desk::new();
    for text in ["abc", "", "99999999999999999999"] {
        desk.reply(set("n", text));
        let refusal = Refusal::NotANumber { key: "n".into(), start: text.into() };
        assert_eq!(desk.answer(add("n", 1)), Err(refusal.clone()));
        assert_eq!(desk.answer(barrier("n", 1)), Err(refusal));
        assert_eq!(desk.reply(get(&["n"], false)), one(text), "a refusal changes nothing");
    }
    desk.reply(set("n", "-9223372036854775808"));
    let overflow = Refusal::Overflow { key: "n".into(), value: i64::MIN, delta: -1 };
    assert_eq!(desk.answer(add("n", -1)), Err(overflow));
    assert_eq!(desk.reply(get(&["n"], false)), one("-9223372036854775808"));
}

#[test]
fn compare_set_is_as_the_rows_say() {
    let there = || Reply::Values(vec![None]);
    row("absent, nothing expected: stored", vec![], compare_set("a", "", "1"), one("1"));
    row("it is there then", vec![compare_set("a", "", "1")], get(&["a"], false), one("1"));
    row("absent, something expected: told what was expected", vec![], compare_set("a", "0", "1"), one("0"));
    row("and nothing stored", vec![compare_set("a", "0", "1")], get(&["a"], false), there());
    row("as expected: replaced", vec![set("a", "0")], compare_set("a", "0", "1"), one("1"));
    row("it is there then", vec![set("a", "0"), compare_set("a", "0", "1")], get(&["a"], false), one("1"));
    row("not as expected: told what is there", vec![set("a", "0")], compare_set("a", "x", "1"), one("0"));
    row("and left", vec![set("a", "0"), compare_set("a", "x", "1")], get(&["a"], false), one("0"));
    row("a value is not nothing", vec![set("a", "0")], compare_set("a", "", "1"), one("0"));
    row("an empty value is an empty value", vec![set("a", "")], compare_set("a", "", "1"), one("1"));
    row("a queue is no value", vec![push("a", "0")], compare_set("a", "", "1"), one("1"));
}

#[test]
fn queues_are_as_the_rows_say() {
    let absent = || Reply::Values(vec![None]);
    row("an empty queue gives nothing", vec![], pop("q", false), absent());
    row("first in, first out", vec![push("q", "1"), push("q", "2")], pop("q", true), one("1"));
    row("each once", vec![push("q", "1"), push("q", "2"), pop("q", true)], pop("q", true), one("2"));
    row("to the last", vec![push("q", "1"), pop("q", true)], pop("q", false), absent());
    row("they have a length", vec![push("q", "1"), push("q", "1")], queue_len("q"), Reply::Number(2));
    row("which is 0 where there is none", vec![set("q", "1")], queue_len("q"), Reply::Number(0));
    row("their names are apart", vec![push("a", "1"), set("a", "2")], get(&["a"], false), one("2"));
    row("their names are apart", vec![push("a", "1"), set("a", "2")], pop("a", false), one("1"));
    row("delete empties them", vec![push("q", "1"), push("q", "2"), delete("q")], queue_len("q"), Reply::Number(0));
    row("and tells so", vec![push("q", "1")], delete("q"), Reply::Flag(true));
    row("delete takes the value too", vec![push("a", "1"), set("a", "2"), delete("a")], check(&["a"]), {
        Reply::Flag(false)
    });
}

#[test]
fn barriers_are_as_the_rows_say() {
    row("alone one does not wait", vec![], barrier("b", 1), Reply::Done);
    row("arrivals are counted as text", vec![barrier("b", 1)], get(&["b"], false), one("1"));
    row("it never resets", vec![barrier("b", 1), barrier("b", 1), barrier("b", 3)], get(&["b"], false), one("3"));
    row("numbers that are there count", vec![set("b", "2")], barrier("b", 3), Reply::Done);
    for size in [0, -1, i64::MIN] {
        let mut desk = Desk::new();
        assert!(
            matches!(desk.answer(barrier("b", size)), Err(Refusal::Argument { argument, .. }) if argument == "size")
        );
        assert!(desk.table.is_empty());
    }
    let mut desk = Desk::new();
    let waiting = [desk.waits(1, barrier("b", 3)), desk.waits(2, barrier("b", 3))];
    assert_eq!(desk.woken(), []);
    assert_eq!(desk.reply(barrier("b", 3)), Reply::Done);
    assert_eq!(desk.woken(), waiting.map(|ticket| (ticket, Reply::Done)));
    assert_eq!(desk.reply(barrier("b", 3)), Reply::Done, "later callers pass");
}
