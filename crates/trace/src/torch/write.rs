//! A dump in PyTorch's schema, version 2.10, as its own analyser reads it.
//!
//! That analyser matches entries of a group by one number, so what is no collective of the whole group would look like a rank
//! that did not come. Messages between two ranks are therefore written as a group of those two for each tag, in which both count alike.

use std::collections::{BTreeMap, BTreeSet};

use super::words;
use crate::dump::{Dump, Entry, State, TracedGroup};
use crate::pickle::{self, Value};

/// What becomes of messages between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// They are written. Both ends must remember them all, and know whom they are from.
    Keep,
    /// They are left out of what PyTorch reads.
    Leave,
}

/// The dump as the pickle that PyTorch's analyser reads.
pub fn encode(dump: &Dump, messages: Messages) -> Vec<u8> {
    let mut writer = Writer { dump, names: names(&dump.groups), pairs: BTreeMap::new(), counts: BTreeMap::new() };
    let written = dump.entries.iter().filter(|entry| !entry.is_message || messages == Messages::Keep);
    let entries = written.filter_map(|entry| writer.entry(entry)).zip(0_u64..).map(numbered).collect();
    let value = Value::dict([
        ("version", Value::from("2.10")),
        ("pg_config", writer.configurations()),
        ("pg_status", writer.statuses()),
        ("entries", Value::List(entries)),
        (OURS, Value::from(dump.to_json())),
    ]);
    pickle::write(&value)
}

impl Messages {
    /// Whether the messages of these dumps can be written so that they match.
    pub fn of(dumps: &[Dump]) -> Messages {
        let is_whole = |dump: &Dump| {
            let mut messages = dump.entries.iter().filter(|entry| entry.is_message);
            messages.all(|entry| entry.peer.is_some() && dump.groups[entry.group].forgotten == 0)
        };
        if dumps.iter().all(is_whole) { Messages::Keep } else { Messages::Leave }
    }
}

struct Writer<'a> {
    dump: &'a Dump,
    /// What each group is called; no two alike.
    names: Vec<String>,
    /// The groups of two that messages need, with their ranks.
    pairs: BTreeMap<String, [usize; 2]>,
    /// How many messages each of them has had.
    counts: BTreeMap<String, u64>,
}

impl Writer<'_> {
    /// An entry, unless it is a message to nowhere.
    fn entry(&mut self, entry: &Entry) -> Option<Vec<(String, Value)>> {
        let group = &self.dump.groups[entry.group];
        let (name, operation, sequence) = if entry.is_message {
            self.message(group, entry)?
        } else {
            let kind = words::kind_to_torch(&entry.kind, entry.even);
            (self.names[entry.group].clone(), kind.to_owned(), entry.sequence.saturating_add(1))
        };
        let [input, output] = sizes(entry, group.members.as_ref().map_or(1, Vec::len));
        let dtypes = |sizes: &Value| match (&entry.dtype, sizes) {
            (Some(dtype), Value::List(sizes)) if !sizes.is_empty() => vec![Value::from(words::dtype_to_torch(dtype))],
            _ => Vec::new(),
        };
        let pairs = [
            ("pg_id", Value::int(entry.group)),
            ("process_group", Value::Tuple(vec![name.into(), description(group).into()])),
            ("collective_seq_id", Value::int(sequence)),
            ("p2p_seq_id", Value::int(if entry.is_message { sequence } else { 0 })),
            ("op_id", Value::int(entry.record.saturating_add(1))),
            ("profiling_name", Value::from(format!("{LIBRARY}:{operation}"))),
            ("time_created_ns", Value::int(entry.created_ns)),
            ("input_dtypes", Value::List(dtypes(&input))),
            ("output_dtypes", Value::List(dtypes(&output))),
            ("input_sizes", input),
            ("output_sizes", output),
            ("state", Value::from(state(entry))),
            ("time_discovered_started_ns", entry.started_ns.map(Value::int).into()),
            ("time_discovered_completed_ns", completed(entry).map(Value::int).into()),
            ("retired", Value::from(entry.state == State::Done)),
            ("timeout_ms", entry.timeout_ns.map(|timeout| Value::int(timeout / 1_000_000)).into()),
            ("is_p2p", Value::from(entry.is_message)),
            ("thread_id", Value::from("0")),
            ("thread_name", Value::from("")),
            ("frames", frames(entry)),
        ];
        Some(pairs.map(|(key, value)| (key.to_owned(), value)).into())
    }

    /// The group of two of a message under its tag, what it is called there and its number.
    fn message(&mut self, group: &TracedGroup, entry: &Entry) -> Option<(String, String, u64)> {
        let (us, peer) = (self.dump.rank, group.world_rank(entry.peer?)?);
        let is_send = entry.kind == "send";
        let (from, to) = if is_send { (us, peer) } else { (peer, us) };
        // Under each tag messages come in their order.
        let tag = entry.tag.filter(|tag| *tag > 0).map(|tag| format!(":{tag}")).unwrap_or_default();
        let name = format!("{} {from}->{to}{tag}", self.names[entry.group]);
        let ranks = [from.min(to), from.max(to)];
        let place = |rank| usize::from(rank != ranks[0]);
        let arrow = if is_send { "->" } else { "<-" };
        let operation = format!("{} {}{arrow}{}", entry.kind, place(us), place(peer));
        self.pairs.insert(name.clone(), ranks);
        let count = self.counts.entry(name.clone()).or_default();
        *count += 1;
        Some((name, operation, *count))
    }

    fn configurations(&self) -> Value {
        let all = || (0..self.dump.size()).collect::<Vec<usize>>();
        let groups = self.dump.groups.iter().zip(&self.names).map(|(group, name)| {
            (name.clone(), configuration(name, description(group), &group.members.clone().unwrap_or_else(all)))
        });
        let described = |name: &str| {
            let of = self.names.iter().position(|group| name.rsplit_once(' ').is_some_and(|(start, _)| start == group));
            of.map_or("", |at| description(&self.dump.groups[at])).to_owned()
        };
        let pairs = self.pairs.iter().map(|(name, ranks)| (name.clone(), configuration(name, &described(name), ranks)));
        Value::dict(groups.chain(pairs))
    }

    fn statuses(&self) -> Value {
        Value::dict((0..self.dump.groups.len()).map(|at| {
            let collectives = || self.dump.entries.iter().filter(move |entry| entry.group == at && !entry.is_message);
            let last = |is_it: fn(&&Entry) -> bool| {
                collectives()
                    .filter(is_it)
                    .map(|entry| entry.sequence.saturating_add(1))
                    .max()
                    .map_or(Value::Int(-1), Value::int)
            };
            let status = Value::dict([
                ("last_enqueued_collective", last(|_| true)),
                ("last_started_collective", last(|entry| entry.started_ns.is_some())),
                ("last_completed_collective", last(|entry| entry.state == State::Done)),
            ]);
            (at.to_string(), status)
        }))
    }
}

fn numbered((mut pairs, record): (Vec<(String, Value)>, u64)) -> Value {
    pairs.insert(0, ("record_id".to_owned(), Value::int(record)));
    Value::Dict(pairs)
}

/// The groups' names, made different where they are alike.
fn names(groups: &[TracedGroup]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    let mut free = |group: &TracedGroup| {
        let life = if group.epoch == 0 { String::new() } else { format!("@{}", group.epoch) };
        let name = format!("{}{life}", group.name);
        let last = times.entry(name.clone()).or_default();
        // A rank that has dropped others of this name still calls it as its other ranks do.
        let mut time = group.generation.unwrap_or(*last);
        loop {
            time = time.saturating_add(1);
            *last = time.max(*last);
            let name = if time == 1 { name.clone() } else { format!("{name}#{time}") };
            if taken.insert(name.clone()) {
                return name;
            }
        }
    };
    groups.iter().map(&mut free).collect()
}

fn configuration(name: &str, description: &str, ranks: &[usize]) -> Value {
    let ranks = format!("{ranks:?}");
    Value::dict([("name", name.into()), ("desc", description.into()), ("ranks", Value::from(ranks))])
}

fn description(group: &TracedGroup) -> &str {
    if group.description.is_empty() { "undefined" } else { &group.description }
}

/// The sizes of both buffers as PyTorch compares them: alike on every rank, or none where they may differ.
fn sizes(entry: &Entry, size: usize) -> [Value; 2] {
    let one = |len: u64| Value::List(vec![Value::List(vec![Value::int(len)])]);
    let none = || Value::List(Vec::new());
    let (input, output) = (entry.input, entry.output);
    match (&*entry.kind, entry.even) {
        ("barrier", _) => [none(), none()],
        ("broadcast" | "reduce", _) => [one(input.max(output)), one(input.max(output))],
        ("gather", true) => [one(input), one(input.saturating_mul(size as u64))],
        ("scatter", true) => [one(output.saturating_mul(size as u64)), one(output)],
        ("all_gather", false) => [none(), one(output)],
        ("reduce_scatter", false) => [one(input), none()],
        ("gather" | "scatter", false) => [none(), none()],
        _ => [one(input), one(output)],
    }
}

fn state(entry: &Entry) -> &'static str {
    match entry.state {
        State::Done => "completed",
        State::Started => "started",
        State::Queued => "scheduled",
        // There is no word for it: it was begun, and never completed.
        State::Failed(_) if entry.started_ns.is_some() => "started",
        State::Failed(_) => "scheduled",
    }
}

fn completed(entry: &Entry) -> Option<u64> {
    entry.ended_ns.filter(|_| entry.state == State::Done)
}

fn frames(entry: &Entry) -> Value {
    let frame = |site: &crate::Site| {
        let name = site.function.as_deref().unwrap_or(&entry.kind);
        Value::dict([("name", name.into()), ("filename", (&*site.file).into()), ("line", Value::int(site.line))])
    };
    Value::List(entry.site.iter().map(frame).collect())
}

/// The one library whose name every version of the analyser knows.
const LIBRARY: &str = "nccl";

/// Where the dump stands whole.
pub(super) const OURS: &str = "phalanx";
