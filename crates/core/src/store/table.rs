//! What requests mean: one store's contents, decided a request at a time.

use super::{Limits, Refusal, Reply, Request};

/// Who asks: a connection, a handle, a thread. Numbers are the home's to give and never come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// A request that waits, by which it can be cancelled and its answer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The answer.
    Answered(Result<Reply, Refusal>),
    /// It waits; [`Table::woken`] will tell the answer under this ticket.
    Waiting(Ticket),
}

/// The contents of one store and those who wait for more.
#[derive(Debug, Default)]
pub struct Table {
    _limits: Limits,
}

impl Table {
    /// An empty store.
    pub fn new(limits: Limits) -> Table {
        Table { _limits: limits }
    }

    /// Carries out `request`, or keeps it until it can be.
    pub fn ask(&mut self, _client: ClientId, _request: Request) -> Asked {
        Asked::Answered(Err(Refusal::Closed))
    }

    /// Forgets a request that waits; whether it was still waiting.
    pub fn cancel(&mut self, _ticket: Ticket) -> bool {
        false
    }

    /// Forgets a client and what it waits for. What it stored stays.
    pub fn leave(&mut self, _client: ClientId) {}

    /// The next answer to a request that waited, in the order in which they were satisfied.
    pub fn woken(&mut self) -> Option<(ClientId, Ticket, Result<Reply, Refusal>)> {
        None
    }
}
