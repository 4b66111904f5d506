//! One rank's part in an operation: what it calls, with which bytes, and what must come of it.

use std::sync::Arc;

use phalanx_core::reduce::Factor;
use phalanx_core::{DType, Op};

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    pub(crate) factor: Option<Factor>,
    /// What the rank gives; absent when the operation works in place.
    pub(crate) input: Option<Vec<u8>>,
    /// What is in the output before.
    pub(crate) output: Vec<u8>,
    pub(crate) right: Right,
}

/// What must be in the output after.
#[derive(Clone, Debug)]
pub(crate) enum Right {
    /// These bytes from this place on; what lies beside them may be anything.
    Bytes { start: usize, bytes: Vec<u8> },
    /// What the rank that is named as the source has sent.
    Sent { by_rank: Arc<Vec<Vec<u8>>> },
}

impl Right {
    /// Where the output of a call differs.
    pub(crate) fn difference(&self, output: &[u8], source: Option<usize>) -> Option<String> {
        let (start, expected) = match self {
            Right::Bytes { start, bytes } => (*start, bytes),
            Right::Sent { by_rank } => match source.and_then(|source| by_rank.get(source)) {
                Some(sent) => (0, sent),
                None => return Some(format!("no source, but {source:?}")),
            },
        };
        let Some(got) = output.get(start..start + expected.len()) else {
            return Some(format!("{} bytes, too short for {}", output.len(), start + expected.len()));
        };
        let at = got.iter().zip(expected).position(|(got, expected)| got != expected)?;
        Some(format!("byte {} of {} is {:#x}, not {:#x}", start + at, output.len(), got[at], expected[at]))
    }
}

/// Bytes that look like any, the same for the same stem.
pub(super) fn bytes(stem: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(stem).fill(&mut bytes);
    bytes
}

/// What is in a buffer that must be overwritten.
pub(super) fn stale(len: usize) -> Vec<u8> {
    vec![0xA5; len]
}

#[test]
fn a_difference_is_told_by_its_place() {
    let right = Right::Bytes { start: 2, bytes: vec![7, 8] };
    assert_eq!(right.difference(&[0, 0, 7, 8, 0], None), None);
    assert_eq!(right.difference(&[0, 0, 7, 9, 0], None), Some("byte 3 of 5 is 0x9, not 0x8".to_owned()));
    assert_eq!(right.difference(&[0, 0, 7], None), Some("3 bytes, too short for 4".to_owned()));
    let right = Right::Sent { by_rank: Arc::new(vec![vec![], vec![5]]) };
    assert_eq!(right.difference(&[5], Some(1)), None);
    assert_eq!(right.difference(&[6], Some(1)), Some("byte 0 of 1 is 0x6, not 0x5".to_owned()));
    assert_eq!(right.difference(&[5], Some(2)), Some("no source, but Some(2)".to_owned()));
}
