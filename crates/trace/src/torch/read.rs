//! PyTorch's pickles as dumps: versions 2.0 to 2.10, of NCCL and of Gloo.

use std::collections::HashMap;

use super::words;
use super::write::OURS;
use crate::Broken;
use crate::dump::{Dump, Entry, FORMAT, Site, State, TracedGroup};
use crate::pickle::{self, Limits, Node, View};

/// The dump that a pickle of PyTorch is. Which rank's it is stands in the name of its file alone.
///
/// # Errors
///
/// Names the byte where the pickle is wrong, or the value that cannot be.
pub fn decode(bytes: &[u8], rank: usize, limits: &Limits) -> Result<Dump, Broken> {
    let tree = pickle::read(bytes, limits)?;
    let root = tree.root();
    if let Some(Node::Text(ours)) = root.under(OURS)?.map(View::look).transpose()? {
        return Dump::from_json(ours.as_bytes());
    }
    let version = text_under(root, "version")?.unwrap_or_default();
    if version.split('.').next() != Some("2") {
        return Err(Broken::value("version", version, "2.0 to 2.10, as PyTorch writes it"));
    }
    let mut reader = Reader::new(rank, configurations(root)?);
    let entries = root.under("entries")?.map(View::items).transpose()?.flatten();
    let entries = entries.ok_or_else(|| Broken::value("entries", "missing", "a list"))?;
    for (at, entry) in entries.enumerate() {
        reader.entry(at, entry)?;
    }
    reader.dump.check()?;
    Ok(reader.dump)
}

struct Reader {
    dump: Dump,
    /// Where each group stands, by its name and description.
    places: HashMap<(String, String), usize>,
    /// Whether a collective of the group was read.
    begun: Vec<bool>,
}

/// What one entry says, as it stands there.
#[derive(Default)]
struct Said<'a> {
    group: (String, String),
    name: &'a str,
    numbers: HashMap<&'a str, i128>,
    input: Option<u64>,
    output: Option<u64>,
    dtype: Option<&'a str>,
    state: &'a str,
    is_message: bool,
    is_retired: bool,
    site: Option<Site>,
}

impl Reader {
    /// A group that nothing was called in is a group all the same.
    fn new(rank: usize, configurations: Vec<TracedGroup>) -> Reader {
        let members = configurations.iter().flat_map(|group| group.members.iter().flatten());
        let world = members.max().map(|last| last.saturating_add(1)).filter(|size| *size > rank);
        let key = |group: &TracedGroup| (group.name.clone(), group.description.clone());
        let places = configurations.iter().map(key).zip(0..).collect();
        let begun = vec![false; configurations.len()];
        let dump = Dump {
            format: FORMAT,
            rank,
            world_size: world,
            met_ns: None,
            host_name: None,
            pid: None,
            taken_ns: None,
            groups: configurations,
            entries: Vec::new(),
        };
        Reader { dump, places, begun }
    }

    fn entry(&mut self, at: usize, entry: View<'_, '_>) -> Result<(), Broken> {
        let said = Said::of(at, entry)?;
        let what = |name: &str| format!("entries[{at}].{name}");
        let (library, kind, peer) = words::profiling_name(said.name)
            .ok_or_else(|| Broken::value(what("profiling_name"), said.name, "<library>:<operation>"))?;
        let state = state(&said, library)
            .ok_or_else(|| Broken::value(what("state"), said.state, "one of scheduled, started, completed"))?;
        let number = |name: &str| match said.numbers.get(name) {
            None => Ok(None),
            Some(&number) => u64::try_from(number)
                .map(Some)
                .map_err(|_| Broken::value(what(name), number, "0 or more, and below 2^64")),
        };
        let sequence = number(if said.is_message { "p2p_seq_id" } else { "collective_seq_id" })?.unwrap_or_default();
        let entry = Entry {
            group: self.place(&said.group, sequence, said.is_message),
            record: number("record_id")?.unwrap_or(at as u64),
            sequence,
            kind: kind.to_owned(),
            is_message: said.is_message,
            dtype: said.dtype.map(|dtype| words::dtype_from_torch(dtype).to_owned()),
            reduce: None,
            peer,
            tag: None,
            input: said.input.unwrap_or_default(),
            output: said.output.unwrap_or_default(),
            even: false,
            created_ns: number("time_created_ns")?.unwrap_or_default(),
            started_ns: number("time_discovered_started_ns")?,
            ended_ns: number("time_discovered_completed_ns")?,
            state,
            timeout_ns: number("timeout_ms")?.map(|millis| millis.saturating_mul(1_000_000)),
            site: said.site,
        };
        self.dump.entries.push(entry);
        Ok(())
    }

    /// The place of a group. PyTorch counts collectives from 1, so the first one there is tells how many are forgotten.
    fn place(&mut self, (name, description): &(String, String), sequence: u64, is_message: bool) -> usize {
        let next = self.dump.groups.len();
        let place = *self.places.entry((name.clone(), description.clone())).or_insert(next);
        if place == next {
            let (name, description) = (name.clone(), description.clone());
            self.dump.groups.push(TracedGroup { name, description, ..TracedGroup::default() });
            self.begun.push(false);
        }
        if !is_message && !self.begun[place] {
            self.begun[place] = true;
            self.dump.groups[place].forgotten = sequence.saturating_sub(1);
        }
        place
    }
}

impl<'a> Said<'a> {
    fn of(at: usize, entry: View<'_, 'a>) -> Result<Said<'a>, Broken> {
        let mut said = Said::default();
        let pairs = entry.pairs()?.ok_or_else(|| Broken::value(format!("entries[{at}]"), "no dictionary", "one"))?;
        for (key, value) in pairs {
            if let Node::Text(key) = key.look()? {
                said.hear(key, value)?;
            }
        }
        Ok(said)
    }

    fn hear(&mut self, key: &'a str, value: View<'_, 'a>) -> Result<(), Broken> {
        match key {
            "process_group" => self.group = group(value)?,
            "input_sizes" => self.input = elements(value)?,
            "output_sizes" => self.output = elements(value)?,
            "input_dtypes" => self.dtype = first_text(value)?.or(self.dtype),
            "output_dtypes" => self.dtype = self.dtype.or(first_text(value)?),
            "frames" => self.site = site(value)?,
            _ => match value.look()? {
                Node::Int(number) => drop(self.numbers.insert(key, *number)),
                Node::Text(text) if key == "profiling_name" => self.name = text,
                Node::Text(text) if key == "state" => self.state = text,
                Node::Bool(flag) if key == "is_p2p" => self.is_message = *flag,
                Node::Bool(flag) if key == "retired" => self.is_retired = *flag,
                _ => {}
            },
        }
        Ok(())
    }
}

/// Gloo never says that an operation began or ended: it retires it.
fn state(said: &Said<'_>, library: &str) -> Option<State> {
    match said.state {
        "completed" => Some(State::Done),
        "scheduled" | "started" if said.is_retired && library == "gloo" => Some(State::Done),
        "scheduled" => Some(State::Queued),
        "started" => Some(State::Started),
        _ => None,
    }
}

/// The groups that say who is in them. Gloo's say it of a group without name alone, which nothing is called in.
fn configurations(root: View<'_, '_>) -> Result<Vec<TracedGroup>, Broken> {
    let mut found = Vec::new();
    for (name, configuration) in root.under("pg_config")?.map(View::pairs).transpose()?.flatten().into_iter().flatten()
    {
        let Node::Text(name) = name.look()? else { continue };
        let text = text_under(configuration, "ranks")?.unwrap_or_default();
        let ranks = words::ranks(text)
            .ok_or_else(|| Broken::value(format!("pg_config['{name}'].ranks"), text, "a list of ranks as text"))?;
        if !name.is_empty() {
            let description = text_under(configuration, "desc")?.unwrap_or_default().to_owned();
            let name = (*name).to_owned();
            found.push(TracedGroup { name, description, members: Some(ranks), ..TracedGroup::default() });
        }
    }
    Ok(found)
}

fn text_under<'a>(view: View<'_, 'a>, key: &str) -> Result<Option<&'a str>, Broken> {
    match view.under(key)?.map(View::look).transpose()? {
        Some(Node::Text(text)) => Ok(Some(text)),
        _ => Ok(None),
    }
}

/// The name and the description.
fn group(value: View<'_, '_>) -> Result<(String, String), Broken> {
    let mut words = Vec::new();
    for part in value.items()?.into_iter().flatten().take(2) {
        if let Node::Text(text) = part.look()? {
            words.push((*text).to_owned());
        }
    }
    let mut words = words.into_iter();
    Ok((words.next().unwrap_or_default(), words.next().unwrap_or_default()))
}

/// The elements of all tensors together: each has its sizes.
fn elements(value: View<'_, '_>) -> Result<Option<u64>, Broken> {
    let Some(tensors) = value.items()? else { return Ok(None) };
    let mut sum: u64 = 0;
    for tensor in tensors {
        let mut product: u64 = 1;
        for size in tensor.items()?.into_iter().flatten() {
            let Node::Int(size) = size.look()? else { continue };
            product = product.saturating_mul(u64::try_from(*size).unwrap_or(u64::MAX));
        }
        sum = sum.saturating_add(product);
    }
    Ok(Some(sum))
}

fn first_text<'a>(value: View<'_, 'a>) -> Result<Option<&'a str>, Broken> {
    match value.items()?.and_then(|mut items| items.next()).map(View::look).transpose()? {
        Some(Node::Text(text)) => Ok(Some(text)),
        _ => Ok(None),
    }
}

/// The innermost line that is the user's; the innermost of all where all are PyTorch's own.
fn site(frames: View<'_, '_>) -> Result<Option<Site>, Broken> {
    let mut innermost = None;
    for frame in frames.items()?.into_iter().flatten().take(MOST_FRAMES) {
        let Some(file) = text_under(frame, "filename")? else { continue };
        let line = match frame.under("line")?.map(View::look).transpose()? {
            Some(Node::Int(line)) => u32::try_from(*line).unwrap_or_default(),
            _ => 0,
        };
        let site = Site { file: file.to_owned(), line, function: text_under(frame, "name")?.map(str::to_owned) };
        if !THEIRS.iter().any(|theirs| site.file.contains(theirs)) {
            return Ok(Some(site));
        }
        innermost.get_or_insert(site);
    }
    Ok(innermost)
}

/// Where PyTorch's own lines are.
const THEIRS: [&str; 2] = ["/torch/distributed/", "/site-packages/torch/"];

/// Deeper than a program calls.
const MOST_FRAMES: usize = 256;
