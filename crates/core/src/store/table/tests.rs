//! What requests mean, row by row; who is woken, and in which order; limits; and a model that is written differently.

mod limits;
mod meaning;
mod model;
mod order;

use super::*;

/// A table with one way to ask, and everything that was woken by it.
struct Desk {
    table: Table,
}

impl Desk {
    fn new() -> Desk {
        Desk::with(Limits::default())
    }

    fn with(limits: Limits) -> Desk {
        Desk { table: Table::new(limits) }
    }

    fn ask(&mut self, request: Request) -> Asked {
        self.table.ask(ClientId(1), request)
    }

    /// The answer to a request that does not wait.
    fn answer(&mut self, request: Request) -> Result<Reply, Refusal> {
        match self.ask(request) {
            Asked::Answered(answer) => answer,
            Asked::Waiting(ticket) => panic!("{ticket:?} waits"),
        }
    }

    fn reply(&mut self, request: Request) -> Reply {
        self.answer(request).unwrap()
    }

    /// The ticket of a request that waits.
    fn waits(&mut self, client: u64, request: Request) -> Ticket {
        match self.table.ask(ClientId(client), request) {
            Asked::Waiting(ticket) => ticket,
            Asked::Answered(answer) => panic!("answered {answer:?}"),
        }
    }

    fn woken(&mut self) -> Vec<(Ticket, Reply)> {
        std::iter::from_fn(|| self.table.woken()).map(|(_, ticket, answer)| (ticket, answer.unwrap())).collect()
    }
}

fn keys(names: &[&str]) -> Vec<Key> {
    names.iter().map(|&name| name.into()).collect()
}

fn value(text: &str) -> Value {
    text.as_bytes().into()
}

fn one(text: &str) -> Reply {
    Reply::Values(vec![Some(value(text))])
}

fn set(key: &str, text: &str) -> Request {
    Request::Set { pairs: vec![(key.into(), value(text))] }
}

fn get(names: &[&str], wait: bool) -> Request {
    Request::Get { keys: keys(names), wait }
}

fn wait(names: &[&str]) -> Request {
    Request::Wait { keys: keys(names) }
}

fn check(names: &[&str]) -> Request {
    Request::Check { keys: keys(names) }
}

fn add(key: &str, delta: i64) -> Request {
    Request::Add { key: key.into(), delta }
}

fn compare_set(key: &str, expected: &str, desired: &str) -> Request {
    Request::CompareSet { key: key.into(), expected: value(expected), desired: value(desired) }
}

fn delete(key: &str) -> Request {
    Request::Delete { key: key.into() }
}

fn append(key: &str, text: &str) -> Request {
    Request::Append { key: key.into(), value: value(text) }
}

fn push(key: &str, text: &str) -> Request {
    Request::Push { key: key.into(), value: value(text) }
}

fn pop(key: &str, wait: bool) -> Request {
    Request::Pop { key: key.into(), wait }
}

fn queue_len(key: &str) -> Request {
    Request::QueueLen { key: key.into() }
}

fn barrier(key: &str, size: i64) -> Request {
    Request::Barrier { key: key.into(), size }
}
