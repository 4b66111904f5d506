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
    let mut budget = Budget::new(limits.most_copied(bytes.len()));
    let groups = configurations(root, &mut budget)?;
    let mut reader = Reader::new(rank, groups, budget);
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
    budget: Budget,
}

/// How much a dump may still take. A text that stands in the pickle once may be in every entry, and each has a copy.
struct Budget {
    left: usize,
    most: usize,
}

/// What one entry says, as it stands there.
#[derive(Default)]
struct Said<'a> {
    group: (&'a str, &'a str),
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
    fn new(rank: usize, configurations: Vec<TracedGroup>, budget: Budget) -> Reader {
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
        Reader { dump, places, begun, budget }
    }

    fn entry(&mut self, at: usize, entry: View<'_, '_>) -> Result<(), Broken> {
        let said = Said::of(at, entry)?;
        let what = |name: &str| format!("entries[{at}].{name}");
        let name = bounded(|| what("profiling_name"), said.name)?;
        let (library, kind, peer) = words::profiling_name(name)
            .ok_or_else(|| Broken::value(what("profiling_name"), name, "<library>:<operation>"))?;
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
            group: self.place(at, said.group, sequence, said.is_message)?,
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
            // Those of several messages that are sent at once stay so for good, whatever became of them.
            is_ahead: said.is_message && state == State::Queued,
            state,
            timeout_ns: number("timeout_ms")?.map(|millis| millis.saturating_mul(1_000_000)),
            site: said.site,
        };
        self.budget.take(|| format!("entries[{at}]"), weight(&entry))?;
        self.dump.entries.push(entry);
        Ok(())
    }

    /// The place of a group. PyTorch counts collectives from 1, so the first one there is tells how many are forgotten.
    fn place(
        &mut self,
        at: usize,
        (name, description): (&str, &str),
        sequence: u64,
        is_message: bool,
    ) -> Result<usize, Broken> {
        let next = self.dump.groups.len();
        let place = *self.places.entry((name.to_owned(), description.to_owned())).or_insert(next);
        if place == next {
            let byte_len = size_of::<TracedGroup>() + name.len() + description.len();
            self.budget.take(|| format!("entries[{at}].process_group"), byte_len)?;
            let (name, description) = (name.to_owned(), description.to_owned());
            self.dump.groups.push(TracedGroup { name, description, ..TracedGroup::default() });
            self.begun.push(false);
        }
        if !is_message && !self.begun[place] {
            self.begun[place] = true;
            self.dump.groups[place].forgotten = sequence.saturating_sub(1);
        }
        Ok(place)
    }
}

impl Budget {
    fn new(most: usize) -> Budget {
        Budget { left: most, most }
    }

    fn take(&mut self, what: impl FnOnce() -> String, byte_len: usize) -> Result<(), Broken> {
        let left = self.left.checked_sub(byte_len);
        self.left = left.ok_or_else(|| Broken::TooMuch { what: what(), limit: self.most })?;
        Ok(())
    }
}

impl<'a> Said<'a> {
    fn of(at: usize, entry: View<'_, 'a>) -> Result<Said<'a>, Broken> {
        let mut said = Said::default();
        let pairs = entry.pairs()?.ok_or_else(|| Broken::value(format!("entries[{at}]"), "no dictionary", "one"))?;
        for (key, value) in pairs {
            if let Node::Text(key) = key.look()? {
                said.hear(at, key, value)?;
            }
        }
        Ok(said)
    }

    fn hear(&mut self, at: usize, key: &'a str, value: View<'_, 'a>) -> Result<(), Broken> {
        let what = || format!("entries[{at}].{key}");
        match key {
            "process_group" => self.group = group(what, value)?,
            "input_sizes" => self.input = elements(value)?,
            "output_sizes" => self.output = elements(value)?,
            "input_dtypes" => self.dtype = first_text(what, value)?.or(self.dtype),
            "output_dtypes" => self.dtype = self.dtype.or(first_text(what, value)?),
            "frames" => self.site = site(what, value)?,
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
fn configurations(root: View<'_, '_>, budget: &mut Budget) -> Result<Vec<TracedGroup>, Broken> {
    let mut found = Vec::new();
    for (name, configuration) in root.under("pg_config")?.map(View::pairs).transpose()?.flatten().into_iter().flatten()
    {
        let Node::Text(name) = name.look()? else { continue };
        let name = bounded(|| "a name in pg_config".to_owned(), name)?;
        let what = |key: &str| format!("pg_config['{name}'].{key}");
        let description = text_under(configuration, "desc")?.unwrap_or_default();
        let description = bounded(|| what("desc"), description)?;
        let text = text_under(configuration, "ranks")?.unwrap_or_default();
        // A rank and its comma have two bytes at least, and become one number.
        let numbers = text.len().saturating_mul(size_of::<usize>() / 2);
        let rest = size_of::<TracedGroup>() + name.len() + description.len();
        budget.take(|| what("ranks"), numbers.saturating_add(rest))?;
        let ranks = words::ranks(text).ok_or_else(|| Broken::value(what("ranks"), text, "a list of ranks as text"))?;
        if !name.is_empty() {
            let (name, description) = (name.to_owned(), description.to_owned());
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

/// A text that is no longer than any of its kind.
fn bounded(what: impl FnOnce() -> String, text: &str) -> Result<&str, Broken> {
    match text.len() {
        0..=LONGEST_TEXT => Ok(text),
        byte_len => Err(Broken::TooLong { what: what(), byte_len, limit: LONGEST_TEXT }),
    }
}

/// What an entry takes in memory.
fn weight(entry: &Entry) -> usize {
    let site = entry.site.as_ref();
    let file = site.map(|site| &*site.file).unwrap_or_default();
    let function = site.and_then(|site| site.function.as_deref()).unwrap_or_default();
    let texts = [&*entry.kind, entry.dtype.as_deref().unwrap_or_default(), file, function];
    size_of::<Entry>() + texts.map(str::len).iter().sum::<usize>()
}

/// The name and the description.
fn group<'a>(what: impl Fn() -> String, value: View<'_, 'a>) -> Result<(&'a str, &'a str), Broken> {
    let mut words = Vec::new();
    for part in value.items()?.into_iter().flatten().take(2) {
        if let Node::Text(text) = part.look()? {
            words.push(bounded(&what, text)?);
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

fn first_text<'a>(what: impl FnOnce() -> String, value: View<'_, 'a>) -> Result<Option<&'a str>, Broken> {
    match value.items()?.and_then(|mut items| items.next()).map(View::look).transpose()? {
        Some(Node::Text(text)) => bounded(what, text).map(Some),
        _ => Ok(None),
    }
}

/// The innermost line that is the user's; the innermost of all where all are PyTorch's own.
fn site(what: impl Fn() -> String, frames: View<'_, '_>) -> Result<Option<Site>, Broken> {
    let mut innermost = None;
    for (depth, frame) in frames.items()?.into_iter().flatten().take(MOST_FRAMES).enumerate() {
        let Some(file) = text_under(frame, "filename")? else { continue };
        let file = bounded(|| format!("{}[{depth}].filename", what()), file)?;
        let line = match frame.under("line")?.map(View::look).transpose()? {
            Some(Node::Int(line)) => u32::try_from(*line).unwrap_or_default(),
            _ => 0,
        };
        // Names of C++ may have any length; the line says as much.
        let function = text_under(frame, "name")?.filter(|name| name.len() <= LONGEST_TEXT).map(str::to_owned);
        let site = Site { file: file.to_owned(), line, function };
        if !THEIRS.iter().any(|theirs| site.file.contains(theirs)) {
            return Ok(Some(site));
        }
        innermost.get_or_insert(site);
    }
    Ok(innermost)
}

/// Where PyTorch's own lines are.
const THEIRS: [&str; 2] = ["/torch/distributed/", "/site-packages/torch/"];

/// As long as a path may be, and longer than any name that is compared.
const LONGEST_TEXT: usize = 4096;

/// Deeper than a program calls.
const MOST_FRAMES: usize = 256;
