//! Copying between private bytes and memory that others write at the same time: every access is one atomic word.
//!
//! # Why whole words
//!
//! The memory model gives no meaning to accesses of different sizes that race on the same memory. So shared memory is
//! only ever touched in aligned 64-bit words: a torn copy then yields stale or mixed bytes, never undefined behaviour.

use std::sync::atomic::{AtomicU64, Ordering};

/// Copies `bytes` into `words`, from byte `skip` of the first word on. The words must be exactly those touched.
pub(crate) fn store(words: &[AtomicU64], skip: usize, bytes: &[u8]) {
    let (head, rest) = bytes.split_at(head_byte_len(skip, bytes.len()));
    let (whole, tail) = rest.as_chunks::<WORD>();
    let (first, words) = words.split_at(usize::from(!head.is_empty()));
    for word in first {
        store_part(word, skip, head);
    }
    for (word, value) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
    }
    for word in &words[whole.len()..] {
        store_part(word, 0, tail);
    }
}

/// Copies out of `words` into `bytes`, from byte `skip` of the first word on. The words must be exactly those touched.
pub(crate) fn load(words: &[AtomicU64], skip: usize, bytes: &mut [u8]) {
    let head_byte_len = head_byte_len(skip, bytes.len());
    let (head, rest) = bytes.split_at_mut(head_byte_len);
    let (whole, tail) = rest.as_chunks_mut::<WORD>();
    let (first, words) = words.split_at(usize::from(!head.is_empty()));
    for word in first {
        load_part(word, skip, head);
    }
    for (word, value) in words.iter().zip(whole.iter_mut()) {
        *value = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    for word in &words[whole.len()..] {
        load_part(word, 0, tail);
    }
}

/// The number of words that `byte_len` bytes from byte `skip` of a word on touch.
pub(crate) fn touched(skip: usize, byte_len: usize) -> usize {
    if byte_len == 0 { 0 } else { (skip + byte_len).div_ceil(WORD) }
}

/// The bytes before the first whole word.
fn head_byte_len(skip: usize, byte_len: usize) -> usize {
    if skip == 0 { 0 } else { byte_len.min(WORD - skip) }
}

/// Replaces some bytes of a word and leaves its others to whoever writes them meanwhile.
fn store_part(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let replaced = |old: u64| {
        let mut value = old.to_ne_bytes();
        value[skip..skip + bytes.len()].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(value))
    };
    // The closure always answers, so the update cannot fail.
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, replaced);
}

fn load_part(word: &AtomicU64, skip: usize, bytes: &mut [u8]) {
    let value = word.load(Ordering::Relaxed).to_ne_bytes();
    bytes.copy_from_slice(&value[skip..skip + bytes.len()]);
}

/// The bytes of a word.
pub(crate) const WORD: usize = size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_and_length_within_three_words() {
        for skip in 0..WORD {
            for byte_len in 0..=(3 * WORD - skip) {
                let memory: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(u64::MAX)).collect();
                let bytes: Vec<u8> = (1..=byte_len as u8).collect();
                let words = &memory[..touched(skip, byte_len)];
                store(words, skip, &bytes);
                let mut back = vec![0; byte_len];
                load(words, skip, &mut back);
                assert_eq!(back, bytes);
                let all: Vec<u8> = memory.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
                assert_eq!(all[skip..skip + byte_len], bytes);
                assert!(all[..skip].iter().chain(&all[skip + byte_len..]).all(|&byte| byte == 0xff));
            }
        }
    }
}
