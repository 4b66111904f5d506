//! The fingerprint: 32 bytes on the first frame between two ranks, so that they never mix two different operations.
//!
//! docs/wire.md holds the layout. A flipped bit makes it differ from what is expected, so it needs no other protection.

use std::fmt;

use crate::op::{Counts, OpKind};
use crate::reduce::ReduceOp;
use crate::{DType, Desync, Error, Op, Site, fnv};

/// What a rank says about the operation it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The low bits of the group's epoch.
    pub epoch: u16,
    /// The operation's number in its group, or the message's between its two ranks.
    pub sequence: u32,
    /// What is done.
    pub op: OpKind,
    /// The type of the elements.
    pub dtype: DType,
    /// How elements are joined, if they are.
    pub reduce: Option<ReduceOp>,
    /// The root, or a message's tag, or one more than the number of the unit that a call without either is for, or 0.
    pub root: u32,
    /// Elements: of a rank's part, or of all parts where they differ.
    pub count: u64,
    /// A hash of the table of uneven counts, or 0.
    pub splits: u32,
    /// A hash of the call's place in the source, or 0 where it is not compared.
    pub site: u32,
    /// The place of an offer among those of its operation, from 1 on; 0 of what is lent and of what is no offer. Ranks that disagreed
    /// before and did not notice may have made more offers or fewer.
    pub offer: u8,
}

/// Bytes that are no fingerprint of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no fingerprint: {what} is {value}")]
pub struct BadFingerprint {
    /// The field.
    pub what: &'static str,
    /// Its value.
    pub value: u64,
}

/// One field in which two fingerprints differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The field's name.
    pub field: &'static str,
    /// This rank's value.
    pub ours: String,
    /// The peer's value.
    pub theirs: String,
}

impl Fingerprint {
    /// Bytes on the wire.
    pub const BYTE_LEN: usize = 32;
    /// The same in words.
    pub const WORDS: usize = Fingerprint::BYTE_LEN / size_of::<u64>();

    /// The names of the fields in which two can differ, for those who pass a [`Desync`] on in numbers. The order stays.
    pub const FIELDS: [&str; 12] = [
        "epoch",
        "op",
        "sequence",
        "dtype",
        "reduce",
        "tag",
        "root",
        "count",
        "split table",
        "call site",
        "unit",
        "offer",
    ];

    /// What a rank says about `op`, number `sequence` of its group's `epoch`.
    #[inline]
    pub fn of(op: &Op, dtype: DType, size: usize, epoch: u32, sequence: u32) -> Fingerprint {
        let (count, splits) = numbers(op, size);
        Fingerprint {
            epoch: epoch as u16,
            sequence,
            op: op.kind(),
            dtype,
            reduce: op.reduce(),
            root: tag(op).unwrap_or_else(|| op.root().unwrap_or(0) as u32),
            count: count as u64,
            splits,
            site: 0,
            offer: 0,
        }
    }

    /// The same, with the call's place in the source, for groups that compare it.
    pub fn at(self, site: Site) -> Fingerprint {
        let line = [site.line().to_le_bytes(), site.column().unwrap_or(0).to_le_bytes()].concat();
        Fingerprint { site: hash(site.file().bytes().chain(line)), ..self }
    }

    /// The same, with the unit of a model that an operation of all ranks is for: two of the same length are told apart by nothing else.
    pub(crate) fn marked(self, unit: usize) -> Fingerprint {
        debug_assert_eq!(self.root, 0, "an operation with a root");
        Fingerprint { root: (unit as u32).saturating_add(1), ..self }
    }

    /// The same, with how the elements of a joined operation are cut.
    pub(crate) fn cut(self, byte_lens: impl Iterator<Item = usize>) -> Fingerprint {
        // No table of one operation begins so.
        let cuts = std::iter::once(u64::MAX).chain(byte_lens.map(|len| len as u64));
        Fingerprint { splits: hash(cuts.flat_map(u64::to_le_bytes)), ..self }
    }

    /// The bytes on the wire.
    #[inline]
    pub fn encode(&self) -> [u8; Fingerprint::BYTE_LEN] {
        in_bytes(self.words())
    }

    /// The same as words, each of which has its lowest byte first on the wire. Made at once: a word that is read while its bytes are
    /// still being written holds up whoever reads it, which a small operation would notice.
    #[inline]
    pub fn words(&self) -> [u64; Fingerprint::WORDS] {
        let reduce = self.reduce.map_or(0, |reduce| reduce as u8);
        let [epoch, behind] = self.epoch.to_le_bytes();
        let head = [MAGIC, VERSION, self.op as u8, self.dtype as u8, reduce, self.offer, epoch, behind];
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [u64::from_le_bytes(head), two(self.sequence, self.root), self.count, two(self.splits, self.site)]
    }

    /// The fingerprint in these [words](Fingerprint::words).
    ///
    /// # Errors
    ///
    /// As [`decode`](Fingerprint::decode).
    pub fn of_words(words: [u64; Fingerprint::WORDS]) -> Result<Fingerprint, BadFingerprint> {
        Fingerprint::decode(&in_bytes(words))
    }

    /// The fingerprint in these bytes.
    ///
    /// # Errors
    ///
    /// [`BadFingerprint`] for another magic or version, and for a number that stands for nothing.
    pub fn decode(bytes: &[u8; Fingerprint::BYTE_LEN]) -> Result<Fingerprint, BadFingerprint> {
        let bad = |what, value: u8| BadFingerprint { what, value: value.into() };
        let [magic, version, op, dtype, reduce, offer, ..] = *bytes;
        match (magic, version) {
            (MAGIC, VERSION) => {}
            (MAGIC, other) => return Err(bad("version", other)),
            (other, _) => return Err(bad("magic", other)),
        }
        let joined = if reduce == 0 { None } else { Some(ReduceOp::from_wire(reduce).ok_or(bad("reduce", reduce))?) };
        Ok(Fingerprint {
            epoch: u16::from_le_bytes(field(bytes, 6)),
            sequence: u32::from_le_bytes(field(bytes, 8)),
            op: OpKind::from_wire(op).ok_or(bad("op", op))?,
            dtype: DType::from_wire(dtype).ok_or(bad("dtype", dtype))?,
            reduce: joined,
            root: u32::from_le_bytes(field(bytes, 12)),
            count: u64::from_le_bytes(field(bytes, 16)),
            splits: u32::from_le_bytes(field(bytes, 24)),
            site: u32::from_le_bytes(field(bytes, 28)),
            offer,
        })
    }

    /// The first field in which the peer's fingerprint differs, the most telling first.
    pub fn difference(&self, theirs: &Fingerprint) -> Option<Difference> {
        let ours = self;
        if ours == theirs {
            return None;
        }
        let both_compare = ours.site != 0 && theirs.site != 0;
        let joined = |print: &Fingerprint| print.reduce.map_or("none".to_owned(), |reduce| reduce.to_string());
        None.or_else(|| differ("epoch", ours.epoch, theirs.epoch))
            .or_else(|| differ("op", ours.op, theirs.op))
            .or_else(|| differ("sequence", ours.sequence, theirs.sequence))
            .or_else(|| differ("dtype", ours.dtype, theirs.dtype))
            .or_else(|| differ("reduce", joined(ours), joined(theirs)))
            .or_else(|| ours.root_difference(theirs))
            .or_else(|| differ("count", ours.count, theirs.count))
            .or_else(|| differ("split table", hex(ours.splits), hex(theirs.splits)))
            .or_else(|| differ("call site", hex(ours.site), hex(theirs.site)).filter(|_| both_compare))
            .or_else(|| differ("offer", ours.offer, theirs.offer))
    }

    /// The same of what stands in the place of a root.
    fn root_difference(&self, theirs: &Fingerprint) -> Option<Difference> {
        let unit = |print: &Fingerprint| print.root.checked_sub(1).map_or("none".to_owned(), |unit| unit.to_string());
        match self.op {
            OpKind::Send | OpKind::Recv => differ("tag", self.root, theirs.root),
            OpKind::AllReduce | OpKind::AllGather | OpKind::ReduceScatter | OpKind::AllToAll => {
                differ("unit", unit(self), unit(theirs))
            }
            _ => differ("root", self.root, theirs.root),
        }
    }

    /// The error of `rank`, whose fingerprint this is, when the one of `peer` differs; `moved` as in [`Desync`].
    pub fn disagreement(&self, theirs: &Fingerprint, rank: usize, peer: usize, moved: bool) -> Option<Error> {
        let Difference { field, ours, theirs } = self.difference(theirs)?;
        let sequence = self.sequence;
        Some(Error::Desync(Box::new(Desync { sequence, rank, peer, field, ours, theirs, moved, site: None })))
    }
}

fn differ<T: PartialEq + fmt::Display>(field: &'static str, ours: T, theirs: T) -> Option<Difference> {
    (ours != theirs).then(|| Difference { field, ours: ours.to_string(), theirs: theirs.to_string() })
}

fn hex(hash: u32) -> String {
    format!("{hash:#010x}")
}

/// A message's tag.
fn tag(op: &Op) -> Option<u32> {
    match op {
        Op::Send { tag, .. } | Op::Recv { tag, .. } => Some(*tag),
        _ => None,
    }
}

/// The number of elements and the hash of the table that all ranks must share. Each rank has its own all-to-all tables:
/// what two ranks exchange is compared between the two ([`Fingerprint::count`] of each frame), and here only whether there
/// are tables at all, because even parts travel another way.
#[inline]
fn numbers(op: &Op, size: usize) -> (usize, u32) {
    match op {
        Op::AllReduce { count, .. } | Op::Reduce { count, .. } | Op::Broadcast { count, .. } => (*count, 0),
        Op::Send { count, .. } | Op::Recv { count, .. } => (*count, 0),
        Op::AllGather { counts } | Op::ReduceScatter { counts, .. } => (counts.total(size), table_hash(counts)),
        Op::Gather { counts, .. } | Op::Scatter { counts, .. } => (counts.total(size), table_hash(counts)),
        Op::AllToAll { give, take } if give.is_even() && take.is_even() => (0, 0),
        Op::AllToAll { .. } => (0, hash(std::iter::empty())),
        Op::Barrier => (0, 0),
    }
}

fn table_hash(counts: &Counts) -> u32 {
    match counts {
        Counts::Even(_) => 0,
        Counts::Uneven(counts) => hash(counts.iter().flat_map(|&count| (count as u64).to_le_bytes())),
    }
}

/// Never 0, which stands for "not compared".
fn hash(bytes: impl Iterator<Item = u8>) -> u32 {
    fnv::hash32(bytes).max(1)
}

/// Words as they go over the wire.
#[inline]
fn in_bytes(words: [u64; Fingerprint::WORDS]) -> [u8; Fingerprint::BYTE_LEN] {
    let mut bytes = [0; Fingerprint::BYTE_LEN];
    let (chunks, _) = bytes.as_chunks_mut();
    chunks.iter_mut().zip(words).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
    bytes
}

/// The `N` bytes at `at`, which is a constant within the length.
fn field<const N: usize>(bytes: &[u8; Fingerprint::BYTE_LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

const MAGIC: u8 = 0xFA;
const VERSION: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Fingerprint {
        let counts = Counts::uneven(&[3, 0, 5]);
        let op = Op::ReduceScatter { counts, reduce: ReduceOp::Max };
        Fingerprint::of(&op, DType::BF16, 3, 70_000, 12).at(Site::caller())
    }

    #[test]
    fn round_trips_and_refuses_every_wrong_head() {
        let print = sample();
        let bytes = print.encode();
        assert_eq!(Fingerprint::decode(&bytes), Ok(print));
        for (at, value) in [(0, 0), (1, 9), (2, 0), (2, 200), (3, 0), (3, 77), (4, 99)] {
            let mut broken = bytes;
            broken[at] = value;
            let error = Fingerprint::decode(&broken).unwrap_err();
            assert_eq!(error.value, u64::from(value), "byte {at}");
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let print = sample();
        for bit in 0..Fingerprint::BYTE_LEN * 8 {
            let mut bytes = print.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let seen = match Fingerprint::decode(&bytes) {
                Ok(other) => print.difference(&other).is_some(),
                Err(_) => true,
            };
            assert!(seen, "bit {bit}");
        }
    }

    #[test]
    fn joined_operations_are_not_one_with_a_table() {
        let joined = Op::AllGather { counts: Counts::Even(3) };
        let joined = Fingerprint::of(&joined, DType::U8, 2, 0, 0).cut([2, 4].into_iter());
        let uneven = Fingerprint::of(&Op::AllGather { counts: Counts::uneven(&[2, 4]) }, DType::U8, 2, 0, 0);
        assert_eq!(joined.difference(&uneven).map(|difference| difference.field), Some("split table"));
    }

    #[test]
    fn what_operations_are_marked_with_is_compared() {
        let expected = |ours: &str, theirs: &str| {
            Some(Difference { field: "unit", ours: ours.to_owned(), theirs: theirs.to_owned() })
        };
        let plain = sample();
        assert_eq!(plain.marked(0).difference(&plain.marked(2)), expected("0", "2"));
        assert_eq!(plain.difference(&plain.marked(2)), expected("none", "2"));
        assert_eq!(plain.marked(2).difference(&plain.marked(2)), None);
    }

    #[test]
    fn the_difference_names_the_field_and_both_values() {
        let ours = sample();
        let theirs = Fingerprint { reduce: Some(ReduceOp::Sum), count: 9, ..ours };
        let expected = Difference { field: "reduce", ours: "max".into(), theirs: "sum".into() };
        assert_eq!(ours.difference(&theirs), Some(expected));
        assert_eq!(ours.difference(&Fingerprint { count: 9, ..ours }).unwrap().field, "count");
        assert_eq!(ours.difference(&Fingerprint { splits: 1, ..ours }).unwrap().field, "split table");
        assert_eq!(ours.difference(&Fingerprint { site: 0, ..ours }), None);
        assert_eq!(ours.difference(&Fingerprint { offer: 2, ..ours }).unwrap().field, "offer");
    }
}
