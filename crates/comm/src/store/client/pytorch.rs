//! A request in PyTorch's words, which often takes several: what waits is waited for first, a change is followed by a ping
//! to know that it was made, and an absent value is told from an empty one by asking whether it is there.

use std::time::{Duration, Instant};

use phalanx_core::store::wire::{refused_from_wire, torch};
use phalanx_core::store::{Key, Limits, Refusal, Reply, Request, Value};

use super::capabilities::{Capabilities, Capability, Known};
use super::connection::Connection;
use super::time::{Pauses, Times};
use super::trouble::Trouble;
use crate::moment;

/// One call's talk with a server of PyTorch's protocol.
#[derive(Debug)]
pub(super) struct Talk<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) capabilities: &'a Capabilities,
    pub(super) times: Times,
    /// The server's name, for refusals.
    pub(super) server: &'a str,
}

impl Talk<'_> {
    /// Asks `request`, whose keys are those of the wire.
    pub(super) fn ask(mut self, request: &Request) -> Result<Reply, Trouble> {
        fits(request).map_err(|refusal| Trouble::Refused(refused_from_wire(refusal)))?;
        self.connection.begin();
        if let Some(capability) = Capability::of(request) {
            self.needs(capability)?;
        }
        let reply = match request {
            Request::Set { .. } | Request::Append { .. } | Request::Push { .. } => self.change(request),
            Request::Get { keys, wait: true } => self.wait_for_values(keys),
            Request::Get { keys, wait: false } => self.find(keys),
            Request::Wait { keys } => self.wait(keys).map(|()| Reply::Done),
            Request::Barrier { .. } => self.wait_on(request).map(|()| Reply::Done),
            Request::Pop { key, wait: true } => self.wait_and_pop(key),
            other => self.simple(other),
        }?;
        self.connection.finish();
        Ok(reply)
    }

    /// A request with one answer that does not wait.
    fn simple(&mut self, request: &Request) -> Result<Reply, Trouble> {
        let message = encoded(request);
        let change = if request.repeats() { 0 } else { message.len() };
        self.connection.send(&message, change, self.times.end)?;
        self.answer(torch::Answer::to(request))
    }

    /// A change that has no answer, and a ping behind it that has.
    fn change(&mut self, request: &Request) -> Result<Reply, Trouble> {
        let mut message = encoded(request);
        let change = if request.repeats() { 0 } else { message.len() };
        let nonce = fastrand::u32(..);
        torch::encode_ping(nonce, &mut message);
        self.connection.send(&message, change, self.times.end)?;
        self.answer(torch::Answer::pong(nonce))
    }

    fn wait_for_values(&mut self, keys: &[Key]) -> Result<Reply, Trouble> {
        let mut pauses = Pauses::short();
        self.wait(keys)?;
        loop {
            if let Some(values) = self.fetch(keys)? {
                return Ok(Reply::Values(values));
            }
            // Who is answered by the change that ends this wait may be faster with the next one every time. So it is
            // looked up at a moment of its own, rather than at once.
            self.wait(keys)?;
            self.keep_trying(&mut pauses)?;
        }
    }

    /// The values of those keys that are there, of one moment as far as these words allow.
    fn find(&mut self, keys: &[Key]) -> Result<Reply, Trouble> {
        let checked = self.check_each(keys)?;
        let present = keys.iter().zip(&checked).filter(|(_, there)| **there).map(|(key, _)| key.clone());
        let mut values = match self.fetch(&present.collect::<Vec<_>>())? {
            Some(values) => values.into_iter(),
            None => return self.find_each(keys),
        };
        Ok(Reply::Values(checked.into_iter().map(|there| if there { values.next()? } else { None }).collect()))
    }

    /// As [`find`](Self::find), where what looked present is not all there.
    fn find_each(&mut self, keys: &[Key]) -> Result<Reply, Trouble> {
        let one = |key| Ok(self.fetch(std::slice::from_ref(key))?.and_then(|mut values| values.pop()?));
        Ok(Reply::Values(keys.iter().map(one).collect::<Result<_, Trouble>>()?))
    }

    /// The values of all `keys`, or nothing where one is not there. It would read as an empty one, so it is checked before:
    /// PyTorch's older servers close the connection where nothing is there to read.
    fn fetch(&mut self, keys: &[Key]) -> Result<Option<Vec<Option<Value>>>, Trouble> {
        if keys.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let check = Request::Check { keys: keys.to_vec() };
        let read = Request::Get { keys: keys.to_vec(), wait: false };
        let message = [encoded(&check), encoded(&read)].concat();
        self.connection.send(&message, 0, self.times.end)?;
        let mut answer = |request| self.answer(torch::Answer::to(request));
        match (answer(&check)?, answer(&read)?) {
            (Reply::Flag(true), Reply::Values(values)) if self.are_there(keys, &values)? => Ok(Some(values)),
            _ => Ok(None),
        }
    }

    /// Whether the empty ones among `values` are there: a queue of that name counts as presence too, and a value may have
    /// been deleted after the check. A swap of what nobody stored tells, and changes nothing: where there is no value, its
    /// answer is what was expected.
    fn are_there(&mut self, keys: &[Key], values: &[Option<Value>]) -> Result<bool, Trouble> {
        let nonce = Value::from(fastrand::u128(..).to_le_bytes().as_slice());
        for (key, _) in keys.iter().zip(values).filter(|(_, value)| value.as_ref().is_none_or(|value| value.is_empty()))
        {
            let swap = Request::CompareSet { key: key.clone(), expected: nonce.clone(), desired: nonce.clone() };
            self.connection.send(&encoded(&swap), 0, self.times.end)?;
            if self.answer(torch::Answer::to(&swap))? == Reply::Values(vec![Some(nonce.clone())]) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn check_each(&mut self, keys: &[Key]) -> Result<Vec<bool>, Trouble> {
        let checks: Vec<Request> = keys.iter().map(|key| Request::Check { keys: vec![key.clone()] }).collect();
        let message: Vec<u8> = checks.iter().flat_map(encoded).collect();
        self.connection.send(&message, 0, self.times.end)?;
        checks.iter().map(|check| Ok(self.answer(torch::Answer::to(check))? == Reply::Flag(true))).collect()
    }

    fn wait_and_pop(&mut self, key: &Key) -> Result<Reply, Trouble> {
        let pop = Request::Pop { key: key.clone(), wait: false };
        let mut pauses = Pauses::short();
        loop {
            self.wait(std::slice::from_ref(key))?;
            match self.simple(&pop)? {
                Reply::Values(values) if values.iter().all(Option::is_none) => {}
                popped => return Ok(popped),
            }
            // Somebody was faster, and nothing was taken.
            self.connection.undelivered();
            self.keep_trying(&mut pauses)?;
        }
    }

    fn wait(&mut self, keys: &[Key]) -> Result<(), Trouble> {
        self.wait_on(&Request::Wait { keys: keys.to_vec() })
    }

    /// Asks a request that waits, and cancels it when its time has come.
    fn wait_on(&mut self, request: &Request) -> Result<(), Trouble> {
        let message = encoded(request);
        let change = if request.repeats() { 0 } else { message.len() };
        self.connection.send(&message, change, self.times.end)?;
        let mut answer = torch::Answer::to(request);
        match self.connection.receive(self.times.wait, |bytes| answer.decode(bytes, &reply_limits()))? {
            Some(_) => Ok(()),
            None => self.cancel(),
        }
    }

    /// Stops waiting. Where the answer was on its way already, it is followed by that of the cancel.
    fn cancel(&mut self) -> Result<(), Trouble> {
        let mut message = Vec::new();
        torch::encode_cancel(&mut message);
        self.connection.send(&message, 0, self.times.end)?;
        let until = self.times.end.min(moment::after(PATIENCE));
        match self.byte(until)? {
            Some(torch::WAIT_CANCELLED) => {
                self.connection.finish();
                Err(Trouble::Late)
            }
            Some(torch::STOP_WAITING) => match self.byte(self.times.end)? {
                Some(torch::WAIT_CANCELLED) => Ok(()),
                Some(other) => Err(odd(other)),
                None => Err(Trouble::Late),
            },
            Some(other) => Err(odd(other)),
            None => Err(Trouble::Late),
        }
    }

    /// Fails where the server cannot do it; asks where that is not known.
    fn needs(&mut self, capability: Capability) -> Result<(), Trouble> {
        let known = match self.capabilities.known(capability) {
            Known::NotYet => self.find_out(capability)?,
            known => known,
        };
        if known == Known::Yes {
            return Ok(());
        }
        self.connection.finish();
        Err(Trouble::Refused(Refusal::Unsupported { store: self.server.to_owned() }))
    }

    fn find_out(&mut self, capability: Capability) -> Result<Known, Trouble> {
        match self.simple(&capability.question()) {
            Ok(_) => {
                self.capabilities.answered(capability);
                Ok(Known::Yes)
            }
            Err(Trouble::Closed(detail)) => {
                self.capabilities.closed(capability);
                // The next try finds out, or knows.
                Err(Trouble::Closed(detail))
            }
            Err(other) => Err(other),
        }
    }

    fn answer(&mut self, mut answer: torch::Answer) -> Result<Reply, Trouble> {
        let limits = reply_limits();
        self.connection.receive(self.times.end, |bytes| answer.decode(bytes, &limits))?.ok_or(Trouble::Late)
    }

    fn byte(&mut self, until: Instant) -> Result<Option<u8>, Trouble> {
        self.connection.receive(until, |bytes| Ok(bytes.first().map(|&byte| (byte, 1))))
    }

    /// Goes on while there is time, nothing being under way. A value counts as presence of a queue to those who wait, and a
    /// queue as that of a value, so that the next wait may end at once too: hence the pause.
    fn keep_trying(&mut self, pauses: &mut Pauses) -> Result<(), Trouble> {
        if pauses.pause(self.times.wait) {
            return Ok(());
        }
        self.connection.finish();
        Err(Trouble::Late)
    }
}

/// What is believed of the length of answers: the caller asked for them, and they are stored as they come.
pub(super) fn reply_limits() -> Limits {
    Limits::default().key(REPLY).value(REPLY).keys(REPLY).message(REPLY)
}

/// PyTorch's servers close the connection on what is longer than they take, without a word. So it is said here.
fn fits(request: &Request) -> Result<(), Refusal> {
    let limits = Limits::default();
    let (count, most) = (request.keys().count(), limits.key_count());
    if count > most {
        return Err(Refusal::TooManyKeys { count: count as u64, limit: most as u64 });
    }
    request.keys().try_for_each(|key| key_fits(key, limits.key_byte_len()))?;
    let value_fits = |key: &Key, value: &Value| match limits.value_byte_len() {
        limit if value.len() > limit => {
            Err(Refusal::ValueTooLong { len: value.len() as u64, limit: limit as u64, key: key.clone() })
        }
        _ => Ok(()),
    };
    match request {
        Request::Set { pairs } => pairs.iter().try_for_each(|(key, value)| value_fits(key, value)),
        Request::Append { key, value } | Request::Push { key, value } => value_fits(key, value),
        Request::CompareSet { key, expected, desired } => {
            value_fits(key, expected).and_then(|()| value_fits(key, desired))
        }
        _ => Ok(()),
    }
}

fn key_fits(key: &Key, limit: usize) -> Result<(), Refusal> {
    let bytes = key.as_bytes();
    if bytes.len() <= limit {
        return Ok(());
    }
    let start = String::from_utf8_lossy(&bytes[..NAMED.min(bytes.len())]).into_owned();
    Err(Refusal::KeyTooLong { len: bytes.len() as u64, limit: limit as u64, start })
}

fn encoded(request: &Request) -> Vec<u8> {
    let mut message = Vec::new();
    torch::encode_request(request, &mut message);
    message
}

fn odd(byte: u8) -> Trouble {
    Trouble::Broken(format!("the server's answer makes no sense: a cancel is answered by {byte}"))
}

/// How long a cancel may take to be answered.
const PATIENCE: Duration = Duration::from_millis(100);
/// The longest answer, in bytes.
const REPLY: usize = 1 << 30;
/// How much of a long key is shown, in bytes.
const NAMED: usize = 32;
