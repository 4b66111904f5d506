//! The hello, bit by bit: the first bytes of a client, in the clear. What it claims is worth nothing until the key is proven.

use super::claim::MAX_NAME;
use super::gather::Gather;
use super::{Claim, ClaimError, HandshakeError, JobName, Session};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Plane {
    /// Requests to a store.
    Store = 1,
    /// Reserved: life and death of the members of a world.
    Control = 2,
    /// Between two ranks: elements, messages, and what ranks say of themselves.
    Data = 3,
}

/// How a connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    Plain = 0,
    Sealed = 1,
}

/// A hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) mode: Mode,
    pub(crate) plane: Plane,
    pub(crate) claim: Claim,
}

impl Hello {
    /// The bytes on the wire.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Hello { mode, plane, claim } = self;
        let job = claim.job().as_str().as_bytes();
        let mut bytes = Vec::with_capacity(HEAD + MAX_BODY);
        bytes.extend_from_slice(&MAGIC);
        // A name has at most 64 bytes.
        bytes.extend_from_slice(&((FIXED_BODY + job.len()) as u16).to_le_bytes());
        bytes.extend_from_slice(&[*mode as u8, *plane as u8, job.len() as u8]);
        bytes.extend_from_slice(job);
        bytes.extend_from_slice(&claim.epoch().to_le_bytes());
        bytes.extend_from_slice(&claim.rank().unwrap_or(NO_RANK).to_le_bytes());
        bytes.extend_from_slice(&claim.world_size().to_le_bytes());
        bytes.extend_from_slice(claim.session().as_bytes());
        bytes
    }

    /// Begins to collect a hello.
    pub(crate) fn gather() -> Gather {
        Gather::new(HEAD)
    }

    /// Moves bytes into `gather` and says how many, with the hello once it is whole.
    ///
    /// Wrong bytes are refused as soon as they are here, so that other programs' clients are turned away at once.
    pub(crate) fn read(gather: &mut Gather, bytes: &[u8]) -> Result<(usize, Option<Hello>), HandshakeError> {
        let head = gather.take(bytes);
        let body_len = match check_head(gather.bytes())? {
            Some(body_len) => body_len,
            None => return Ok((head, None)),
        };
        gather.extend(HEAD + body_len);
        let taken = head + gather.take(&bytes[head..]);
        let hello = gather.is_full().then(|| Hello::decode(&gather.bytes()[HEAD..])).transpose()?;
        Ok((taken, hello))
    }

    fn decode(body: &[u8]) -> Result<Hello, HandshakeError> {
        let wrong = || length(HEAD + body.len());
        let ([mode, plane, job_len], rest) = body.split_first_chunk().ok_or_else(wrong)?;
        let (mode, plane) = (Mode::decode(*mode)?, Plane::decode(*plane)?);
        let (job, rest) = rest.split_at_checked(usize::from(*job_len)).ok_or_else(wrong)?;
        let (epoch, rest) = number(rest).ok_or_else(wrong)?;
        let (rank, rest) = number(rest).ok_or_else(wrong)?;
        let (world, rest) = number(rest).ok_or_else(wrong)?;
        let session = <[u8; 16]>::try_from(rest).map_err(|_| wrong())?;
        let claim = Claim::new(job_name(job)?, epoch, Session::from(session));
        let claim = if rank == NO_RANK { claim.world(world) } else { claim.member(rank, world)? };
        Ok(Hello { mode, plane, claim })
    }
}

impl Mode {
    fn decode(number: u8) -> Result<Mode, HandshakeError> {
        [Mode::Plain, Mode::Sealed]
            .into_iter()
            .find(|mode| *mode as u8 == number)
            .ok_or(HandshakeError::Mode { theirs: number })
    }
}

impl Plane {
    fn decode(number: u8) -> Result<Plane, HandshakeError> {
        let planes = [Plane::Store, Plane::Control, Plane::Data];
        planes.into_iter().find(|plane| *plane as u8 == number).ok_or(HandshakeError::Plane { theirs: number })
    }
}

/// The length of the body, once the head is whole.
fn check_head(bytes: &[u8]) -> Result<Option<usize>, HandshakeError> {
    let known = bytes.len().min(MAGIC.len());
    let name = known.min(MAGIC.len() - 1);
    if bytes[..name] != MAGIC[..name] {
        return Err(HandshakeError::Magic { start: bytes[..known].to_vec() });
    }
    if known == MAGIC.len() && bytes[name] != VERSION {
        return Err(HandshakeError::Version { theirs: bytes[name].into(), ours: VERSION.into() });
    }
    let Some(len) = bytes.get(MAGIC.len()..HEAD) else { return Ok(None) };
    let body_len = usize::from(u16::from_le_bytes([len[0], len[1]]));
    match (FIXED_BODY + 1..=MAX_BODY).contains(&body_len) {
        true => Ok(Some(body_len)),
        false => Err(length(HEAD + body_len)),
    }
}

fn length(len: usize) -> HandshakeError {
    HandshakeError::Length { message: "hello", len, expected: "42 to 105, as its parts say," }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

fn job_name(bytes: &[u8]) -> Result<JobName, ClaimError> {
    JobName::new(&String::from_utf8_lossy(bytes))
}

/// The protocol's version, which is the last byte of the magic.
pub(crate) const VERSION: u8 = 1;
/// What every hello begins with.
pub(crate) const MAGIC: [u8; 8] = *b"PHALANX\x01";
/// Magic and length.
const HEAD: usize = MAGIC.len() + 2;
/// A body without the job's name.
const FIXED_BODY: usize = 3 + 3 * 4 + 16;
const MAX_BODY: usize = FIXED_BODY + MAX_NAME;
const NO_RANK: u32 = u32::MAX;
