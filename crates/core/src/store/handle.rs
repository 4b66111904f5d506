//! The store as it is called: typed operations, a scope and a timeout over any home.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Key, Refusal, Reply, Request, StoreError, Value};

/// Where a store's contents live: this process, a file, a server.
pub trait Home: Send + Sync {
    /// Answers `request`. Returns within `timeout` whatever others do, at most 250 ms later; a time of zero asks once.
    ///
    /// The answer is of the kind that the request promises. [`Reply::Done`] to a change means that it was made.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors) of a store.
    fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError>;

    /// Which store this is, for messages: `the store at 127.0.0.1:29500`.
    fn describe(&self) -> String;
}

/// A handle on a store. Clones share the store; each has a scope and a timeout of its own.
///
/// Every call ends within the timeout, whatever the store's home does, and fails with a [`StoreError`] that says whether the
/// change may have been made all the same. Calls from several threads do not wait for each other.
///
/// ```
/// # use phalanx_core::store::{Store, StoreError};
/// # fn meet(store: &Store, rank: usize, size: usize) -> Result<Vec<u8>, StoreError> {
/// let data = store.scope("data");
/// if rank == 0 {
///     data.set("permutation", [2, 0, 1])?;
/// }
/// let permutation = data.get("permutation")?; // waits until it is there
/// data.barrier("read", size)?;
/// # Ok(permutation)
/// # }
/// ```
///
/// # Errors
///
/// What every call returns that fails; [`StoreError::doubt`] says whether a change may have been made all the same:
///
/// - [`Timeout`](StoreError::Timeout): no answer came in time. The keys asked for are listed, or those of them that are known to be missing.
/// - [`Refused`](StoreError::Refused): a key or value is too long, the store is full or has no such operation, or the like. Nothing was changed.
/// - [`Lost`](StoreError::Lost): the way to the store broke and could not be mended in time. Servers of PyTorch refuse in this way, too.
/// - [`Denied`](StoreError::Denied): the store does not let this process in, which may be forked from the one that opened it, or is not the one
///   it was.
#[derive(Clone)]
pub struct Store {
    home: Arc<dyn Home>,
    scope: Arc<str>,
    timeout: Duration,
}

impl Store {
    /// A handle on `home` with no scope and a timeout of 300 s.
    pub fn new(home: impl Home + 'static) -> Store {
        Store { home: Arc::new(home), scope: Arc::from(""), timeout: DEFAULT_TIMEOUT }
    }

    /// The same store, where every key `k` stands for `name/k`. Scopes nest.
    #[must_use]
    pub fn scope(&self, name: &str) -> Store {
        Store { scope: format!("{}{name}/", self.scope).into(), ..self.clone() }
    }

    /// The same store with another timeout for each call.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Store {
        Store { timeout, ..self.clone() }
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Stores `value` under `key`, replacing what was there. It is there for everybody once this returns.
    ///
    /// Where the answer is lost with the connection it is stored once more, over what another may have stored meanwhile.
    /// [`compare_set`](Store::compare_set) is for keys that several write.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn set(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.ask(Request::Set { pairs: vec![(self.key(key), value.as_ref().into())] })?.done()
    }

    /// Stores several values at once: nobody sees some without the others.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn multi_set(&self, pairs: &[(&str, &[u8])]) -> Result<(), StoreError> {
        let pairs = pairs.iter().map(|(key, value)| (self.key(key), Value::from(*value))).collect();
        self.ask(Request::Set { pairs })?.done()
    }

    /// The value under `key`; waits until there is one.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors); [`Timeout`](StoreError::Timeout) where none comes in time.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.ask(Request::Get { keys: vec![self.key(key)], wait: true })?.value().map(Option::unwrap_or_default)
    }

    /// The value under `key`, if there is one now.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn find(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.ask(Request::Get { keys: vec![self.key(key)], wait: false })?.value()
    }

    /// The values under all `keys`, in their order; waits until all are there.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors); [`Timeout`](StoreError::Timeout) where some do not come in time.
    pub fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        let values = self.ask(Request::Get { keys: self.keys(keys), wait: true })?.values(keys.len())?;
        Ok(values.into_iter().map(|value| value.map(Value::into_vec).unwrap_or_default()).collect())
    }

    /// Waits until each of `keys` is there, or was there at some moment since the call.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors); [`Timeout`](StoreError::Timeout) where some do not come in time.
    pub fn wait(&self, keys: &[&str]) -> Result<(), StoreError> {
        self.ask(Request::Wait { keys: self.keys(keys) })?.done()
    }

    /// Whether all `keys` are there now.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn check(&self, keys: &[&str]) -> Result<bool, StoreError> {
        self.ask(Request::Check { keys: self.keys(keys) })?.flag()
    }

    /// Adds `delta` to the counter `key`, which begins at 0, and returns the sum.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors); [`Refused`](StoreError::Refused) where the value is no number, or the sum does not fit 64 bits.
    pub fn add(&self, key: &str, delta: i64) -> Result<i64, StoreError> {
        self.ask(Request::Add { key: self.key(key), delta })?.number()
    }

    /// Puts `desired` in the place of `expected` and returns the value that is there now.
    ///
    /// An empty `expected` also stands for nothing. Where nothing is there and something was expected, nothing is stored
    /// and `expected` is returned, as PyTorch's stores do.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn compare_set(
        &self,
        key: &str,
        expected: impl AsRef<[u8]>,
        desired: impl AsRef<[u8]>,
    ) -> Result<Vec<u8>, StoreError> {
        let (expected, desired) = (expected.as_ref().into(), desired.as_ref().into());
        let now = self.ask(Request::CompareSet { key: self.key(key), expected, desired })?.value()?;
        Ok(now.unwrap_or_default())
    }

    /// Removes the value under `key`; whether there was one.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn delete(&self, key: &str) -> Result<bool, StoreError> {
        self.ask(Request::Delete { key: self.key(key) })?.flag()
    }

    /// Adds `bytes` at the end of the value under `key`, which begins empty.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn append(&self, key: &str, bytes: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.ask(Request::Append { key: self.key(key), value: bytes.as_ref().into() })?.done()
    }

    /// How many values the whole store holds, whatever the scope; queues do not count.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn num_keys(&self) -> Result<u64, StoreError> {
        self.ask(Request::NumKeys)?.count()
    }

    /// The keys of all values within the scope, in order.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn list_keys(&self) -> Result<Vec<String>, StoreError> {
        let keys = self.ask(Request::ListKeys)?.keys()?;
        let within =
            |key: &Key| Some(String::from_utf8_lossy(key.as_bytes().strip_prefix(self.scope.as_bytes())?).into());
        let mut names: Vec<String> = keys.iter().filter_map(within).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Adds `value` at the end of the queue `key`. Queues have names apart from those of values.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn push(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.ask(Request::Push { key: self.key(key), value: value.as_ref().into() })?.done()
    }

    /// Takes the value at the head of the queue `key`; waits until there is one. Each value is taken once.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors); [`Timeout`](StoreError::Timeout) where none comes in time.
    pub fn pop(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.ask(Request::Pop { key: self.key(key), wait: true })?.value().map(Option::unwrap_or_default)
    }

    /// Takes the value at the head of the queue `key`, if there is one now.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn try_pop(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.ask(Request::Pop { key: self.key(key), wait: false })?.value()
    }

    /// How many values the queue `key` holds.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn queue_len(&self, key: &str) -> Result<u64, StoreError> {
        self.ask(Request::QueueLen { key: self.key(key) })?.count()
    }

    /// Counts this call at `key` and waits until `size` calls were counted.
    ///
    /// A plain counter, as PyTorch has it: it does not know who came, and never resets. A world's barrier does both.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors); [`Timeout`](StoreError::Timeout) where too few calls come in time: this one may stay counted.
    pub fn barrier(&self, key: &str, size: usize) -> Result<(), StoreError> {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        self.ask(Request::Barrier { key: self.key(key), size })?.done()
    }

    /// Returns once the store has answered.
    ///
    /// # Errors
    ///
    /// As [every call](Store#errors).
    pub fn ping(&self) -> Result<(), StoreError> {
        self.ask(Request::Ping)?.done()
    }

    /// Which store this is, for messages.
    pub fn describe(&self) -> String {
        self.home.describe()
    }

    fn ask(&self, request: Request) -> Result<Answer<'_>, StoreError> {
        let verb = request.verb();
        let reply = self.home.ask(request, self.timeout)?;
        Ok(Answer { reply, verb, store: self })
    }

    fn key(&self, key: &str) -> Key {
        if self.scope.is_empty() { key.into() } else { [&*self.scope, key].concat().as_str().into() }
    }

    fn keys(&self, keys: &[&str]) -> Vec<Key> {
        keys.iter().map(|key| self.key(key)).collect()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({}, scope \"{}\", timeout {:?})", self.home.describe(), self.scope, self.timeout)
    }
}

/// A reply on its way to the type that the operation returns. A home that answers in another kind is refused, not believed.
struct Answer<'a> {
    reply: Reply,
    verb: super::Verb,
    store: &'a Store,
}

impl Answer<'_> {
    fn done(self) -> Result<(), StoreError> {
        if matches!(self.reply, Reply::Done) { Ok(()) } else { Err(self.odd()) }
    }

    fn flag(self) -> Result<bool, StoreError> {
        if let Reply::Flag(flag) = self.reply { Ok(flag) } else { Err(self.odd()) }
    }

    fn number(self) -> Result<i64, StoreError> {
        if let Reply::Number(number) = self.reply { Ok(number) } else { Err(self.odd()) }
    }

    fn count(self) -> Result<u64, StoreError> {
        if let Reply::Number(number @ 0..) = self.reply { Ok(number.unsigned_abs()) } else { Err(self.odd()) }
    }

    fn value(self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.values(1)?.pop().flatten().map(Value::into_vec))
    }

    fn values(self, len: usize) -> Result<Vec<Option<Value>>, StoreError> {
        match self.reply {
            Reply::Values(values) if values.len() == len => Ok(values),
            _ => Err(self.odd()),
        }
    }

    fn keys(self) -> Result<Vec<Key>, StoreError> {
        if let Reply::Keys(keys) = self.reply { Ok(keys) } else { Err(self.odd()) }
    }

    fn odd(&self) -> StoreError {
        StoreError::Refused { verb: self.verb, refusal: Refusal::Unsupported { store: self.store.describe() } }
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
