//! What follows the handshake: a byte stream in records that are encrypted, or as it is. It keeps no bytes of its own. Not
//! the records of data between ranks, whose keys are derived from the same handshake.
//!
//! Each direction numbers its records, and the number is part of what a record's tag covers, so that a record that was
//! changed, dropped, repeated or moved is refused, and nothing after it is read. The numbers have 64 bits: at ten million
//! records a second they last for 58,000 years, so there is no change of keys.

use std::fmt;
use std::sync::Arc;

use snow::StatelessTransportState;

use super::TunnelError;
use super::noise::{Secrets, TAG};

/// Both directions of a connection.
#[derive(Debug)]
pub struct Tunnel {
    sealer: Sealer,
    opener: Opener,
    secrets: Option<Secrets>,
}

/// The direction towards the peer.
pub struct Sealer {
    keys: Option<Arc<StatelessTransportState>>,
    count: u64,
}

/// The direction from the peer.
pub struct Opener {
    keys: Option<Arc<StatelessTransportState>>,
    count: u64,
    broken: bool,
}

impl Tunnel {
    /// What a record adds to what it carries: its length and its tag.
    pub(crate) const OVERHEAD: usize = OVERHEAD;

    pub(crate) fn plain() -> Tunnel {
        Tunnel::new(None, None)
    }

    pub(crate) fn sealed((keys, secrets): (StatelessTransportState, Secrets)) -> Tunnel {
        Tunnel::new(Some(Arc::new(keys)), Some(secrets))
    }

    /// What the keys of other records than these are derived from; none where nothing is sealed.
    pub(crate) fn secrets(&self) -> Option<&Secrets> {
        self.secrets.as_ref()
    }

    /// See [`Sealer::seal`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TunnelError> {
        self.sealer.seal(plain, out)
    }

    /// See [`Opener::open`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open(&mut self, wire: &[u8], out: &mut Vec<u8>) -> Result<usize, TunnelError> {
        self.opener.open(wire, out)
    }

    /// Whether what travels is encrypted.
    pub fn is_sealed(&self) -> bool {
        self.sealer.keys.is_some()
    }

    /// The two directions apart, for two threads.
    pub fn split(self) -> (Sealer, Opener) {
        (self.sealer, self.opener)
    }

    fn new(keys: Option<Arc<StatelessTransportState>>, secrets: Option<Secrets>) -> Tunnel {
        let sealer = Sealer { keys: keys.clone(), count: 0 };
        Tunnel { sealer, opener: Opener { keys, count: 0, broken: false }, secrets }
    }
}

impl Sealer {
    /// Appends to `out` what carries `plain` to the peer: 18 bytes more for each 65,519 or part of them.
    ///
    /// # Errors
    ///
    /// [`Exhausted`](TunnelError::Exhausted) when no record can be numbered any more.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), TunnelError> {
        let Some(keys) = &self.keys else {
            out.extend_from_slice(plain);
            return Ok(());
        };
        out.reserve(plain.len() + plain.len().div_ceil(MAX_PLAIN) * OVERHEAD);
        for part in plain.chunks(MAX_PLAIN) {
            let start = out.len();
            // At most 65,535.
            out.extend_from_slice(&((part.len() + TAG) as u16).to_le_bytes());
            out.resize(start + OVERHEAD + part.len(), 0);
            let sealed = keys.write_message(self.count, part, &mut out[start + 2..]);
            sealed.map_err(|_| TunnelError::Exhausted)?;
            self.count += 1;
        }
        Ok(())
    }
}

impl Opener {
    /// Opens the whole records at the front of `wire`, appends what they carry to `out`, and says how many bytes of `wire`
    /// are done with. What is left is the start of a record, at most 65,536 bytes, to be brought again with what follows.
    ///
    /// # Errors
    ///
    /// When a record is not what the peer sealed next. What came before it has been appended; from then on every call
    /// fails.
    pub fn open(&mut self, wire: &[u8], out: &mut Vec<u8>) -> Result<usize, TunnelError> {
        if self.broken {
            return Err(TunnelError::Broken);
        }
        let Some(keys) = self.keys.clone() else {
            out.extend_from_slice(wire);
            return Ok(wire.len());
        };
        let mut done = 0;
        while let Some(record) = next_record(&wire[done..]).inspect_err(|_| self.broken = true)? {
            self.open_record(&keys, record, out)?;
            done += 2 + record.len();
        }
        Ok(done)
    }

    fn open_record(
        &mut self,
        keys: &StatelessTransportState,
        record: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), TunnelError> {
        let start = out.len();
        out.resize(start + record.len() - TAG, 0);
        match keys.read_message(self.count, record, &mut out[start..]) {
            Ok(_) => {
                self.count += 1;
                Ok(())
            }
            Err(_) => {
                // Nothing of a forged record is seen by anybody.
                out.truncate(start);
                self.broken = true;
                Err(TunnelError::Forged)
            }
        }
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sealed = self.keys.is_some();
        f.debug_struct("Sealer").field("sealed", &sealed).field("count", &self.count).finish()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sealed, Opener { count, broken, .. }) = (self.keys.is_some(), self);
        f.debug_struct("Opener").field("sealed", &sealed).field("count", count).field("broken", broken).finish()
    }
}

/// The record at the front, without its length, once it is whole.
fn next_record(wire: &[u8]) -> Result<Option<&[u8]>, TunnelError> {
    let Some((len, rest)) = wire.split_first_chunk() else { return Ok(None) };
    let len = usize::from(u16::from_le_bytes(*len));
    // A record that carries nothing would be work for nothing.
    if len <= TAG {
        return Err(TunnelError::Length { len });
    }
    Ok(rest.get(..len))
}

/// What a record adds: its length and its tag.
const OVERHEAD: usize = 2 + TAG;
/// The most that one record carries.
const MAX_PLAIN: usize = u16::MAX as usize - TAG;
