//! Random operations by two clients, one after the other, against a model of a few lines.

use std::collections::{BTreeMap, VecDeque};

use phalanx_core::store::Store;

use crate::setting::Setting;

#[derive(Default)]
struct Model {
    values: BTreeMap<String, Vec<u8>>,
    queues: BTreeMap<String, VecDeque<Vec<u8>>>,
}

pub(crate) fn a_thousand_operations(setting: &Setting) {
    let door = setting.door();
    let stores = [door(), door()];
    let (mut random, mut model) = (fastrand::Rng::with_seed(42), Model::default());
    for number in 0..1000 {
        let store = &stores[random.usize(..2)];
        model.step(&mut random, store, number);
    }
    for store in &stores {
        assert_eq!(store.list_keys().unwrap(), model.values.keys().cloned().collect::<Vec<_>>());
        for (key, value) in &model.values {
            assert_eq!(store.get(key).unwrap(), *value);
        }
    }
}

impl Model {
    fn step(&mut self, random: &mut fastrand::Rng, store: &Store, number: usize) {
        let key = ["", "a", "b", "a/b", "\0"][random.usize(..5)];
        let value: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
        match random.u32(..13) {
            0..=1 => {
                store.set(key, &value).unwrap();
                self.values.insert(key.into(), value);
            }
            2 => {
                store.append(key, &value).unwrap();
                self.values.entry(key.into()).or_default().extend(value);
            }
            3 => {
                let queue = self.queues.remove(key).is_some_and(|queue| !queue.is_empty());
                assert_eq!(store.delete(key).unwrap(), self.values.remove(key).is_some() | queue, "{number}");
            }
            4 => assert_eq!(store.find(key).unwrap().as_ref(), self.values.get(key), "{number}"),
            5 => self.compare_set(random, store, key, value),
            6..=7 => {
                store.push(key, &value).unwrap();
                self.queues.entry(key.into()).or_default().push_back(value);
            }
            8 => {
                let head = self.queues.get_mut(key).and_then(VecDeque::pop_front);
                assert_eq!(store.try_pop(key).unwrap(), head, "{number}");
            }
            9 => assert_eq!(store.queue_len(key).unwrap(), self.queue_len(key), "{number}"),
            10 => {
                let there = self.values.contains_key(key) || self.queue_len(key) > 0;
                assert_eq!(store.check(&[key, key]).unwrap(), there, "{number}");
            }
            11 => {
                let delta = random.i64(-9..9);
                let sum = store.add("n", delta).unwrap();
                let before: i64 = self.values.get("n").map_or(0, |text| str::from_utf8(text).unwrap().parse().unwrap());
                assert_eq!(sum, before + delta, "{number}");
                self.values.insert("n".into(), sum.to_string().into());
            }
            _ => assert_eq!(store.num_keys().unwrap(), self.values.len() as u64, "{number}"),
        }
    }

    fn compare_set(&mut self, random: &mut fastrand::Rng, store: &Store, key: &str, desired: Vec<u8>) {
        let now = self.values.get(key).cloned();
        let expected = if random.bool() { now.clone().unwrap_or_default() } else { vec![random.u8(..)] };
        let replied = store.compare_set(key, &expected, &desired).unwrap();
        if now.clone().unwrap_or_default() == expected {
            assert_eq!(replied, desired);
            self.values.insert(key.into(), desired);
        } else {
            assert_eq!(replied, now.unwrap_or(expected));
        }
    }

    fn queue_len(&self, key: &str) -> u64 {
        self.queues.get(key).map_or(0, VecDeque::len) as u64
    }
}
