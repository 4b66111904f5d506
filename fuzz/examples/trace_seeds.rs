//! Writes the seeds of target `trace`: `cargo run --example trace_seeds`, from any directory.

use std::error::Error;
use std::fs;
use std::path::Path;

use phalanx_trace::torch::{self, Messages};
use phalanx_trace::{Dump, Entry, FORMAT, Site, State, TracedGroup};

fn main() -> Result<(), Box<dyn Error>> {
    let dump = dump();
    write("json", 1, dump.to_json().as_bytes())?;
    let ours = torch::encode(&dump, Messages::Keep);
    write("pickle-ours", 0, &ours)?;
    // Without the key that holds the dump whole, it is read as PyTorch's.
    let at = ours.windows(7).position(|bytes| bytes == b"phalanx").ok_or("the key")?;
    write("pickle-torch", 0, &[&ours[..at], b"unknown", &ours[at + 7..]].concat())
}

fn dump() -> Dump {
    let group = |name: &str, members| TracedGroup { name: name.to_owned(), members, ..TracedGroup::default() };
    let kinds = ["all_reduce", "all_gather", "send", "recv", "barrier"];
    let states = [State::Done, State::Done, State::Queued, State::Started, State::Failed("timeout".to_owned())];
    let entries = kinds.into_iter().zip(states).zip(0..).map(|((kind, state), number)| entry(kind, state, number));
    Dump {
        format: FORMAT,
        rank: 0,
        world_size: Some(2),
        met_ns: Some(1_700_000_000_000_000_000),
        host_name: Some("host".to_owned()),
        pid: Some(7),
        taken_ns: Some(1_700_000_100_000_000_000),
        groups: vec![group("world", Some(vec![0, 1])), group("pair", None)],
        entries: entries.collect(),
    }
}

fn entry(kind: &str, state: State, number: u64) -> Entry {
    let is_message = matches!(kind, "send" | "recv");
    Entry {
        group: (number % 2) as usize,
        record: number,
        sequence: number,
        kind: kind.to_owned(),
        is_message,
        dtype: Some("f32".to_owned()),
        reduce: (kind == "all_reduce").then(|| "sum".to_owned()),
        peer: is_message.then_some(1),
        tag: is_message.then_some(5),
        input: 4,
        output: 8,
        even: true,
        site: Some(Site { file: "train.rs".to_owned(), line: 7, function: None }),
        created_ns: 1_700_000_000_000_000_000 + number,
        started_ns: Some(1_700_000_000_000_000_100),
        ended_ns: (state == State::Done).then_some(1_700_000_000_000_000_200),
        state,
        timeout_ns: Some(1_000_000_000),
    }
}

/// A seed: the reader, and the file.
fn write(name: &str, reader: u8, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/trace").join(name);
    fs::create_dir_all(path.parent().ok_or("a directory")?)?;
    fs::write(path, [&[reader], bytes].concat())?;
    Ok(())
}
