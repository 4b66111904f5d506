//! Any bytes to the readers of dumps, ours and PyTorch's, and what they understand on to the analysis and the drawings.
//!
//! The first byte of an input chooses the reader; the rest is the file. Nothing may panic or take long, and a dump that was read
//! is written again as the same dump.
#![no_main]

use libfuzzer_sys::fuzz_target;
use phalanx_trace::pickle::Limits;
use phalanx_trace::torch::{self, Messages};
use phalanx_trace::{Dump, analyse, page, perfetto};

fuzz_target!(|input: &[u8]| {
    let [reader, bytes @ ..] = input else { return };
    let limits = Limits::default().values(1 << 16).looks(1 << 20);
    let dump = if reader % 2 == 0 { torch::decode(bytes, 1, &limits) } else { Dump::from_json(bytes) };
    let Ok(dump) = dump else { return };
    assert_eq!(Dump::from_json(dump.to_json().as_bytes()).as_ref(), Ok(&dump));
    let messages = Messages::of(std::slice::from_ref(&dump));
    assert_eq!(torch::decode(&torch::encode(&dump, messages), dump.rank, &Limits::default()).as_ref(), Ok(&dump));
    // A second rank that knows the same, so that there is something to compare.
    let other = Dump { rank: dump.rank ^ 1, ..dump.clone() };
    let dumps = [dump, other];
    let report = analyse(&dumps);
    let told = (report.to_string(), report.to_json().to_string());
    let drawn = (page::html(&dumps, &report), perfetto::trace(&dumps, &report).to_string());
    std::hint::black_box((told, drawn));
});
