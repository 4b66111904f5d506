//! Checkpoints that somebody made up, with the right checksums.

use std::fs;

use phalanx_checkpoint::{Checkpoint, Error};
use serde_json::{Value, json};

use crate::{Place, file_of, save};

/// Why a checkpoint is refused whose index was changed and sealed again.
fn refusal(change: impl FnOnce(&mut Value)) -> String {
    let place = Place::new();
    save(&place.0, 2, &[1]);
    let file = file_of(&place.0, "index.json");
    let mut sealed: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("an index");
    change(&mut sealed["index"]);
    sealed["crc32c"] = json!(crc32c::crc32c(sealed["index"].to_string().as_bytes()));
    fs::write(&file, sealed.to_string()).expect("a file");
    let loaded = Checkpoint::open(file.parent().expect("a directory")).and_then(|mut checkpoint| {
        let tensors: Vec<(String, usize)> =
            checkpoint.tensors().map(|(name, _, shape)| (name.to_owned(), shape.iter().product())).collect();
        tensors.iter().try_for_each(|(name, len)| checkpoint.bytes(name, 0..*len).map(drop))
    });
    let error = loaded.expect_err("refused");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    error.to_string()
}

/// That no index is believed to say how much memory there must be.
#[test]
fn lengths_beyond_what_the_files_hold_are_refused() {
    let bias_of = |len: u64| {
        move |index: &mut Value| {
            let bias = &mut index["tensors"]["bias"];
            let file = bias["pieces"][0]["file"].clone();
            *bias = json!({"dtype": "F32", "shape": [len], "pieces": [{"file": file, "start": 0, "len": len}]});
        }
    };
    for len in [1000, 1 << 40, 1 << 61, 1 << 62, u64::MAX] {
        let refused = refusal(bias_of(len));
        assert!(refused.contains(&format!("is shorter than {len} elements of it")), "{refused}");
    }
    assert!(refusal(bias_of(50)).contains("it does not hold the piece of bias that the index says"));
    for bytes in [1_u64 << 43, u64::MAX] {
        let of_bytes = |index: &mut Value| {
            bias_of(1 << 40)(index);
            index["files"].as_object_mut().expect("files").values_mut().for_each(|seal| seal["bytes"] = json!(bytes));
        };
        assert!(refusal(of_bytes).contains(&format!("bytes, must be {bytes}")));
    }
}

/// A small file is not told to be a large tensor again and again.
#[test]
fn a_file_holds_no_tensor_twice() {
    let twice = |index: &mut Value| {
        let file = index["tensors"]["bias"]["pieces"][0]["file"].clone();
        let span = |start| json!({"file": file, "start": start, "len": 3});
        index["tensors"]["bias"] = json!({"dtype": "F32", "shape": [6], "pieces": [span(0), span(3)]});
    };
    assert!(refusal(twice).contains("has two pieces of it"));
}
