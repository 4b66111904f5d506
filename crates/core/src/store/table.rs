//! What requests mean: one store's contents, decided a request at a time.
//!
//! It neither waits nor tells: a request that cannot be answered yet gets a [`Ticket`], and whoever holds the table fetches
//! the answers with [`Table::woken`] after each call.

mod accounts;
mod contents;
mod measure;
mod number;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeMap;

use super::{Key, Limits, Refusal, Reply, Request, Value};
use accounts::Change;
use contents::Contents;
use waiting::{Kind, Told, Waiting, wait_byte_len};

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
///
/// The same requests in the same order give the same answers and the same contents, wherever they are asked. A request that
/// is refused changes nothing.
#[derive(Debug)]
pub struct Table {
    limits: Limits,
    contents: Contents,
    waiting: Waiting,
}

impl Table {
    /// An empty store.
    pub fn new(limits: Limits) -> Table {
        Table { limits, contents: Contents::new(limits), waiting: Waiting::default() }
    }

    /// How many values there are; queues do not count.
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What all entries and all requests that wait count, in bytes: what [`Limits::total`] limits.
    pub fn byte_len(&self) -> usize {
        self.contents.accounts.total()
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Carries out `request`, or keeps it until it can be.
    pub fn ask(&mut self, client: ClientId, request: Request) -> Asked {
        let limits = self.contents.accounts.limits(client);
        let asked = measure::check(&request, &limits).and_then(|()| self.carry_out(client, request));
        asked.unwrap_or_else(|refusal| Asked::Answered(Err(refusal)))
    }

    /// Frees `client` until it leaves from the limits of one client and of one message: it may hold what the whole store may.
    pub fn exempt(&mut self, client: ClientId) {
        self.contents.accounts.exempt(client);
    }

    /// Forgets a request that waits; whether it was still waiting.
    ///
    /// What it has already changed stays: an arrival at a barrier was counted. After `false`, [`Table::woken`] has told the
    /// answer or will.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        self.end(ticket).is_some()
    }

    /// The keys that a request still waits for, to say so when it is given up.
    pub fn missing(&self, ticket: Ticket) -> Vec<Key> {
        self.waiting.missing(ticket, |key| self.contents.value(key).is_some())
    }

    /// Forgets a client and what it waits for. What it stored stays, and counts for the whole store alone.
    ///
    /// A value that it took from a queue by waiting, and whose answer nobody has fetched, goes back to the head.
    pub fn leave(&mut self, client: ClientId) {
        let tickets = self.waiting.of_client(client);
        let told: Vec<Told> = tickets.iter().filter_map(|&ticket| self.waiting.untell(ticket)).collect();
        for ticket in tickets {
            self.end(ticket);
        }
        self.put_back(client, told);
        self.contents.accounts.close(client);
    }

    /// The next answer to a request that waited, in the order in which they were satisfied.
    pub fn woken(&mut self) -> Option<(ClientId, Ticket, Result<Reply, Refusal>)> {
        self.waiting.fetch().map(|(ticket, told)| (told.waiter.client, ticket, told.answer))
    }

    /// The answer to a request that waited, if there is one that nobody has fetched.
    pub fn answer_to(&mut self, ticket: Ticket) -> Option<Result<Reply, Refusal>> {
        self.waiting.untell(ticket).map(|told| told.answer)
    }

    /// Whether there are answers that nobody has fetched.
    pub fn has_woken(&self) -> bool {
        self.waiting.has_told()
    }

    fn carry_out(&mut self, client: ClientId, request: Request) -> Result<Asked, Refusal> {
        let reply = match request {
            Request::Set { pairs } => self.set(client, pairs)?,
            Request::Get { keys, wait: false } => self.read(client, &keys)?,
            Request::Get { keys, wait: true } => return self.read_all(client, keys),
            Request::Wait { keys } => return self.wait(client, keys),
            Request::Check { keys } => Reply::Flag(keys.iter().all(|key| self.contents.is_there(key))),
            Request::Add { key, delta } => self.add(client, key, delta)?,
            Request::CompareSet { key, expected, desired } => self.compare_set(client, key, expected, desired)?,
            Request::Delete { key } => self.delete(&key),
            Request::Append { key, value } => self.append(client, key, value)?,
            Request::NumKeys => number(self.contents.len()),
            Request::ListKeys => self.list(client)?,
            Request::Push { key, value } => self.push(client, key, value)?,
            Request::Pop { key, wait } => return self.pop(client, key, wait),
            Request::QueueLen { key } => number(self.contents.queue_len(&key)),
            Request::Barrier { key, size } => return self.barrier(client, key, size),
            Request::Ping => Reply::Done,
        };
        Ok(Asked::Answered(Ok(reply)))
    }

    fn set(&mut self, client: ClientId, mut pairs: Vec<(Key, Value)>) -> Result<Reply, Refusal> {
        if pairs.len() > 1 {
            // Of a key that comes twice the last value counts.
            pairs = pairs.into_iter().collect::<BTreeMap<Key, Value>>().into_iter().collect();
        }
        let fresh = self.contents.put(client, pairs)?;
        self.values_came(&fresh);
        Ok(Reply::Done)
    }

    fn write(&mut self, client: ClientId, key: Key, value: Value) -> Result<(), Refusal> {
        measure::check_value(&key, value.len(), &self.limits)?;
        self.set(client, vec![(key, value)]).map(drop)
    }

    fn read(&self, client: ClientId, keys: &[Key]) -> Result<Reply, Refusal> {
        let limits = self.contents.accounts.limits(client);
        let values: Vec<Option<&Value>> = keys.iter().map(|key| self.contents.value(key)).collect();
        measure::check_message(values.iter().map(|value| value.map_or(0, |value| value.len())), &limits)?;
        Ok(Reply::Values(values.into_iter().map(Option::<&Value>::cloned).collect()))
    }

    fn read_all(&mut self, client: ClientId, keys: Vec<Key>) -> Result<Asked, Refusal> {
        if keys.iter().all(|key| self.contents.value(key).is_some()) {
            return Ok(Asked::Answered(Ok(self.read(client, &keys)?)));
        }
        self.enter(client, Kind::Values, keys).map(Asked::Waiting)
    }

    fn wait(&mut self, client: ClientId, keys: Vec<Key>) -> Result<Asked, Refusal> {
        if keys.iter().all(|key| self.contents.is_there(key)) {
            return Ok(Asked::Answered(Ok(Reply::Done)));
        }
        self.enter(client, Kind::Seen, keys).map(Asked::Waiting)
    }

    fn add(&mut self, client: ClientId, key: Key, delta: i64) -> Result<Reply, Refusal> {
        let sum = self.sum(&key, delta)?;
        self.write(client, key, sum.to_string().into_bytes().into())?;
        Ok(Reply::Number(sum))
    }

    fn sum(&self, key: &Key, delta: i64) -> Result<i64, Refusal> {
        let value = match self.contents.value(key) {
            None => 0,
            Some(value) => number::leading_number(value)
                .ok_or_else(|| Refusal::NotANumber { key: key.clone(), start: measure::start(value) })?,
        };
        value.checked_add(delta).ok_or_else(|| Refusal::Overflow { key: key.clone(), value, delta })
    }

    fn compare_set(&mut self, client: ClientId, key: Key, expected: Value, desired: Value) -> Result<Reply, Refusal> {
        let now = match self.contents.value(&key) {
            Some(there) if *there != expected => there.clone(),
            None if !expected.is_empty() => expected,
            _ => {
                self.write(client, key, desired.clone())?;
                desired
            }
        };
        self.taken(now)
    }

    fn delete(&mut self, key: &Key) -> Reply {
        let removed = self.contents.remove(key);
        if removed.value {
            self.waiting.value_went(key);
        }
        Reply::Flag(removed.value || removed.queue)
    }

    fn append(&mut self, client: ClientId, key: Key, bytes: Value) -> Result<Reply, Refusal> {
        if self.contents.append(client, key.clone(), bytes)? {
            self.values_came(&[key]);
        }
        Ok(Reply::Done)
    }

    fn list(&self, client: ClientId) -> Result<Reply, Refusal> {
        let limits = self.contents.accounts.limits(client);
        measure::check_message(self.contents.keys().map(|key| key.as_bytes().len()), &limits)?;
        Ok(Reply::Keys(self.contents.keys().cloned().collect()))
    }

    fn push(&mut self, client: ClientId, key: Key, value: Value) -> Result<Reply, Refusal> {
        if let Some(value) = self.hand_over(&key, value) {
            self.contents.push(client, key.clone(), value)?;
            self.queue_came(&key);
        }
        Ok(Reply::Done)
    }

    fn pop(&mut self, client: ClientId, key: Key, wait: bool) -> Result<Asked, Refusal> {
        let Some(head) = self.contents.head(&key).cloned() else {
            return if wait {
                self.enter(client, Kind::Pop, vec![key]).map(Asked::Waiting)
            } else {
                Ok(Asked::Answered(Ok(Reply::Values(vec![None]))))
            };
        };
        let reply = self.taken(head)?;
        self.contents.pop(&key);
        Ok(Asked::Answered(Ok(reply)))
    }

    fn barrier(&mut self, client: ClientId, key: Key, size: i64) -> Result<Asked, Refusal> {
        let count = self.sum(&key, 1)?;
        let text = Value::from(count.to_string().into_bytes());
        if count >= size {
            self.write(client, key.clone(), text)?;
            let tickets: Vec<Ticket> = self.waiting.at(&key, Kind::Barrier).collect();
            tickets.into_iter().for_each(|ticket| self.answer(ticket, Ok(Reply::Done)));
            return Ok(Asked::Answered(Ok(Reply::Done)));
        }
        let ticket = self.enter(client, Kind::Barrier, vec![key.clone()])?;
        // Nothing may be counted where there is no room to wait, nor the other way round.
        match self.write(client, key, text) {
            Ok(()) => Ok(Asked::Waiting(ticket)),
            Err(refusal) => {
                self.end(ticket);
                Err(refusal)
            }
        }
    }

    /// The answer that tells one value.
    fn taken(&self, value: Value) -> Result<Reply, Refusal> {
        measure::check_message([value.len()].into_iter(), &self.limits)?;
        Ok(Reply::Values(vec![Some(value)]))
    }

    fn enter(&mut self, client: ClientId, kind: Kind, keys: Vec<Key>) -> Result<Ticket, Refusal> {
        let taken = wait_byte_len(&keys);
        self.contents.accounts.check(client, Change { taken, ..Change::default() })?;
        self.contents.accounts.charge(client, taken);
        let contents = &self.contents;
        Ok(self.waiting.enter(client, kind, keys, |key| match kind {
            Kind::Seen => contents.is_there(key),
            Kind::Values => contents.value(key).is_some(),
            Kind::Pop | Kind::Barrier => false,
        }))
    }

    fn end(&mut self, ticket: Ticket) -> Option<waiting::Waiter> {
        let waiter = self.waiting.end(ticket)?;
        self.contents.accounts.discharge(waiter.client, wait_byte_len(&waiter.keys));
        Some(waiter)
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<Reply, Refusal>) {
        if let Some(waiter) = self.end(ticket) {
            self.waiting.tell(ticket, waiter, answer);
        }
    }

    /// Values came under keys where there were none.
    fn values_came(&mut self, keys: &[Key]) {
        let mut tickets: Vec<Ticket> = keys.iter().flat_map(|key| self.waiting.value_came(key)).collect();
        tickets.sort_unstable();
        for ticket in tickets {
            let Some(waiter) = self.end(ticket) else { continue };
            let answer =
                if waiter.kind == Kind::Values { self.read(waiter.client, &waiter.keys) } else { Ok(Reply::Done) };
            self.waiting.tell(ticket, waiter, answer);
        }
    }

    /// A value came into a queue, where nobody waited to take it.
    fn queue_came(&mut self, key: &Key) {
        if let Some(ticket) = self.waiting.queue_came(key) {
            self.answer(ticket, Ok(Reply::Done));
        }
    }

    /// Gives `value` to whoever has waited longest for one; gives it back where nobody does.
    fn hand_over(&mut self, key: &Key, value: Value) -> Option<Value> {
        let Some(ticket) = self.waiting.first(key, Kind::Pop) else { return Some(value) };
        self.answer(ticket, Ok(Reply::Values(vec![Some(value)])));
        None
    }

    /// Returns to their queues the values in answers that reached nobody, in the order in which they were taken.
    fn put_back(&mut self, client: ClientId, told: Vec<Told>) {
        let mut left = Vec::new();
        for Told { mut waiter, answer } in told {
            let (Kind::Pop, Ok(Reply::Values(values))) = (waiter.kind, answer) else { continue };
            for (key, value) in waiter.keys.drain(..).zip(values.into_iter().flatten()) {
                left.extend(self.hand_over(&key, value).map(|value| (key, value)));
            }
        }
        for (key, value) in left.into_iter().rev() {
            self.contents.unpop(client, key.clone(), value);
            self.queue_came(&key);
        }
    }
}

impl Default for Table {
    fn default() -> Table {
        Table::new(Limits::default())
    }
}

fn number(count: usize) -> Reply {
    Reply::Number(i64::try_from(count).unwrap_or(i64::MAX))
}
