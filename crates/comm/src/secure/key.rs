//! The job key: 256 secret bits that every member of a job has and nobody else. Files and descriptors are another room's.

use std::fmt;
use std::io;
use std::sync::Arc;

use phalanx_mem::Secret;
use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use zeroize::Zeroizing;

use super::{HandshakeError, KeyError};

/// The secret of one job, 32 bytes. Clones share one copy in memory.
///
/// The bytes live in a page of their own that is not swapped, is left out of core files and is wiped on drop, as far as
/// the system allows. Nothing shows them but [`to_hex`](JobKey::to_hex). A process forked from the one that has the key
/// finds it wiped, and cannot use it: neither a stranger's guess of all zeros nor its own handshakes succeed there.
///
/// What a handshake needs is derived from the key, so that the memory of connections holds nothing of it. The keys of a
/// single connection live in ordinary memory while it lasts.
///
/// ```
/// # use phalanx_comm::secure::JobKey;
/// let key = JobKey::mint()?;
/// let digits = key.to_hex(); // what stands in a key file; wiped when it is dropped
/// assert_eq!((digits.len(), JobKey::from_hex(&digits)?.to_hex()), (64, digits));
/// assert_eq!(format!("{key:?}"), "JobKey(..)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct JobKey {
    secret: Arc<Secret<BYTES>>,
}

impl JobKey {
    /// A new key, from the system's random numbers.
    ///
    /// # Errors
    ///
    /// When the system gives no random numbers or no memory.
    pub fn mint() -> io::Result<JobKey> {
        let mut secret = Secret::zeroed()?;
        getrandom::fill(secret.bytes_mut())?;
        Ok(JobKey { secret: Arc::new(secret) })
    }

    /// The key that is written as 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// [`KeyError::Format`] for anything else, and for 64 zeros, which are no secret.
    pub fn from_hex(digits: &str) -> Result<JobKey, KeyError> {
        JobKey::from_digits(digits.as_bytes())
    }

    /// The key as 64 hexadecimal digits, wiped when dropped. To be handed to members of the job only.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut digits = Zeroizing::new(String::with_capacity(2 * BYTES));
        for byte in self.secret.bytes() {
            digits.extend([byte >> 4, byte & 15].map(digit));
        }
        digits
    }

    pub(crate) fn from_digits(digits: &[u8]) -> Result<JobKey, KeyError> {
        if digits.len() > 2 * BYTES {
            return Err(KeyError::Format { what: "is longer than 64 digits".into() });
        }
        if digits.len() < 2 * BYTES {
            return Err(KeyError::Format { what: format!("has {} of 64 digits", digits.len()).into() });
        }
        let mut secret = Secret::zeroed().map_err(KeyError::Memory)?;
        for (byte, pair) in secret.bytes_mut().iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (nibble(pair[0])? << 4) | nibble(pair[1])?;
        }
        match is_wiped(&secret) {
            true => Err(KeyError::Format { what: "is all zeros".into() }),
            false => Ok(JobKey { secret: Arc::new(secret) }),
        }
    }

    /// Another job key, for one purpose only: the same for all who have this one and say the same, and from it this one cannot be found.
    ///
    /// # Errors
    ///
    /// In a process forked from the one that has the key, and when the system has no memory.
    pub fn subkey(&self, label: &str, context: &[u8]) -> Result<JobKey, HandshakeError> {
        let derived = self.derive(label, context)?;
        let no_memory =
            |error: io::Error| HandshakeError::System { what: "memory for a key", detail: error.to_string() };
        let mut secret = Secret::zeroed().map_err(no_memory)?;
        secret.bytes_mut().copy_from_slice(&*derived);
        Ok(JobKey { secret: Arc::new(secret) })
    }

    /// Bytes for one purpose only, from which the key cannot be found.
    pub(crate) fn derive(&self, label: &str, context: &[u8]) -> Result<Zeroizing<[u8; BYTES]>, HandshakeError> {
        if is_wiped(&self.secret) {
            return Err(HandshakeError::Wiped);
        }
        derive(self.secret.bytes(), label, context)
    }
}

/// A key for one purpose only, from which `secret` cannot be found: HMAC-BLAKE2s over label, zero byte and context.
pub(super) fn derive(
    secret: &[u8; BYTES],
    label: &str,
    context: &[u8],
) -> Result<Zeroizing<[u8; BYTES]>, HandshakeError> {
    let hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s);
    let mut hash = hash.ok_or(HandshakeError::System { what: "BLAKE2s", detail: "not built in".to_owned() })?;
    let mut derived = Zeroizing::new([0; BYTES]);
    hash.hmac(secret, &[label.as_bytes(), &[0], context].concat(), &mut *derived);
    Ok(derived)
}

/// Nothing of the key.
impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

/// Whether nothing is left, as in a forked child.
fn is_wiped(secret: &Secret<BYTES>) -> bool {
    secret.bytes().iter().fold(0, |all, byte| all | byte) == 0
}

fn digit(nibble: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(nibble)])
}

fn nibble(digit: u8) -> Result<u8, KeyError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(KeyError::Format { what: "has a character that is no hexadecimal digit".into() }),
    }
}

const BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_keys_are_the_same_thing() {
        let digits = "00112233445566778899aabbccddeeff0123456789ABCDEFabcdef0123456789";
        let key = JobKey::from_hex(digits).expect("64 digits");
        assert_eq!(*key.to_hex(), digits.to_lowercase());
        let minted = JobKey::mint().expect("random bytes");
        assert_eq!(*JobKey::from_hex(&minted.to_hex()).expect("64 digits").to_hex(), *minted.to_hex());
        assert_ne!(*JobKey::mint().expect("random bytes").to_hex(), *minted.to_hex());
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        for digits in ["", "12", &"1".repeat(63), &"1".repeat(65), &"1g".repeat(32), &"0".repeat(64), &"é".repeat(32)]
        {
            let error = JobKey::from_hex(digits).expect_err(digits);
            assert!(matches!(error, KeyError::Format { .. }));
            assert!(!error.to_string().contains("1g") && !error.to_string().contains("11"), "{error}");
        }
        let told = |digits: &str| JobKey::from_hex(digits).expect_err("no key").to_string();
        assert_eq!(told(&"1".repeat(63)), "job key has 63 of 64 digits, must be 64 hexadecimal digits");
        assert_eq!(told(&"1".repeat(65)), "job key is longer than 64 digits, must be 64 hexadecimal digits");
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = JobKey::from_hex(&"ab".repeat(32)).expect("64 digits");
        assert_eq!(format!("{key:?} {:?}", Some(key.clone())), "JobKey(..) Some(JobKey(..))");
    }

    #[test]
    fn derived_keys_differ_by_key_label_and_context() {
        let [one, two] = ["11", "12"].map(|byte| JobKey::from_hex(&byte.repeat(32)).expect("64 digits"));
        let derive = |key: &JobKey, label, context: &[u8]| *key.derive(label, context).expect("a key");
        assert_eq!(derive(&one, "a", b"b"), derive(&one, "a", b"b"));
        assert_ne!(derive(&one, "a", b"b"), derive(&two, "a", b"b"));
        assert_ne!(derive(&one, "a", b"b"), derive(&one, "b", b"b"));
        assert_ne!(derive(&one, "a", b"b"), derive(&one, "a", b"c"));
        assert_ne!(derive(&one, "a", b"b"), derive(&one, "ab", b""));
    }

    #[test]
    fn a_subkey_is_the_same_for_all_who_have_the_key() {
        let [one, two] = ["11", "12"].map(|byte| JobKey::from_hex(&byte.repeat(32)).expect("64 digits"));
        let subkey = |key: &JobKey, label, context: &[u8]| key.subkey(label, context).expect("a key").to_hex();
        assert_eq!(subkey(&one, "door", b"1"), subkey(&one.clone(), "door", b"1"));
        for other in [subkey(&two, "door", b"1"), subkey(&one, "gate", b"1"), subkey(&one, "door", b"2"), one.to_hex()]
        {
            assert_ne!(subkey(&one, "door", b"1"), other);
        }
    }

    #[test]
    fn a_wiped_key_proves_nothing() {
        let wiped = JobKey { secret: Arc::new(Secret::zeroed().expect("a page")) };
        assert!(matches!(wiped.derive("a", b""), Err(HandshakeError::Wiped)));
        assert!(matches!(wiped.subkey("a", b""), Err(HandshakeError::Wiped)));
    }
}
