//! A communicator's configuration as one version of the library reads it: bytes that grew with the versions, each with its own
//! length and version in front. A library reads no further than that, and leaves what was added later at its defaults.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::Mutex;

use rustc_hash::FxHashMap;

use crate::api::{CommConfig, Version};
use crate::register::locked;

/// The configuration in memory.
#[derive(Debug)]
pub(super) struct Image {
    /// Words, because the library reads it as a structure of that alignment.
    words: [u64; LONGEST / 8],
    byte_len: usize,
}

impl Image {
    /// As this version reads it, or the newest that is known here.
    pub(super) fn of(config: &CommConfig, version: Version, names: &Names) -> Image {
        let version = version.min(NEWEST);
        let text = |name: &Option<String>| name.as_ref().map_or(ptr::null(), |name| names.pointer(name));
        let flag = |flag: Option<bool>| Value::Number(flag.map(i32::from));
        let values = [
            Value::Number(Some(i32::from(config.blocking))),
            Value::Number(config.cga_cluster_size),
            Value::Number(config.min_ctas),
            Value::Number(config.max_ctas),
            Value::Text(text(&config.net_name)),
            flag(config.split_share),
            Value::Number(config.traffic_class),
            Value::Text(text(&config.name)),
            flag(config.collnet),
            Value::Number(config.cta_policy),
            flag(config.shrink_share),
            Value::Number(config.nvls_ctas),
            Value::Number(config.channels_per_net_peer),
            flag(config.nvlink_central),
        ];
        // What nobody can ask for yet is there as unset.
        let values = values.into_iter().chain(std::iter::repeat(Value::Number(None)));
        let mut image = Image { words: [0; LONGEST / 8], byte_len: HEADER };
        for ((offset, _), value) in FIELDS.into_iter().zip(values).filter(|((_, since), _)| *since <= version) {
            image.put(offset, value);
        }
        image.byte_len = image.byte_len.next_multiple_of(8);
        image.header(version);
        image
    }

    /// For a call that takes it in. The library copies it before the call returns, but for the names.
    pub(super) fn pointer(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }

    /// The bytes that the library reads.
    #[cfg(test)]
    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).take(self.byte_len).collect()
    }

    fn header(&mut self, version: Version) {
        self.words[0] = self.byte_len as u64;
        self.bytes_at(8, MAGIC.to_ne_bytes());
        self.bytes_at(12, version.code().to_ne_bytes());
    }

    fn put(&mut self, offset: usize, value: Value) {
        match value {
            Value::Number(number) => self.bytes_at(offset, number.unwrap_or(UNSET).to_ne_bytes()),
            Value::Text(pointer) => self.bytes_at(offset, pointer.expose_provenance().to_ne_bytes()),
        }
        let byte_len = if matches!(value, Value::Number(_)) { 4 } else { 8 };
        self.byte_len = self.byte_len.max(offset + byte_len);
    }

    fn bytes_at<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        for (index, byte) in (offset..).zip(bytes) {
            let mut word = self.words[index / 8].to_ne_bytes();
            word[index % 8] = byte;
            self.words[index / 8] = u64::from_ne_bytes(word);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Number(Option<i32>),
    Text(*const c_char),
}

/// Names that the library was given. It keeps the pointers, and does not say until when; so they stay, each name once.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<FxHashMap<String, &'static CStr>>);

impl Names {
    fn pointer(&self, name: &str) -> *const c_char {
        let mut held = locked(&self.0);
        if let Some(text) = held.get(name) {
            return text.as_ptr();
        }
        let text: Vec<u8> = name.bytes().filter(|byte| *byte != 0).collect();
        let text: &'static CStr = Box::leak(CString::new(text).unwrap_or_default().into_boxed_c_str());
        held.insert(name.to_owned(), text);
        text.as_ptr()
    }
}

/// Where the fields are, in the order of the structure, and since when.
const FIELDS: [(usize, Version); 23] = [
    (16, Version::new(2, 14, 0)),
    (20, Version::new(2, 17, 0)),
    (24, Version::new(2, 17, 0)),
    (28, Version::new(2, 17, 0)),
    (32, Version::new(2, 17, 0)),
    (40, Version::new(2, 18, 0)),
    // Where there was nothing before, so that the length is the same.
    (44, Version::new(2, 25, 0)),
    (48, Version::new(2, 27, 0)),
    (56, Version::new(2, 27, 0)),
    (60, Version::new(2, 27, 0)),
    (64, Version::new(2, 27, 0)),
    (68, Version::new(2, 27, 0)),
    (72, Version::new(2, 28, 0)),
    (76, Version::new(2, 28, 0)),
    // `graphUsageMode` and `numRmaCtx`.
    (80, Version::new(2, 29, 0)),
    (84, Version::new(2, 29, 0)),
    // `maxP2pPeers` and `graphStreamOrdering`.
    (88, Version::new(2, 30, 0)),
    (92, Version::new(2, 30, 5)),
    // `launchOrderImplicit`, `numRmaSig`, `rmaEagerInit` and `hostCftMode`.
    (96, Version::new(2, 31, 0)),
    (100, Version::new(2, 31, 0)),
    (104, Version::new(2, 31, 0)),
    (108, Version::new(2, 31, 0)),
    // `nvlsHostMode`.
    (112, Version::new(2, 32, 0)),
];
const NEWEST: Version = Version::new(2, 32, 3);
const LONGEST: usize = 120;
const HEADER: usize = 16;
const MAGIC: u32 = 0xcafe_beef;
const UNSET: i32 = i32::MIN;

#[cfg(test)]
mod tests;
