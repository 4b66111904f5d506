//! The text that is learned, as numbers, and which rows of it a step takes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use candle_core::{Device, Tensor};

use crate::failure::Failure;

/// A text, each character as its number among all that occur.
#[derive(Debug)]
pub(super) struct Corpus {
    letters: Vec<char>,
    ids: Vec<u32>,
    crc32c: u32,
}

impl Corpus {
    /// The text of a file, or the one that comes with the program.
    pub(super) fn read(file: Option<&Path>) -> Result<Corpus, Failure> {
        let Some(path) = file else { return Ok(Corpus::of(GENESIS)) };
        let read = fs::read_to_string(path);
        let text = read.map_err(|error| Failure::Stopped(format!("--text {}: {error}", path.display())))?;
        Ok(Corpus::of(&text))
    }

    fn of(text: &str) -> Corpus {
        let letters: Vec<char> = text.chars().collect::<BTreeSet<_>>().into_iter().collect();
        let id = |letter| letters.binary_search(&letter).unwrap_or_default() as u32;
        Corpus { ids: text.chars().map(id).collect(), letters, crc32c: crc32c::crc32c(text.as_bytes()) }
    }

    /// Refuses a text that has no row of this length.
    pub(super) fn check(&self, context: usize) -> Result<(), Failure> {
        match self.ids.len() > context {
            true => Ok(()),
            false => Err(Failure::Stopped(format!(
                "the text has {} characters: must be more than --context {context}",
                self.ids.len()
            ))),
        }
    }

    /// How many characters there are.
    pub(super) fn vocabulary(&self) -> usize {
        self.letters.len()
    }

    /// What tells this text from another.
    pub(super) fn mark(&self) -> String {
        format!("{:08x}", self.crc32c)
    }

    /// Rows of a step, numbered over all ranks: what is seen, and what follows each character.
    pub(super) fn rows(
        &self,
        seed: u64,
        step: u64,
        rows: std::ops::Range<usize>,
        context: usize,
    ) -> candle_core::Result<(Tensor, Tensor)> {
        let start = |row: usize| {
            let mixed =
                [step, row as u64].iter().fold(seed, |mixed, part| (mixed ^ part).wrapping_mul(ODD).rotate_left(29));
            fastrand::Rng::with_seed(mixed).usize(..self.ids.len() - context)
        };
        let starts: Vec<usize> = rows.map(start).collect();
        let part = |shift: usize| {
            let ids = starts.iter().flat_map(|start| &self.ids[start + shift..start + shift + context]);
            Tensor::from_vec(ids.copied().collect::<Vec<u32>>(), (starts.len(), context), &Device::Cpu)
        };
        Ok((part(0)?, part(1)?))
    }

    /// The character of a number.
    pub(super) fn letter(&self, id: u32) -> char {
        self.letters.get(id as usize).copied().unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    /// The number of a line's end, with which a sample begins, or of any character.
    pub(super) fn first(&self) -> u32 {
        self.letters.binary_search(&'\n').unwrap_or_default() as u32
    }
}

/// The King James Version, whose copyright has expired; as Debian's package `bible-kjv-text` has it.
const GENESIS: &str = include_str!("../../data/genesis.txt");
/// Odd, with bits everywhere: the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_from_seed_step_and_number() {
        let corpus = Corpus::read(None).unwrap();
        let rows = |seed, step, rows| {
            let (seen, next) = corpus.rows(seed, step, rows, 8).unwrap();
            (seen.to_vec2::<u32>().unwrap(), next.to_vec2::<u32>().unwrap())
        };
        let (seen, next) = rows(1, 2, 0..4);
        assert_eq!((&seen[2..], &next[2..]), (&rows(1, 2, 2..4).0[..], &rows(1, 2, 2..4).1[..]));
        assert_ne!(seen, rows(1, 3, 0..4).0);
        assert_ne!(seen, rows(2, 2, 0..4).0);
        assert_ne!(seen[0], seen[1]);
        assert_eq!(seen[0][1..], next[0][..7]);
        assert!(seen.iter().flatten().all(|id| (*id as usize) < corpus.vocabulary()));
    }

    #[test]
    fn letters_have_numbers() {
        let corpus = Corpus::of("banana\n");
        assert_eq!((corpus.vocabulary(), corpus.ids.as_slice()), (4, &[2, 1, 3, 1, 3, 1, 0][..]));
        assert_eq!((corpus.letter(3), corpus.letter(9), corpus.first()), ('n', char::REPLACEMENT_CHARACTER, 0));
        assert!(corpus.check(6).is_ok() && corpus.check(7).is_err());
    }

    /// Those of checkpoints that were saved before.
    #[test]
    fn the_mark_of_a_text_is_the_checksum_of_its_bytes() {
        assert_eq!(Corpus::of("banana\n").mark(), "a736e347");
        assert_eq!(Corpus::of("größe\n").mark(), "bc69c212");
        assert_eq!(Corpus::of(GENESIS).mark(), "5a2d5cbd");
    }
}
