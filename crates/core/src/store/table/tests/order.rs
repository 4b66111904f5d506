//! Who is woken, by what, and in which order.

use super::*;

#[test]
fn whatever_stores_a_value_wakes_all_who_wait_for_it() {
    let stores = [set("a", "x"), append("a", "x"), compare_set("a", "", "x"), add("a", 1), barrier("a", 1)];
    for store in stores {
        let mut desk = Desk::new();
        let (first, second) = (desk.waits(1, wait(&["a"])), desk.waits(2, get(&["a"], true)));
        let third = desk.waits(3, wait(&["a", "a"]));
        assert!(desk.woken().is_empty());
        desk.reply(store.clone());
        let now = desk.reply(get(&["a"], false));
        assert_eq!(desk.woken(), [(first, Reply::Done), (second, now), (third, Reply::Done)], "{store:?}");
        assert_eq!(desk.table.waiting(), 0);
    }
}

#[test]
fn what_stores_nothing_wakes_nobody() {
    let mut desk = Desk::new();
    desk.waits(1, wait(&["a"]));
    desk.waits(1, get(&["a"], true));
    for request in [compare_set("a", "x", "y"), delete("a"), set("b", ""), pop("a", false), queue_len("a")] {
        desk.reply(request);
    }
    assert!(desk.woken().is_empty());
    assert_eq!(desk.table.waiting(), 2);
}

#[test]
fn a_key_counts_for_a_wait_once_it_was_there() {
    let mut desk = Desk::new();
    let ticket = desk.waits(1, wait(&["a", "b", "c"]));
    for request in [set("a", ""), delete("a"), push("b", ""), pop("b", false)] {
        desk.reply(request);
    }
    assert_eq!(desk.table.missing(ticket), keys(&["c"]));
    desk.reply(set("c", ""));
    assert_eq!(desk.woken(), [(ticket, Reply::Done)]);
}

#[test]
fn values_are_those_of_one_moment() {
    let mut desk = Desk::new();
    let ticket = desk.waits(1, get(&["b", "a", "b"], true));
    desk.reply(set("a", "old"));
    desk.reply(delete("a"));
    desk.reply(set("b", "old"));
    desk.reply(push("a", "a queue is no value"));
    assert_eq!(desk.table.missing(ticket), keys(&["a"]));
    assert!(desk.woken().is_empty());
    desk.reply(set("b", "new"));
    desk.reply(set("a", "new"));
    desk.reply(set("a", "later"));
    let values = Reply::Values(vec![Some(value("new")); 3]);
    assert_eq!(desk.woken(), [(ticket, values)]);
}

#[test]
fn pairs_set_together_come_together() {
    let mut desk = Desk::new();
    let both = desk.waits(1, get(&["b", "a"], true));
    let pairs = vec![("a".into(), value("1")), ("b".into(), value("2"))];
    desk.reply(Request::Set { pairs });
    assert_eq!(desk.woken(), [(both, Reply::Values(vec![Some(value("2")), Some(value("1"))]))]);
}

#[test]
fn who_waits_longest_takes_first() {
    let mut desk = Desk::new();
    let tickets: Vec<Ticket> = (1..=3).map(|client| desk.waits(client, pop("q", true))).collect();
    for text in ["1", "2", "3", "4"] {
        desk.reply(push("q", text));
    }
    assert_eq!(desk.woken(), [(tickets[0], one("1")), (tickets[1], one("2")), (tickets[2], one("3"))]);
    assert_eq!(desk.reply(pop("q", false)), one("4"));
}

#[test]
fn a_push_is_taken_or_wakes_one() {
    let mut desk = Desk::new();
    let waiting = [desk.waits(1, wait(&["q"])), desk.waits(2, wait(&["q"]))];
    let popper = desk.waits(3, pop("q", true));
    desk.reply(push("q", "taken"));
    assert_eq!(desk.woken(), [(popper, one("taken"))]);
    desk.reply(push("q", "1"));
    assert_eq!(desk.woken(), [(waiting[0], Reply::Done)]);
    desk.reply(push("q", "2"));
    assert_eq!(desk.woken(), [(waiting[1], Reply::Done)]);
    assert_eq!(desk.reply(queue_len("q")), Reply::Number(2));
}

#[test]
fn who_was_cancelled_takes_nothing() {
    let mut desk = Desk::new();
    let (gone, there) = (desk.waits(1, pop("q", true)), desk.waits(2, pop("q", true)));
    assert!(desk.table.cancel(gone));
    assert!(!desk.table.cancel(gone));
    desk.reply(push("q", "1"));
    assert!(!desk.table.cancel(there), "the answer is on its way");
    assert_eq!(desk.woken(), [(there, one("1"))]);
    assert!(!desk.table.cancel(there) && !desk.table.cancel(Ticket(99)));
    assert_eq!(desk.table.byte_len(), 0);
}

#[test]
fn a_client_that_left_takes_nothing() {
    let mut desk = Desk::new();
    for request in [pop("q", true), wait(&["q"]), get(&["a"], true), barrier("b", 2)] {
        desk.waits(7, request);
    }
    let there = desk.waits(8, pop("q", true));
    desk.table.leave(ClientId(7));
    assert_eq!(desk.table.waiting(), 1);
    desk.reply(push("q", "1"));
    desk.reply(set("a", ""));
    assert_eq!(desk.woken(), [(there, one("1"))]);
    assert_eq!(desk.reply(barrier("b", 2)), Reply::Done, "its arrival was counted");
}

#[test]
fn what_a_client_took_and_never_fetched_goes_back_in_order() {
    let mut desk = Desk::new();
    for _ in 0..3 {
        desk.waits(7, pop("q", true));
    }
    for text in ["1", "2", "3", "4"] {
        desk.reply(push("q", text));
    }
    desk.table.leave(ClientId(7));
    assert!(desk.woken().is_empty());
    for text in ["1", "2", "3", "4"] {
        assert_eq!(desk.reply(pop("q", false)), one(text));
    }
    desk.waits(7, pop("q", true));
    desk.waits(7, pop("q", true));
    desk.reply(push("q", "1"));
    desk.reply(push("q", "2"));
    let (popper, waiter) = (desk.waits(8, pop("q", true)), desk.waits(9, wait(&["q"])));
    desk.table.leave(ClientId(7));
    assert_eq!(desk.woken(), [(popper, one("1")), (waiter, Reply::Done)]);
    assert_eq!(desk.reply(pop("q", false)), one("2"));
    assert_eq!(desk.table.byte_len(), 0);
}

#[test]
fn an_answer_is_fetched_once_in_turn_or_by_its_ticket() {
    let mut desk = Desk::new();
    let tickets = [7, 8, 9].map(|client| desk.waits(client, get(&["a"], true)));
    assert!(!desk.table.has_woken() && desk.table.answer_to(tickets[1]).is_none());
    desk.reply(set("a", "1"));
    assert_eq!(desk.table.answer_to(tickets[1]), Some(Ok(one("1"))));
    assert!(desk.table.has_woken() && desk.table.answer_to(tickets[1]).is_none());
    assert_eq!(desk.woken(), [(tickets[0], one("1")), (tickets[2], one("1"))]);
    assert!(!desk.table.has_woken());
}

#[test]
fn twenty_thousand_wait_and_go() {
    // At a cost of the square this would take minutes.
    let mut desk = Desk::new();
    let tickets: Vec<Ticket> = (0..20_000).map(|client| desk.waits(client, get(&["a", "b"], true))).collect();
    desk.reply(set("a", ""));
    desk.reply(set("b", ""));
    let woken: Vec<Ticket> = desk.woken().into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(woken, tickets);
    let tickets: Vec<Ticket> = (0..20_000).map(|client| desk.waits(client, wait(&["c"]))).collect();
    assert!(tickets.into_iter().all(|ticket| desk.table.cancel(ticket)));
    for client in 0..20_000 {
        desk.waits(client, pop("q", true));
    }
    (0..20_000).for_each(|client| desk.table.leave(ClientId(client)));
    assert_eq!(desk.table.waiting(), 0);
}
