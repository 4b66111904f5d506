//! Where requests are answered: the table, which also keeps the answers to those who waited until they are delivered.

use phalanx_core::store::{Asked, ClientId, Limits, Refusal, Reply, Request, Table, Ticket};

/// The table with its outgoing mail.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) table: Table,
    pub(super) limits: Limits,
    /// Requests carried out so far.
    pub(super) requests: u64,
}

/// The answer to a request that waited.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) client: ClientId,
    pub(super) ticket: Ticket,
    pub(super) answer: Result<Reply, Refusal>,
}

impl Desk {
    pub(super) fn new(limits: Limits) -> Desk {
        Desk { table: Table::new(limits), limits, requests: 0 }
    }

    /// Asks the table. Whoever was woken by it has mail.
    pub(super) fn ask(&mut self, client: ClientId, request: Request) -> Asked {
        self.requests += 1;
        self.table.ask(client, request)
    }

    /// The next letter that is to be delivered. Until then it is the table's: of a client that leaves before, nothing is lost.
    pub(super) fn next_letter(&mut self) -> Option<Letter> {
        self.table.woken().map(|(client, ticket, answer)| Letter { client, ticket, answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_for_a_client_that_leaves_is_the_next_ones() {
        let mut desk = Desk::new(Limits::default());
        let pop = || Request::Pop { key: "q".into(), wait: true };
        let Asked::Waiting(_) = desk.ask(ClientId(1), pop()) else { panic!("the queue is empty") };
        let Asked::Waiting(second) = desk.ask(ClientId(2), pop()) else { panic!("the queue is empty") };
        let push = Request::Push { key: "q".into(), value: b"v".to_vec().into() };
        assert_eq!(desk.ask(ClientId(3), push), Asked::Answered(Ok(Reply::Done)));
        desk.table.leave(ClientId(1));
        let letter = desk.next_letter().map(|letter| (letter.client, letter.ticket, letter.answer));
        assert_eq!(letter, Some((ClientId(2), second, Ok(Reply::Values(vec![Some(b"v".to_vec().into())])))));
        assert!(desk.next_letter().is_none() && !desk.table.has_woken());
        assert_eq!(desk.requests, 3);
    }
}
