//! What a store should answer, in the plainest way that can be written down.

use std::collections::{BTreeMap, VecDeque};

use crate::op::{Answer, Op, Player};

/// A store of one process, asked by one at a time.
#[derive(Default)]
pub(crate) struct Model {
    values: BTreeMap<String, Vec<u8>>,
    queues: BTreeMap<String, VecDeque<Vec<u8>>>,
    arrived: BTreeMap<String, i64>,
}

impl Model {
    /// Whether the operation would be answered at once.
    pub(crate) fn is_ready(&self, op: &Op) -> bool {
        match op {
            Op::Get(key) => self.values.contains_key(key),
            Op::MultiGet(keys) => keys.iter().all(|key| self.values.contains_key(key)),
            Op::Pop(key) => self.len(key) > 0,
            _ => true,
        }
    }

    fn has(&self, keys: &[String]) -> bool {
        keys.iter().all(|key| self.values.contains_key(key) || self.len(key) > 0)
    }

    fn len(&self, queue: &str) -> usize {
        self.queues.get(queue).map_or(0, VecDeque::len)
    }

    fn compare_set(&mut self, key: &str, expected: &[u8], desired: &[u8]) -> Vec<u8> {
        match self.values.get(key) {
            Some(now) if now != expected => now.clone(),
            None if !expected.is_empty() => expected.to_vec(),
            _ => {
                self.values.insert(key.to_owned(), desired.to_vec());
                desired.to_vec()
            }
        }
    }

    fn add(&mut self, key: &str, delta: i64) -> i64 {
        let now = self.values.get(key).map_or("0".into(), |text| String::from_utf8_lossy(text));
        let sum = now.parse::<i64>().expect("only counters are added to") + delta;
        self.values.insert(key.to_owned(), sum.to_string().into_bytes());
        sum
    }
}

impl Player for Model {
    fn play(&mut self, op: &Op) -> Answer {
        match op {
            Op::Set(key, value) => drop(self.values.insert(key.clone(), value.clone())),
            Op::MultiSet(pairs) => self.values.extend(pairs.iter().cloned()),
            Op::Append(key, value) => self.values.entry(key.clone()).or_default().extend(value),
            Op::Push(key, value) => self.queues.entry(key.clone()).or_default().push_back(value.clone()),
            Op::Get(key) => return Answer::Value(self.values[key].clone()),
            Op::MultiGet(keys) => return Answer::Values(keys.iter().map(|key| self.values[key].clone()).collect()),
            Op::Wait(keys, _) if self.has(keys) => {}
            Op::Wait(..) => return Answer::Timeout,
            Op::Check(keys) => return Answer::Flag(self.has(keys)),
            Op::Add(key, delta) => return Answer::Number(self.add(key, *delta)),
            Op::CompareSet(key, expected, desired) => return Answer::Value(self.compare_set(key, expected, desired)),
            Op::Delete(key) => return Answer::Flag(self.values.remove(key).is_some()),
            Op::NumKeys => return Answer::Number(self.values.len() as i64),
            Op::ListKeys => return Answer::Keys(self.values.keys().cloned().collect()),
            Op::Pop(key) => {
                return Answer::Value(self.queues.get_mut(key).and_then(VecDeque::pop_front).expect("ready"));
            }
            Op::QueueLen(key) => return Answer::Number(self.len(key) as i64),
            Op::Barrier(key, size, _) => {
                let arrived = self.arrived.entry(key.clone()).or_default();
                *arrived += 1;
                let (arrived, text) = (*arrived, arrived.to_string());
                self.values.insert(key.clone(), text.into_bytes());
                return if arrived >= *size { Answer::Done } else { Answer::Timeout };
            }
        }
        Answer::Done
    }
}
