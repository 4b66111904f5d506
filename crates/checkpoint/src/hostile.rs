//! Bytes that no save has written, at both decoders: refused, or what is accepted lies within what is there.

use std::path::Path;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::file::Contents;
use crate::index::Index;
use crate::piece::byte_len;

/// Bytes at random, and sound ones in which some were changed, inserted or taken out, or whose end is missing.
fn mutated(sound: &[u8], random: &mut Rng) -> Vec<u8> {
    if random.u8(..) < 32 {
        return (0..random.usize(..64)).map(|_| random.u8(..)).collect();
    }
    let mut bytes = sound.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..bytes.len());
        match random.u8(..5) {
            0 => bytes[at] = random.u8(..),
            1 => bytes[at] = random.u8(b'0'..=b'9'),
            2 => bytes.insert(at, random.u8(b'0'..=b'9')),
            3 if at > 0 => drop(bytes.remove(at)),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

#[test]
fn any_bytes_of_a_file_are_refused_or_hold_what_they_say() {
    let header = concat!(
        r#"{"__metadata__":{"step":"3"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"#,
        r#""b":{"dtype":"U8","shape":[],"data_offsets":[24,25]},"c":{"dtype":"F4","shape":[4],"data_offsets":[25,27]}}"#
    );
    let sound = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[7; 27]].concat();
    let (mut random, mut accepted) = (Rng::with_seed(1), 0);
    for _ in 0..TURNS {
        let bytes = mutated(&sound, &mut random);
        let len = bytes.len();
        let Ok(contents) = Contents::parse(Path::new("file"), bytes, None) else { continue };
        let held = contents.tensors().map(|(name, place)| contents.tensor(name, place.dtype).expect("held").len());
        assert!(held.sum::<usize>() < len);
        accepted += 1;
    }
    assert!(accepted > TURNS / 100, "{accepted} accepted");
}

/// An index of two files, as it is below its checksum.
fn sound_index() -> Value {
    let seal = |bytes: u64| json!({"bytes": bytes, "crc32c": 5});
    let span = |file: &str, start: u64, len: u64| json!({"file": file, "len": len, "start": start});
    json!({
        "files": {"x": seal(200), "y": seal(300)},
        "format": 1,
        "progress": {"data": "after 3"},
        "step": 3,
        "tensors": {
            "a": {"dtype": "F32", "pieces": [span("x", 0, 4), span("y", 4, 2)], "shape": [2, 3]},
            "b": {"dtype": "U8", "pieces": [span("y", 0, 1)], "shape": []},
            "c": {"dtype": "F64", "pieces": [], "shape": [0, 7]},
        },
        "world": 2,
    })
}

fn sealed(index: &Value) -> String {
    json!({"crc32c": crc32c::crc32c(index.to_string().as_bytes()), "index": index}).to_string()
}

/// Whether an index is accepted; all that it then says there is has room in the files that it lists.
fn is_accepted(bytes: &[u8]) -> bool {
    let Ok(index) = Index::read(Path::new("index.json"), bytes) else { return false };
    let said = index.tensors.values().map(|tensor| byte_len(tensor.dtype, &tensor.shape).expect("a size") as u128);
    assert!(said.sum::<u128>() <= index.files.values().map(|seal| u128::from(seal.bytes)).sum());
    true
}

#[test]
fn any_bytes_of_an_index_are_refused_or_have_room_in_its_files() {
    let sound = sound_index().to_string();
    assert!(is_accepted(sealed(&sound_index()).as_bytes()));
    let mut random = Rng::with_seed(2);
    for _ in 0..TURNS {
        is_accepted(&mutated(sealed(&sound_index()).as_bytes(), &mut random));
        // With the right checksum, where it is JSON.
        if let Ok(index) = serde_json::from_slice::<Value>(&mutated(sound.as_bytes(), &mut random)) {
            is_accepted(sealed(&index).as_bytes());
        }
    }
}

/// All that is neither a list nor an object.
fn leaves(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(values) => values.iter_mut().flat_map(leaves).collect(),
        Value::Object(values) => values.values_mut().flat_map(leaves).collect(),
        leaf => vec![leaf],
    }
}

#[test]
fn any_values_in_an_index_are_refused_or_have_room_in_its_files() {
    let (mut random, mut accepted) = (Rng::with_seed(3), 0);
    let values = [0, 1, 2, 4, 6, 300, 1 << 40, 1 << 61, 1 << 62, u64::MAX].map(Value::from);
    let odd = [json!(-1), json!(0.5), json!(null), json!("x"), json!("../x"), json!("F4"), json!("I64")];
    let values = [&values[..], &odd].concat();
    for _ in 0..TURNS {
        let mut index = sound_index();
        let mut leaves = leaves(&mut index);
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..leaves.len());
            *leaves[at] = random.choice(&values).expect("a value").clone();
        }
        accepted += u32::from(is_accepted(sealed(&index).as_bytes()));
    }
    assert!(accepted > TURNS / 100, "{accepted} accepted");
}

const TURNS: u32 = 2_000;
