//! Where requests are answered: the table, and the answers that others have been waiting for.

use phalanx_core::store::{Asked, ClientId, Limits, Refusal, Reply, Request, Table, Ticket};

/// The table with its outgoing mail.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) table: Table,
    pub(super) limits: Limits,
    /// Requests carried out so far.
    pub(super) requests: u64,
    mail: Vec<Letter>,
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
        Desk { table: Table::new(limits), limits, requests: 0, mail: Vec::new() }
    }

    /// Asks the table. Whoever was woken by it has mail; whether the client itself is among them is answered at once, so
    /// that it sees its answers in their order.
    pub(super) fn ask(&mut self, client: ClientId, request: Request) -> (Asked, Option<Letter>) {
        self.requests += 1;
        let asked = self.table.ask(client, request);
        let mut own = None;
        while let Some((to, ticket, answer)) = self.table.woken() {
            let letter = Letter { client: to, ticket, answer };
            if to == client && own.is_none() { own = Some(letter) } else { self.mail.push(letter) }
        }
        (asked, own)
    }

    /// What is to be delivered.
    pub(super) fn take_mail(&mut self) -> Vec<Letter> {
        std::mem::take(&mut self.mail)
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
        assert!(desk.take_mail().is_empty());
        let (asked, own) = desk.ask(ClientId(2), set);
        assert_eq!(asked, Asked::Answered(Ok(Reply::Done)));
        assert_eq!(own.map(|letter| (letter.ticket, letter.answer)), Some((second, Ok(Reply::Done))));
        let mail = desk.take_mail();
        assert_eq!(
            mail.iter().map(|letter| (letter.client, letter.ticket)).collect::<Vec<_>>(),
            [(ClientId(1), first)]
        );
        assert!(desk.take_mail().is_empty());
        assert_eq!(desk.requests, 3);
    }
}
