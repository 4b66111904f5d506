//! PyTorch as a process that is told what to do, a line at a time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::op::{Answer, Op, Player, to_hex};

/// One Python process with a store or a rank of a group in it.
pub(crate) struct Python {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    /// What it said when it was ready: the port of its store, or its rank.
    pub(crate) ready: u16,
}

/// What PyTorch's servers are called in these tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Libuv,
    Legacy,
}

impl Python {
    /// A server of PyTorch with its first client.
    pub(crate) fn serve(kind: Kind) -> Python {
        let name = if kind == Kind::Libuv { "libuv" } else { "legacy" };
        Python::start(&["serve", name], &[]).until_ready()
    }

    /// A client of PyTorch at a server that is there.
    pub(crate) fn connect(port: u16) -> Python {
        Python::start(&["connect", "127.0.0.1", &port.to_string()], &[]).until_ready()
    }

    /// One rank of a gloo group, not yet ready: all of them are needed for that.
    pub(crate) fn rank(variables: &[(&str, String)]) -> Python {
        Python::start(&["rank"], variables)
    }

    /// Waits until it has said that it is ready.
    pub(crate) fn until_ready(mut self) -> Python {
        let ready = self.answer();
        self.ready = ready["ready"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or_else(|| {
            panic!("the Python side began with {ready}");
        });
        self
    }

    /// The next line that it says.
    pub(crate) fn answer(&mut self) -> Value {
        let line = self.answers.recv_timeout(PATIENCE).expect("the Python side answers");
        serde_json::from_str(&line).expect("the Python side speaks JSON")
    }

    fn start(arguments: &[&str], variables: &[(&str, String)]) -> Python {
        let python = std::env::var("PHALANX_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut child = Command::new(&python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/torch/agent.py"))
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{python}: {error}"));
        let orders = child.stdin.take();
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let (tell, answers) = mpsc::channel();
        thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Python { child, orders, answers, ready: 0 }
    }

    fn order(&mut self, order: &Value) -> Value {
        let orders = self.orders.as_mut().expect("open until the end");
        writeln!(orders, "{order}").expect("the Python side listens");
        self.answer()
    }
}

impl Player for Python {
    fn play(&mut self, op: &Op) -> Answer {
        let said = self.order(&order(op));
        if said.get("timeout").is_some() {
            return Answer::Timeout;
        }
        if said.get("unsupported").is_some() {
            return Answer::Unsupported;
        }
        read(op, &said["answer"])
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn order(op: &Op) -> Value {
    match op {
        Op::Set(key, value) => json!({"op": "set", "key": key, "value": to_hex(value)}),
        Op::MultiSet(pairs) => {
            let (keys, values): (Vec<&String>, Vec<String>) =
                pairs.iter().map(|(key, value)| (key, to_hex(value))).unzip();
            json!({"op": "multi_set", "keys": keys, "values": values})
        }
        Op::Get(key) => json!({"op": "get", "key": key}),
        Op::MultiGet(keys) => json!({"op": "multi_get", "keys": keys}),
        Op::Wait(keys, within) => json!({"op": "wait", "keys": keys, "millis": millis(within)}),
        Op::Check(keys) => json!({"op": "check", "keys": keys}),
        Op::Add(key, delta) => json!({"op": "add", "key": key, "delta": delta}),
        Op::CompareSet(key, expected, desired) => {
            json!({"op": "compare_set", "key": key, "expected": to_hex(expected), "value": to_hex(desired)})
        }
        Op::Delete(key) => json!({"op": "delete", "key": key}),
        Op::Append(key, value) => json!({"op": "append", "key": key, "value": to_hex(value)}),
        Op::NumKeys => json!({"op": "num_keys"}),
        Op::ListKeys => json!({"op": "list_keys"}),
        Op::Push(key, value) => json!({"op": "push", "key": key, "value": to_hex(value)}),
        Op::Pop(key) => json!({"op": "pop", "key": key}),
        Op::QueueLen(key) => json!({"op": "queue_len", "key": key}),
        Op::Barrier(key, size, within) => {
            json!({"op": "barrier", "key": key, "size": size, "millis": millis(within)})
        }
    }
}

fn read(op: &Op, answer: &Value) -> Answer {
    let hex = |value: &Value| value.as_str().map(from_hex).expect("bytes");
    let texts = |value: &Value| value.as_array().expect("a list").clone();
    match op {
        Op::Set(..) | Op::MultiSet(_) | Op::Append(..) | Op::Push(..) | Op::Wait(..) | Op::Barrier(..) => Answer::Done,
        Op::Get(_) | Op::CompareSet(..) | Op::Pop(_) => Answer::Value(hex(answer)),
        Op::MultiGet(_) => Answer::Values(texts(answer).iter().map(hex).collect()),
        Op::Check(_) | Op::Delete(_) => Answer::Flag(answer.as_bool().expect("yes or no")),
        Op::Add(..) | Op::NumKeys | Op::QueueLen(_) => Answer::Number(answer.as_i64().expect("a number")),
        Op::ListKeys => Answer::Keys(texts(answer).iter().map(|key| key.as_str().expect("text").to_owned()).collect()),
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn millis(within: &Duration) -> u64 {
    within.as_millis().try_into().expect("a short time")
}

/// How long Python may take for anything, its start included.
const PATIENCE: Duration = Duration::from_secs(60);
