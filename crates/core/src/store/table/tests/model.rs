//! Random requests, answered by the table and by a model that keeps lists and looks through all of them every time.

use std::collections::HashMap;

use super::*;

#[derive(Default)]
struct Model {
    values: HashMap<String, String>,
    queues: HashMap<String, Vec<String>>,
    waiters: Vec<(u64, Ticket, Request)>,
    /// Keys that a waiter has seen.
    seen: Vec<(Ticket, String)>,
    woken: Vec<(Ticket, Reply)>,
}

impl Model {
    /// The answer; none for a request that waits.
    fn ask(&mut self, request: &Request) -> Option<Reply> {
        let names: Vec<String> = request.keys().map(Key::to_string).collect();
        let key = names.first().cloned().unwrap_or_default();
        let there = |model: &Model, key: &String| model.values.contains_key(key) || model.queue(key) > 0;
        Some(match request {
            Request::Set { pairs } => {
                for (key, value) in pairs {
                    self.values.insert(key.to_string(), text(value));
                }
                self.came(&names);
                Reply::Done
            }
            Request::Get { wait: true, .. } if !names.iter().all(|key| self.values.contains_key(key)) => return None,
            Request::Get { .. } => self.values_of(&names),
            Request::Wait { .. } if !names.iter().all(|key| there(self, key)) => return None,
            Request::Check { .. } => Reply::Flag(names.iter().all(|key| there(self, key))),
            Request::Add { delta, .. } => {
                let sum = self.values.get(&key).map_or(0, |text| text.parse::<i64>().unwrap()) + delta;
                self.values.insert(key, sum.to_string());
                self.came(&names);
                Reply::Number(sum)
            }
            Request::Delete { .. } => {
                let (value, queue) = (self.values.remove(&key), self.queues.remove(&key).unwrap_or_default());
                Reply::Flag(value.is_some() || !queue.is_empty())
            }
            Request::Append { value, .. } => {
                self.values.entry(key).or_default().push_str(&text(value));
                self.came(&names);
                Reply::Done
            }
            Request::CompareSet { expected, desired, .. } => {
                let now = self.values.get(&key).cloned().unwrap_or_default();
                if now != text(expected) {
                    let shown = if self.values.contains_key(&key) { now } else { text(expected) };
                    return Some(one(&shown));
                }
                self.values.insert(key, text(desired));
                self.came(&names);
                one(&text(desired))
            }
            Request::Push { value, .. } => {
                self.push(key, text(value));
                Reply::Done
            }
            Request::Pop { wait: true, .. } if self.queue(&key) == 0 => return None,
            Request::Pop { .. } if self.queue(&key) == 0 => Reply::Values(vec![None]),
            Request::Pop { .. } => one(&self.queues.get_mut(&key).unwrap().remove(0)),
            Request::QueueLen { .. } => Reply::Number(self.queue(&key) as i64),
            Request::NumKeys => Reply::Number(self.values.len() as i64),
            Request::ListKeys => {
                let mut names: Vec<&str> = self.values.keys().map(|name| &**name).collect();
                names.sort_unstable();
                Reply::Keys(keys(&names))
            }
            _ => Reply::Done,
        })
    }

    fn queue(&self, key: &str) -> usize {
        self.queues.get(key).map_or(0, Vec::len)
    }

    fn values_of(&self, names: &[String]) -> Reply {
        Reply::Values(names.iter().map(|key| self.values.get(key).map(|text| value(text))).collect())
    }

    fn wait(&mut self, client: u64, ticket: Ticket, request: Request) {
        for key in request.keys() {
            let name = key.to_string();
            if self.values.contains_key(&name) || self.queue(&name) > 0 {
                self.seen.push((ticket, name));
            }
        }
        self.waiters.push((client, ticket, request));
    }

    /// Everybody sees these keys; whoever misses nothing is woken.
    fn came(&mut self, names: &[String]) {
        for (_, ticket, _) in &self.waiters {
            self.seen.extend(names.iter().map(|name| (*ticket, name.clone())));
        }
        self.wake(|_| true);
    }

    fn push(&mut self, key: String, text: String) {
        let pops = |request: &Request| matches!(request, Request::Pop { key: at, .. } if at.to_string() == key);
        if let Some(at) = self.waiters.iter().position(|(_, _, request)| pops(request)) {
            let (_, ticket, _) = self.waiters.remove(at);
            return self.woken.push((ticket, one(&text)));
        }
        self.queues.entry(key.clone()).or_default().push(text);
        let misses = |(_, ticket, request): &&(u64, Ticket, Request)| {
            matches!(request, Request::Wait { keys } if keys.contains(&key.as_str().into()))
                && !self.seen.contains(&(*ticket, key.clone()))
        };
        if let Some(&(_, ticket, _)) = self.waiters.iter().find(misses) {
            self.seen.push((ticket, key));
            self.wake(|woken| woken == ticket);
        }
    }

    fn wake(&mut self, may: impl Fn(Ticket) -> bool) {
        for (client, ticket, request) in std::mem::take(&mut self.waiters) {
            let names: Vec<String> = request.keys().map(Key::to_string).collect();
            let seen = names.iter().all(|key| self.seen.contains(&(ticket, key.clone())));
            let all = names.iter().all(|key| self.values.contains_key(key));
            match request {
                Request::Wait { .. } if seen && may(ticket) => self.woken.push((ticket, Reply::Done)),
                Request::Get { .. } if all && may(ticket) => self.woken.push((ticket, self.values_of(&names))),
                request => self.waiters.push((client, ticket, request)),
            }
        }
    }

    fn byte_len(&self) -> usize {
        let values: usize = self.values.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
        let queues = self.queues.iter().flat_map(|(key, queue)| queue.iter().map(|text| key.len() + text.len() + 64));
        let waiters = self
            .waiters
            .iter()
            .map(|(_, _, request)| 64 + request.keys().map(|key| key.as_bytes().len() + 64).sum::<usize>());
        values + queues.sum::<usize>() + waiters.sum::<usize>()
    }
}

fn text(value: &Value) -> String {
    String::from_utf8(value.to_vec()).unwrap()
}

/// A random request over few keys, so that many meet. Counters have a key of their own, which holds nothing else.
fn draw(random: &mut fastrand::Rng) -> Request {
    let names = ["", "a", "b", "longer"];
    let name = |random: &mut fastrand::Rng| names[random.usize(..names.len())];
    let some: Vec<&str> = (0..random.usize(..4)).map(|_| name(random)).collect();
    let (key, text) = (name(random), ["", "x", "yy"][random.usize(..3)]);
    match random.u32(..20) {
        0 => set(key, text),
        1 => Request::Set { pairs: some.iter().map(|&key| (key.into(), value(text))).collect() },
        2..=3 => get(&some, random.bool()),
        4..=6 => wait(&some),
        7 => check(&some),
        8 => add("n", random.i64(-5..5)),
        9 => compare_set(key, text, ["", "x", "yy"][random.usize(..3)]),
        10..=12 => delete(key),
        13 => append(key, text),
        14..=15 => push(key, text),
        16..=17 => pop(key, random.bool()),
        18 => queue_len(key),
        _ => [Request::NumKeys, Request::ListKeys, Request::Ping, delete("n")][random.usize(..4)].clone(),
    }
}

/// One random step, by both.
fn step(random: &mut fastrand::Rng, table: &mut Table, model: &mut Model) {
    let client = random.u64(..6);
    match random.u32(..24) {
        0 => {
            table.leave(ClientId(client));
            model.waiters.retain(|(of, ..)| *of != client);
        }
        1 if !model.waiters.is_empty() => {
            let (_, ticket, _) = model.waiters.remove(random.usize(..model.waiters.len()));
            assert!(table.cancel(ticket));
        }
        _ => {
            let request = draw(random);
            match (table.ask(ClientId(client), request.clone()), model.ask(&request)) {
                (Asked::Answered(answer), expected) => assert_eq!(answer.ok(), expected, "{request:?}"),
                (Asked::Waiting(ticket), None) => model.wait(client, ticket, request),
                (asked, expected) => panic!("{request:?} is {asked:?}, where {expected:?} was due"),
            }
        }
    }
}

#[test]
fn the_table_answers_as_the_model_does() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut table, mut model) = (Table::default(), Model::default());
        for number in 0..1000 {
            step(&mut random, &mut table, &mut model);
            let woken: Vec<(Ticket, Reply)> =
                std::iter::from_fn(|| table.woken()).map(|(_, ticket, answer)| (ticket, answer.unwrap())).collect();
            assert_eq!(woken, std::mem::take(&mut model.woken), "seed {seed}, step {number}");
            assert_eq!(table.waiting(), model.waiters.len(), "seed {seed}, step {number}");
            assert_eq!(table.byte_len(), model.byte_len(), "seed {seed}, step {number}");
        }
    }
}
