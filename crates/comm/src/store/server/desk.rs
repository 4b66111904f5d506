//! Where requests are answered: the table, and the answers that others have been waiting for.

use std::collections::VecDeque;

use phalanx_core::store::{Asked, ClientId, Limits, Refusal, Reply, Request, Table, Ticket};

/// The table with its outgoing mail.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) table: Table,
    pub(super) limits: Limits,
    /// Requests carried out so far.
    pub(super) requests: u64,
    mail: VecDeque<Letter>,
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
        Desk { table: Table::new(limits), limits, requests: 0, mail: VecDeque::new() }
    }

    /// Asks the table. Whoever was woken by it has mail; whether the client itself is among them is answered at once, so
    /// that it sees its answers in their order.
    pub(super) fn ask(&mut self, client: ClientId, request: Request) -> (Asked, Option<Letter>) {
        self.requests += 1;
        let asked = self.table.ask(client, request);
        let mut own = None;
        while let Some((to, ticket, answer)) = self.table.woken() {
            let letter = Letter { client: to, ticket, answer };
            if to == client && own.is_none() { own = Some(letter) } else { self.mail.push_back(letter) }
        }
        (asked, own)
    }

    /// The next letter that is to be delivered.
    pub(super) fn next_letter(&mut self) -> Option<Letter> {
        self.mail.pop_front()
    }

    /// The letter that answers this client's request, if it was not delivered yet.
    pub(super) fn letter_for(&mut self, client: ClientId, ticket: Ticket) -> Option<Letter> {
        let at = self.mail.iter().position(|letter| letter.client == client && letter.ticket == ticket)?;
        self.mail.remove(at)
    }

    pub(super) fn has_mail(&self) -> bool {
        !self.mail.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_answers_come_at_once_and_those_of_others_by_mail() {
        let mut desk = Desk::new(Limits::default());
        let wait = || Request::Wait { keys: vec!["k".into()] };
        let set = Request::Set { pairs: vec![("k".into(), b"v".to_vec().into())] };
        let (Asked::Waiting(first), None) = desk.ask(ClientId(1), wait()) else { panic!("the key is there") };
        let (Asked::Waiting(second), None) = desk.ask(ClientId(2), wait()) else { panic!("the key is there") };
        assert!(!desk.has_mail());
        let (asked, own) = desk.ask(ClientId(2), set);
        assert_eq!(asked, Asked::Answered(Ok(Reply::Done)));
        assert_eq!(own.map(|letter| (letter.ticket, letter.answer)), Some((second, Ok(Reply::Done))));
        assert!(desk.has_mail());
        assert!(desk.letter_for(ClientId(1), second).is_none() && desk.letter_for(ClientId(2), first).is_none());
        let letter = desk.letter_for(ClientId(1), first);
        assert_eq!(letter.map(|letter| (letter.client, letter.ticket)), Some((ClientId(1), first)));
        assert!(desk.next_letter().is_none());
        assert!(!desk.has_mail());
        assert_eq!(desk.requests, 3);
    }
}
