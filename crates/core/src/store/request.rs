//! What a store can be asked, and what it answers. Plain data: how it travels is the wire's business.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// One question to a store.
///
/// Those that `wait` are answered once their keys are there; who asks brings the deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Stores each value under its key, replacing what was there. Answer: [`Reply::Done`].
    Set {
        /// Keys with their values, stored together.
        pairs: Vec<(Key, Value)>,
    },
    /// The values of all keys. Answer: [`Reply::Values`].
    Get {
        /// The keys, in the order of the answer.
        keys: Vec<Key>,
        /// Whether to wait until all are there; otherwise an absent key has no value.
        wait: bool,
    },
    /// Waits until each key is there or was there at some moment since the request. Answer: [`Reply::Done`].
    Wait {
        /// The keys; none is an answer at once.
        keys: Vec<Key>,
    },
    /// Whether all keys are there now. Answer: [`Reply::Flag`].
    Check {
        /// The keys; none is yes.
        keys: Vec<Key>,
    },
    /// Adds to a counter, which begins at 0 and is kept as decimal text. Answer: [`Reply::Number`], the sum.
    Add {
        /// The counter.
        key: Key,
        /// What is added.
        delta: i64,
    },
    /// Replaces a value that is as expected. Answer: [`Reply::Values`] with the one value that is now there, or what was
    /// expected where nothing is there and something was expected.
    CompareSet {
        /// The key.
        key: Key,
        /// The value that must be there; an empty one also means that nothing must be there.
        expected: Value,
        /// The value to put in its place.
        desired: Value,
    },
    /// Removes a value, or all values of a queue. Answer: [`Reply::Flag`], whether something was there.
    Delete {
        /// The key.
        key: Key,
    },
    /// Adds bytes at the end of a value, which begins empty. Answer: [`Reply::Done`].
    Append {
        /// The key.
        key: Key,
        /// The bytes to add.
        value: Value,
    },
    /// How many values the store holds; queues do not count. Answer: [`Reply::Number`].
    NumKeys,
    /// The keys of all values. Answer: [`Reply::Keys`].
    ListKeys,
    /// Adds a value at the end of a queue. Answer: [`Reply::Done`].
    Push {
        /// The queue, whose names are apart from those of values.
        key: Key,
        /// The value.
        value: Value,
    },
    /// Takes the value at the head of a queue. Answer: [`Reply::Values`] with one entry, which is absent where the queue is
    /// empty.
    Pop {
        /// The queue.
        key: Key,
        /// Whether to wait until there is a value.
        wait: bool,
    },
    /// How many values a queue holds. Answer: [`Reply::Number`].
    QueueLen {
        /// The queue.
        key: Key,
    },
    /// Counts arrivals at `key` and waits until there were `size`. It never resets. Answer: [`Reply::Done`].
    Barrier {
        /// The counter of arrivals, a value like any other.
        key: Key,
        /// How many are expected.
        size: i64,
    },
    /// Nothing but an answer. Answer: [`Reply::Done`].
    Ping,
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was done, or what was waited for is there.
    Done,
    /// Yes or no.
    Flag(bool),
    /// A counter, or a number of things.
    Number(i64),
    /// One entry for each key asked for.
    Values(Vec<Option<Value>>),
    /// Keys, in no order.
    Keys(Vec<Key>),
}

/// The operations by name, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// `set` and `multi_set`.
    Set,
    /// `get`, `find` and `multi_get`.
    Get,
    /// `wait`.
    Wait,
    /// `check`.
    Check,
    /// `add`.
    Add,
    /// `compare_set`.
    CompareSet,
    /// `delete`.
    Delete,
    /// `append`.
    Append,
    /// `num_keys`.
    NumKeys,
    /// `list_keys`.
    ListKeys,
    /// `push`.
    Push,
    /// `pop` and `try_pop`.
    Pop,
    /// `queue_len`.
    QueueLen,
    /// `barrier`.
    Barrier,
    /// `ping`.
    Ping,
    /// Not an operation: reaching the store in the first place.
    Connect,
}

/// The name of a value, a counter or a queue: any bytes, mostly text. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<[u8]>);

/// What stands under a key: any bytes. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Value(Arc<Vec<u8>>);

impl Request {
    /// The operation's name.
    pub fn verb(&self) -> Verb {
        match self {
            Request::Set { .. } => Verb::Set,
            Request::Get { .. } => Verb::Get,
            Request::Wait { .. } => Verb::Wait,
            Request::Check { .. } => Verb::Check,
            Request::Add { .. } => Verb::Add,
            Request::CompareSet { .. } => Verb::CompareSet,
            Request::Delete { .. } => Verb::Delete,
            Request::Append { .. } => Verb::Append,
            Request::NumKeys => Verb::NumKeys,
            Request::ListKeys => Verb::ListKeys,
            Request::Push { .. } => Verb::Push,
            Request::Pop { .. } => Verb::Pop,
            Request::QueueLen { .. } => Verb::QueueLen,
            Request::Barrier { .. } => Verb::Barrier,
            Request::Ping => Verb::Ping,
        }
    }

    /// Whether the answer may be long in coming because a key or others are waited for.
    pub fn waits(&self) -> bool {
        match self {
            Request::Get { wait, .. } | Request::Pop { wait, .. } => *wait,
            Request::Wait { .. } | Request::Barrier { .. } => true,
            _ => false,
        }
    }

    /// Whether asking twice leaves the store as asking once does, and gives an answer that is as true: as long as nobody else
    /// sets the same keys in between.
    pub fn repeats(&self) -> bool {
        !matches!(
            self,
            Request::Add { .. }
                | Request::CompareSet { .. }
                | Request::Delete { .. }
                | Request::Append { .. }
                | Request::Push { .. }
                | Request::Pop { .. }
                | Request::Barrier { .. }
        )
    }

    /// The keys that are asked about.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let (one, many, pairs): (Option<&Key>, &[Key], &[(Key, Value)]) = match self {
            Request::Set { pairs } => (None, &[], pairs),
            Request::Get { keys, .. } | Request::Wait { keys } | Request::Check { keys } => (None, keys, &[]),
            Request::Add { key, .. }
            | Request::CompareSet { key, .. }
            | Request::Delete { key }
            | Request::Append { key, .. }
            | Request::Push { key, .. }
            | Request::Pop { key, .. }
            | Request::QueueLen { key }
            | Request::Barrier { key, .. } => (Some(key), &[], &[]),
            Request::NumKeys | Request::ListKeys | Request::Ping => (None, &[], &[]),
        };
        one.into_iter().chain(many).chain(pairs.iter().map(|(key, _)| key))
    }

    /// The same request with every key changed by `change`.
    pub fn map_keys(mut self, change: impl Fn(&Key) -> Key) -> Request {
        match &mut self {
            Request::Set { pairs } => pairs.iter_mut().for_each(|(key, _)| *key = change(key)),
            Request::Get { keys, .. } | Request::Wait { keys } | Request::Check { keys } => {
                keys.iter_mut().for_each(|key| *key = change(key));
            }
            Request::Add { key, .. }
            | Request::CompareSet { key, .. }
            | Request::Delete { key }
            | Request::Append { key, .. }
            | Request::Push { key, .. }
            | Request::Pop { key, .. }
            | Request::QueueLen { key }
            | Request::Barrier { key, .. } => *key = change(key),
            Request::NumKeys | Request::ListKeys | Request::Ping => {}
        }
        self
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Set => "set",
            Verb::Get => "get",
            Verb::Wait => "wait",
            Verb::Check => "check",
            Verb::Add => "add",
            Verb::CompareSet => "compare_set",
            Verb::Delete => "delete",
            Verb::Append => "append",
            Verb::NumKeys => "num_keys",
            Verb::ListKeys => "list_keys",
            Verb::Push => "push",
            Verb::Pop => "pop",
            Verb::QueueLen => "queue_len",
            Verb::Barrier => "barrier",
            Verb::Ping => "ping",
            Verb::Connect => "connect",
        })
    }
}

impl Key {
    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key(bytes.into())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key(text.as_bytes().into())
    }
}

/// As text; bytes that are none are escaped.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl Value {
    /// The bytes, moved out where nobody else holds them.
    pub fn into_vec(self) -> Vec<u8> {
        Arc::try_unwrap(self.0).unwrap_or_else(|shared| shared.as_ref().clone())
    }

    /// Adds `bytes` at the end, in place where nobody else holds the value.
    pub fn append(&mut self, bytes: &[u8]) {
        Arc::make_mut(&mut self.0).extend_from_slice(bytes);
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value(Arc::new(bytes))
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value(Arc::new(bytes.to_vec()))
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Only how long it is: values may be large, and may be secret.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.0.len())
    }
}
