//! Records for the data between ranks, encrypted or authenticated at the speed of the processor's own instructions. Not those
//! of the handshake, and not the bytes under way: whoever owns the socket keeps them.
//!
//! Each direction has a key of its own and numbers its records; the number makes the nonce, so that a record that was changed,
//! dropped, repeated or moved, cut or joined to another is refused, and nothing after it is read.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::key::derive;
use super::noise::{Secrets, TAG};
use super::{HandshakeError, TunnelError};

/// By which cipher records are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cipher {
    /// AES-256-GCM, where the processor has instructions for both halves.
    Aes = 1,
    /// ChaCha20-Poly1305, which any processor does well.
    ChaCha = 2,
}

/// What a record hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cover {
    /// What it carries, and that none of it was changed.
    Encrypted = 1,
    /// What it carries travels in clear, before a tag that shows that none of it was changed.
    Authenticated = 2,
}

/// How the records of a connection are protected, both directions alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) cipher: Cipher,
    pub(crate) cover: Cover,
}

/// The direction towards the peer.
pub(crate) struct RecordSealer(Keys);

/// The direction from the peer.
pub(crate) struct RecordOpener {
    keys: Keys,
    broken: bool,
}

/// The keys of one direction, one after the other.
struct Keys {
    suite: Suite,
    secret: Zeroizing<[u8; 32]>,
    key: LessSafeKey,
    /// Records so far.
    count: u64,
}

impl Cipher {
    /// What this processor does best.
    pub(crate) fn of_this_processor() -> Cipher {
        #[cfg(target_arch = "x86_64")]
        let has_aes = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let has_aes = std::arch::is_aarch64_feature_detected!("aes");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes = false;
        if has_aes { Cipher::Aes } else { Cipher::ChaCha }
    }

    /// The cipher with this number.
    pub(crate) fn of_number(number: u8) -> Option<Cipher> {
        [Cipher::Aes, Cipher::ChaCha].into_iter().find(|cipher| *cipher as u8 == number)
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes => &AES_256_GCM,
            Cipher::ChaCha => &CHACHA20_POLY1305,
        }
    }
}

impl Suite {
    /// Both directions of a connection whose handshake ended in these secrets.
    pub(crate) fn keys(self, secrets: &Secrets) -> Result<(RecordSealer, RecordOpener), HandshakeError> {
        let opener = RecordOpener { keys: self.direction(&secrets.theirs)?, broken: false };
        Ok((RecordSealer(self.direction(&secrets.ours)?), opener))
    }

    fn direction(self, secret: &[u8; 32]) -> Result<Keys, HandshakeError> {
        let secret = derive(secret, LABEL, &[self.cipher as u8, self.cover as u8])?;
        let key = key(self.cipher, &secret).map_err(|_| failed())?;
        Ok(Keys { suite: self, secret, key, count: 0 })
    }
}

impl RecordSealer {
    /// What a record adds to what it carries: its length and its tag.
    pub(crate) const OVERHEAD: usize = HEAD + TAG;
    /// The most that one record carries.
    pub(crate) const MOST: usize = MOST;

    /// Whether what a record carries is still to be read in it.
    pub(crate) fn is_clear(&self) -> bool {
        self.0.suite.cover == Cover::Authenticated
    }

    /// Writes the record that carries `bytes`, of which there are 1 to [`MOST`](RecordSealer::MOST), to the front of `out`,
    /// and says how long it is.
    pub(crate) fn seal(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<usize, TunnelError> {
        let len = bytes.len() + RecordSealer::OVERHEAD;
        let (front, rest) = out[..len].split_at_mut(HEAD);
        let (text, tag) = rest.split_at_mut(bytes.len());
        front.copy_from_slice(&head(bytes));
        if self.is_clear() {
            text.copy_from_slice(bytes);
            tag.copy_from_slice(&self.tag(bytes)?);
            return Ok(len);
        }
        let (key, nonce) = self.0.next()?;
        let sealed = key.seal_out_of_place_scatter(nonce, Aad::empty(), bytes, text, &[], tag);
        sealed.map(|()| len).map_err(|_| TunnelError::Exhausted)
    }

    /// What stands before and behind `bytes` where they travel in clear.
    pub(crate) fn embrace(&mut self, bytes: &[u8]) -> Result<([u8; HEAD], [u8; TAG]), TunnelError> {
        debug_assert!(self.is_clear());
        Ok((head(bytes), self.tag(bytes)?))
    }

    /// The tag over bytes that travel in clear.
    fn tag(&mut self, bytes: &[u8]) -> Result<[u8; TAG], TunnelError> {
        let (key, nonce) = self.0.next()?;
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(bytes), &mut []);
        tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).ok_or(TunnelError::Exhausted)
    }
}

impl RecordOpener {
    /// Opens a record into `into`, which is as long as what it carries; `wire` is the record behind its length.
    ///
    /// Where it fails, `into` has no meaning, and every later call fails.
    pub(crate) fn open(&mut self, wire: &[u8], into: &mut [u8]) -> Result<(), TunnelError> {
        if self.broken {
            return Err(TunnelError::Broken);
        }
        self.try_open(wire, into).inspect_err(|_| self.broken = true)
    }

    fn try_open(&mut self, wire: &[u8], into: &mut [u8]) -> Result<(), TunnelError> {
        let (text, tag) = wire.split_at_checked(into.len()).ok_or(TunnelError::Forged)?;
        let cover = self.keys.suite.cover;
        let (key, nonce) = self.keys.next()?;
        let opened = match cover {
            Cover::Encrypted => key.open_separate_gather(nonce, Aad::empty(), text, tag, into),
            Cover::Authenticated => key.open_separate_gather(nonce, Aad::from(text), &[], tag, &mut []),
        };
        opened.map_err(|_| TunnelError::Forged)?;
        if cover == Cover::Authenticated {
            into.copy_from_slice(text);
        }
        Ok(())
    }
}

impl Keys {
    /// The key and the nonce of the next record.
    fn next(&mut self) -> Result<(&LessSafeKey, Nonce), TunnelError> {
        if self.count > 0 && self.count.is_multiple_of(RENEWAL) {
            self.secret = derive(&self.secret, LABEL, &[]).map_err(|_| TunnelError::Exhausted)?;
            self.key = key(self.suite.cipher, &self.secret)?;
        }
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.count.to_le_bytes());
        self.count = self.count.checked_add(1).ok_or(TunnelError::Exhausted)?;
        Ok((&self.key, Nonce::assume_unique_for_key(nonce)))
    }
}

/// How much the record carries whose first bytes these are, once they say so.
pub(crate) fn record_len(wire: &[u8]) -> Result<Option<usize>, TunnelError> {
    let Some(len) = wire.first_chunk() else { return Ok(None) };
    let len = u32::from_le_bytes(*len) as usize;
    // A record that carries nothing would be work for nothing.
    if (1..=MOST).contains(&len) { Ok(Some(len)) } else { Err(TunnelError::Length { len }) }
}

impl fmt::Debug for RecordSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSealer").field("suite", &self.0.suite).field("count", &self.0.count).finish()
    }
}

impl fmt::Debug for RecordOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordOpener { keys, broken } = self;
        let mut shown = f.debug_struct("RecordOpener");
        shown.field("suite", &keys.suite).field("count", &keys.count).field("broken", broken).finish()
    }
}

fn head(bytes: &[u8]) -> [u8; HEAD] {
    debug_assert!((1..=MOST).contains(&bytes.len()));
    (bytes.len() as u32).to_le_bytes()
}

fn key(cipher: Cipher, secret: &[u8; 32]) -> Result<LessSafeKey, TunnelError> {
    let key = UnboundKey::new(cipher.algorithm(), secret);
    key.map(LessSafeKey::new).map_err(|_| TunnelError::Exhausted)
}

fn failed() -> HandshakeError {
    HandshakeError::System { what: "the keys of records", detail: "the cipher refused them".to_owned() }
}

const LABEL: &str = "phalanx records";
const HEAD: usize = size_of::<u32>();
/// What is sealed and opened at once, and stays in the second-level cache meanwhile.
const MOST: usize = 64 << 10;
/// After how many records a key gives way to the next: 64 GiB, far below what one AES key may carry.
const RENEWAL: u64 = if cfg!(test) { 16 } else { 1 << 20 };

#[cfg(test)]
mod tests;
