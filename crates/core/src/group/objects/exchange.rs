//! How bytes of unknown length travel: all ranks tell each other what they give, and once all agree, the bytes follow. When
//! they do not, every rank gets an error and nothing has moved.

use std::time::Duration;

use super::header::{Given, Header};
use crate::group::{Group, check};
use crate::{Counts, DType, Desync, Error, Op, OpKind, Result, Site};

/// What a rank gives to an exchange.
pub(super) enum Gift {
    /// This.
    Bytes(Vec<u8>),
    /// One for each rank.
    Each(Vec<Vec<u8>>),
    /// Nothing, as another rank gives alone.
    Nothing,
    /// Nothing, for this reason. The peers are told that there is one.
    Refused(Error),
}

/// One exchange: what all ranks must agree on.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'a> {
    pub(super) group: &'a Group,
    pub(super) kind: OpKind,
    /// The rank that gives or gets alone, or 0.
    pub(super) root: usize,
    pub(super) type_name: &'a str,
    pub(super) site: Site,
    /// When it began, by the backend's clock: what it is made of has one call's time.
    pub(super) began: Duration,
}

impl Exchange<'_> {
    /// Everybody gets what the root gives.
    pub(super) fn broadcast(self, gift: Gift) -> Result<Vec<u8>> {
        let lens = self.agree(&gift)?;
        let mut bytes = match gift {
            Gift::Bytes(bytes) => bytes,
            _ => self.room(lens[self.root])?,
        };
        self.run(Op::Broadcast { count: bytes.len(), root: self.root }, None, &mut bytes)?;
        Ok(bytes)
    }

    /// Everybody gets what everybody gives.
    pub(super) fn all_gather(self, gift: Gift) -> Result<Vec<Vec<u8>>> {
        let lens = self.agree(&gift)?;
        let Gift::Bytes(input) = gift else { return Ok(vec![]) };
        let mut whole = self.room(sum(&lens))?;
        self.run(Op::AllGather { counts: Counts::uneven(&lens) }, Some(&input), &mut whole)?;
        Ok(cut(&whole, &lens))
    }

    /// The root gets what everybody gives.
    pub(super) fn gather(self, gift: Gift) -> Result<Option<Vec<Vec<u8>>>> {
        let (lens, is_root) = (self.agree(&gift)?, self.group.rank() == self.root);
        let Gift::Bytes(input) = gift else { return Ok(None) };
        let mut whole = self.room(if is_root { sum(&lens) } else { 0 })?;
        self.run(Op::Gather { counts: Counts::uneven(&lens), root: self.root }, Some(&input), &mut whole)?;
        Ok(is_root.then(|| cut(&whole, &lens)))
    }

    /// Everybody gets the one that the root gives to it. How long each is follows what all agree on.
    pub(super) fn scatter(self, gift: Gift) -> Result<Vec<u8>> {
        let longest = self.agree(&gift)?[self.root];
        let mut lens = vec![0_u64; self.group.size()];
        let mut input = vec![];
        if let Gift::Each(parts) = &gift {
            lens = parts.iter().map(|part| part.len() as u64).collect();
            input = parts.concat();
        }
        self.run(
            Op::Broadcast { count: size_of_val(&*lens), root: self.root },
            None,
            bytemuck::cast_slice_mut(&mut lens),
        )?;
        // What the root said of the longest holds for all, so that no rank takes more memory than was agreed.
        let lens: Vec<usize> =
            lens.into_iter().map(|len| usize::try_from(len).map_or(longest, |len| len.min(longest))).collect();
        let mut part = self.room(lens[self.group.rank()])?;
        self.run(Op::Scatter { counts: Counts::uneven(&lens), root: self.root }, Some(&input), &mut part)?;
        Ok(part)
    }

    /// Room for what all have agreed on. Where there is none the group ends, because the others are in the exchange already.
    fn room(self, byte_len: usize) -> Result<Vec<u8>> {
        zeroed(byte_len).inspect_err(|error| self.group.shared.backend.abort(error.clone()))
    }

    /// Tells all ranks what this one gives, and learns how much each of them does.
    fn agree(self, gift: &Gift) -> Result<Vec<usize>> {
        let largest = self.group.shared.options.largest_object;
        let own = Header::new(self.kind, self.root, gift.given(), largest, self.type_name);
        let mut heads = vec![0; self.group.size() * Header::BYTE_LEN];
        let sequence =
            self.run(Op::AllGather { counts: Counts::Even(Header::BYTE_LEN) }, Some(&own.encode()), &mut heads)?;
        let (rank, members) = (self.group.rank(), self.group.members());
        let verdict = Verdict { kind: self.kind, sequence, rank, members, own: &own, site: self.site };
        match gift {
            // Its own reason tells this rank more than what the peers are told.
            Gift::Refused(why) => Err(why.clone()),
            _ => self.group.told(verdict.of_all(&heads)),
        }
    }

    /// Runs an operation over bytes and returns its number.
    fn run(self, op: Op, input: Option<&[u8]>, output: &mut [u8]) -> Result<u32> {
        self.group.part(self.began, |group| {
            let call = group.call(op, DType::U8, None, input, output, self.site)?;
            group.play(&call, input, output)?;
            Ok(call.sequence)
        })
    }
}

impl Gift {
    fn given(&self) -> Given {
        match self {
            Gift::Bytes(bytes) => Given::Bytes(bytes.len() as u64),
            Gift::Each(parts) => Given::Bytes(parts.iter().map(Vec::len).max().unwrap_or_default() as u64),
            Gift::Nothing => Given::Nothing,
            Gift::Refused(_) => Given::Refused,
        }
    }
}

/// Whether what the ranks say goes together. All of them come to the same end, because all have heard the same.
pub(super) struct Verdict<'a> {
    pub(super) kind: OpKind,
    pub(super) sequence: u32,
    pub(super) rank: usize,
    /// The world's ranks that are the group's.
    pub(super) members: &'a [usize],
    pub(super) own: &'a Header,
    pub(super) site: Site,
}

impl Verdict<'_> {
    /// How many bytes each rank gives.
    fn of_all(&self, heads: &[u8]) -> Result<Vec<usize>> {
        let (heads, _) = heads.as_chunks();
        let headers = heads.iter().enumerate().map(|(peer, head)| self.decoded(peer, head));
        let headers: Vec<Header> = headers.collect::<Result<_>>()?;
        let largest = headers.iter().map(|header| header.largest).min().unwrap_or_default();
        headers.iter().enumerate().try_for_each(|(peer, header)| self.compare(peer, header))?;
        headers.iter().enumerate().map(|(peer, header)| self.byte_len(peer, header, largest)).collect()
    }

    pub(super) fn decoded(&self, peer: usize, head: &[u8; Header::BYTE_LEN]) -> Result<Header> {
        Header::decode(head).map_err(|bad| self.differs(peer, "object header", "of version 1", bad.to_string()))
    }

    /// That a peer is in the same exchange of the same type.
    pub(super) fn compare(&self, peer: usize, theirs: &Header) -> Result<()> {
        let ours = self.own;
        if ours.kind != theirs.kind {
            return Err(self.differs(peer, "object exchange", ours.kind, theirs.kind));
        }
        if ours.root != theirs.root {
            return Err(self.differs(peer, "root", ours.root, theirs.root));
        }
        if ours.type_hash != theirs.type_hash {
            return Err(self.differs(peer, "object type", &ours.type_name, &theirs.type_name));
        }
        Ok(())
    }

    /// How many bytes a peer gives, when it can and they are not too many.
    pub(super) fn byte_len(&self, peer: usize, theirs: &Header, largest: u64) -> Result<usize> {
        let byte_len = match theirs.given {
            Given::Bytes(byte_len) => byte_len,
            Given::Nothing => 0,
            Given::Refused => return Err(self.differs(peer, "object", self.own.given.said(), theirs.given.said())),
        };
        match usize::try_from(byte_len) {
            Ok(byte_len) if byte_len as u64 <= largest => Ok(byte_len),
            _ => {
                let value = format!("{byte_len} bytes long on rank {}", self.members[peer]);
                let expected = format!("must be at most {largest}, the largest object that all ranks take");
                Err(Error::usage(self.kind, "object", value, expected))
            }
        }
    }

    fn differs(&self, peer: usize, field: &'static str, ours: impl ToString, theirs: impl ToString) -> Error {
        let (ours, theirs) = (ours.to_string(), theirs.to_string());
        let Verdict { sequence, rank, site, .. } = *self;
        Error::Desync(Box::new(Desync { sequence, rank, peer, field, ours, theirs, moved: false, site: Some(site) }))
    }
}

impl Given {
    fn said(self) -> String {
        match self {
            Given::Bytes(byte_len) => format!("of {byte_len} bytes"),
            Given::Nothing => "to come".to_owned(),
            Given::Refused => "that it could not give".to_owned(),
        }
    }
}

/// That `root` is a rank.
pub(super) fn check_root(group: &Group, kind: OpKind, root: usize) -> Result<()> {
    check::check_rank(kind, "root", root, group.size())
}

/// Room for bytes whose number comes from elsewhere.
pub(super) fn zeroed(byte_len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(byte_len).map_err(|error| Error::setup("object", error))?;
    bytes.resize(byte_len, 0);
    Ok(bytes)
}

fn sum(lens: &[usize]) -> usize {
    lens.iter().fold(0, |sum, len| sum.saturating_add(*len))
}

fn cut(mut whole: &[u8], lens: &[usize]) -> Vec<Vec<u8>> {
    let mut part = |len: &usize| {
        let (first, rest) = whole.split_at(*len);
        whole = rest;
        first.to_vec()
    };
    lens.iter().map(&mut part).collect()
}
