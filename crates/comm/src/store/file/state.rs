//! What a file's store is at one moment: the log as far as it was read, its copy, and one step of each operation. A step
//! neither sleeps nor waits for a lock.

use phalanx_core::store::{ClientId, Key, Refusal, Reply, Request};

use super::header::Header;
use super::log::{Fault, Locked, Log, Next};
use super::record;
use super::replica::{Replica, Watch};

#[derive(Debug)]
pub(super) struct State {
    log: Log,
    replica: Replica,
    header: Header,
    /// This store's number among its file's clients: where its first record stands.
    client: Option<ClientId>,
    /// How far changes were shown to those who watch.
    shown: u64,
}

/// What the table says.
pub(super) type Answer = Result<Reply, Refusal>;

/// An answer, or that there is none yet.
pub(super) type Step = Result<Option<Answer>, Fault>;

/// What came of beginning to wait.
#[derive(Debug)]
pub(super) enum Begun {
    Answer(Answer),
    Watch(Watch),
    /// Somebody else has the lock.
    Nothing,
}

impl State {
    /// The state of a file that was just opened; `header` is what it gets if it has none.
    pub(super) fn new(log: Log, header: Header) -> Result<State, Fault> {
        let mut state = State { log, replica: Replica::new(header.limits), header, client: None, shown: 0 };
        state.catch_up(None)?;
        Ok(state)
    }

    pub(super) fn read(&mut self, request: Request) -> Step {
        self.catch_up(None)?;
        Ok(Some(self.replica.look(request)))
    }

    /// All values at one moment; otherwise tells which keys have none.
    pub(super) fn values(&mut self, keys: &[Key], missing: &mut Vec<Key>) -> Step {
        self.catch_up(None)?;
        let values = match self.replica.look(Request::Get { keys: keys.to_vec(), wait: false }) {
            Ok(Reply::Values(values)) if values.iter().any(Option::is_none) => values,
            answer => return Ok(Some(answer)),
        };
        *missing = keys.iter().zip(values).filter(|(_, value)| value.is_none()).map(|(key, _)| key.clone()).collect();
        Ok(None)
    }

    /// The head of a queue, if there is one. Looks before it takes the lock, which is for those who have something to change.
    pub(super) fn pop(&mut self, key: &Key) -> Step {
        self.catch_up(None)?;
        match self.replica.look(Request::QueueLen { key: key.clone() }) {
            Ok(Reply::Number(0)) => return Ok(None),
            Ok(_) => {}
            Err(refusal) => return Ok(Some(Err(refusal))),
        }
        let taken = self.change(&Request::Pop { key: key.clone(), wait: false })?;
        Ok(taken.filter(|taken| *taken != Ok(Reply::Values(vec![None]))))
    }

    pub(super) fn begin_wait(&mut self, keys: &[Key]) -> Result<Begun, Fault> {
        self.catch_up(None)?;
        Ok(match self.replica.watch_keys(keys) {
            Ok(Some(watch)) => Begun::Watch(watch),
            Ok(None) => Begun::Answer(Ok(Reply::Done)),
            Err(refusal) => Begun::Answer(Err(refusal)),
        })
    }

    /// Arrives at a barrier, and watches it where others are still to come.
    pub(super) fn arrive(&mut self, key: &Key, size: i64) -> Result<Begun, Fault> {
        Ok(match self.change(&Request::Barrier { key: key.clone(), size })? {
            None => Begun::Nothing,
            Some(Ok(Reply::Number(count))) if count < size => Begun::Watch(self.replica.watch_barrier(key.clone())),
            Some(answer) => Begun::Answer(answer.map(|_| Reply::Done)),
        })
    }

    pub(super) fn watched(&mut self, watch: Watch) -> Step {
        self.catch_up(None)?;
        Ok(self.replica.is_over(watch).then_some(Ok(Reply::Done)))
    }

    /// Ends a watch and tells what it still missed.
    pub(super) fn unwatch(&mut self, watch: Watch) -> Vec<Key> {
        self.replica.unwatch(watch)
    }

    /// Decides a change and writes it down; none while somebody else has the lock.
    pub(super) fn change(&mut self, request: &Request) -> Step {
        let Some(lock) = self.log.try_lock()? else { return Ok(None) };
        self.catch_up(Some(&lock))?;
        let client = self.client.unwrap_or(ClientId(self.log.at()));
        let record = match self.record(client, request) {
            Ok(record) => record,
            Err(refusal) => return Ok(Some(Err(refusal))),
        };
        let answer = self.replica.apply(client, request.clone());
        if let Ok(reply) = &answer
            && changed(request, reply)
        {
            self.write(&lock, &record)?;
            self.client = Some(client);
            self.show(request, reply);
        }
        Ok(Some(answer))
    }

    #[cfg(test)]
    pub(super) fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Replays what others wrote. With the lock nobody is writing, and what is no record stays none.
    fn catch_up(&mut self, lock: Option<&Locked>) -> Result<(), Fault> {
        self.log.renew()?;
        if self.log.at() == 0 && !self.begin(lock)? {
            return Ok(());
        }
        loop {
            match (self.log.next()?, lock) {
                (Next::Record(payload), _) => self.replay(&payload)?,
                (Next::Torn, Some(lock)) => return self.log.cut(lock),
                (Next::Corrupt, Some(_)) => return Err(self.corrupt()),
                // A writer may be at it: what is no record may become one.
                (Next::Corrupt, None) => match self.log.try_lock()? {
                    Some(lock) => return self.catch_up(Some(&lock)),
                    None => return Ok(()),
                },
                (Next::End, _) | (Next::Torn, None) => return Ok(()),
            }
        }
    }

    /// Reads the header, or writes one; whether there is one now.
    fn begin(&mut self, lock: Option<&Locked>) -> Result<bool, Fault> {
        match (self.log.read_header()?, lock) {
            (Some(header), _) => self.header = header,
            (None, Some(lock)) => self.log.write_header(lock, self.header)?,
            (None, None) => return Ok(false),
        }
        self.replica.restart(self.header.limits);
        Ok(true)
    }

    fn replay(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let (client, request) = record::decode(payload).ok_or_else(|| self.corrupt())?;
        // What was accepted once is accepted again, by the same table in the same state.
        let reply = self.replica.apply(client, request.clone()).map_err(|_| self.corrupt())?;
        self.show(&request, &reply);
        Ok(())
    }

    /// Shows a change to those who watch, unless it was shown before the log had to be read anew.
    fn show(&mut self, request: &Request, reply: &Reply) {
        if self.log.at() > self.shown {
            self.shown = self.log.at();
            self.replica.show(request, reply);
        }
    }

    fn record(&self, client: ClientId, request: &Request) -> Result<Vec<u8>, Refusal> {
        let longest = u64::from(u32::MAX);
        let record =
            record::encode(client, request).ok_or(Refusal::MessageTooLong { len: longest + 1, limit: longest })?;
        let (len, limit) = (self.log.at() + record.len() as u64, self.header.log);
        if len > limit { Err(Refusal::StoreFull { len, limit }) } else { Ok(record) }
    }

    /// What was applied and cannot be written is forgotten: the copy is made anew from what is in the file.
    fn write(&mut self, lock: &Locked, record: &[u8]) -> Result<(), Fault> {
        let written = self.log.append(lock, record);
        if written.is_err() {
            self.log.rewind();
            self.replica.restart(self.header.limits);
        }
        written
    }

    fn corrupt(&self) -> Fault {
        Fault(format!("the file is corrupt before or at byte {}", self.log.at()))
    }
}

/// Whether what was answered so has changed the store.
fn changed(request: &Request, reply: &Reply) -> bool {
    match (request, reply) {
        (Request::CompareSet { desired, .. }, Reply::Values(now)) => now.first() == Some(&Some(desired.clone())),
        (Request::Pop { .. }, Reply::Values(values)) => values.iter().any(Option::is_some),
        (Request::Delete { .. }, reply) => *reply == Reply::Flag(true),
        _ => true,
    }
}
