//! One thing to measure: an operation at a size, its data, and the answer it must give.

use std::fmt;

use clap::ValueEnum;
use phalanx::backend::{self, Finished};
use phalanx::{Buffer, Counts, DType, Error, Group, Op, ReduceOp, Result};
use serde_json::{Value, json};

use super::kind::Kind;
use crate::sizes;

/// An operation at a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) np: usize,
    pub(crate) dtype: DType,
    pub(crate) reduce: ReduceOp,
    /// Elements of the larger buffer, a multiple of the number of ranks where it is sliced.
    count: usize,
}

/// The buffers of one rank. Where the operation works in place, there is only the output.
#[derive(Debug)]
pub(crate) struct Buffers {
    input: Buffer,
    output: Buffer,
}

/// What buffers are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Memory {
    /// Memory like any other of the program
    Ordinary,
    /// The group's own, which ranks of one host read where it is
    Shared,
}

/// Elements of a result that come from one place.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Source,
    /// The first of them in the data of the source.
    start: usize,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The data of one rank.
    Rank(usize),
    /// The reduction of all ranks' data.
    All,
}

impl Case {
    pub(crate) fn new(kind: Kind, bytes: usize, np: usize, dtype: DType, reduce: ReduceOp) -> Case {
        let count = bytes / dtype.byte_len();
        let count = if kind.is_sliced() { count.next_multiple_of(np) } else { count };
        Case { kind, np, dtype, reduce, count }
    }

    pub(crate) fn to_json(self) -> Value {
        let (op, dtype, reduce) = (self.kind.name(), self.dtype.name(), self.reduce.name());
        json!({ "op": op, "bytes": self.byte_len(), "np": self.np, "dtype": dtype, "reduce": reduce })
    }

    pub(crate) fn from_json(told: &Value) -> Option<Case> {
        let number = |name: &str| told[name].as_u64().and_then(|number| usize::try_from(number).ok());
        let (dtype, reduce) = (told["dtype"].as_str()?.parse().ok()?, told["reduce"].as_str()?.parse().ok()?);
        Some(Case::new(Kind::of_name(told["op"].as_str()?)?, number("bytes")?, number("np")?, dtype, reduce))
    }

    /// Bytes of the larger of a rank's input and output.
    pub(crate) fn byte_len(&self) -> usize {
        self.count * self.dtype.byte_len()
    }

    /// The buffers of one rank, large enough whichever rank is the root.
    pub(crate) fn buffers(&self, group: &Group, memory: Memory) -> Result<Buffers> {
        let (count, share) = (self.count, self.share());
        let (input, output) = match self.kind {
            Kind::AllReduce | Kind::Broadcast | Kind::Reduce => (0, count),
            Kind::AllGather | Kind::Gather => (share, count),
            Kind::ReduceScatter | Kind::Scatter => (count, share),
            Kind::AllToAll | Kind::SendRecv | Kind::PingPong => (count, count),
            Kind::Barrier => (0, 0),
        };
        let buffer = |count: usize| match memory {
            Memory::Ordinary => {
                let buffer = Buffer::try_zeroed(count * self.dtype.byte_len());
                buffer.map_err(|error| Error::setup("buffer", error))
            }
            Memory::Shared => group.buffer(count * self.dtype.byte_len()),
        };
        Ok(Buffers { input: buffer(input)?, output: buffer(output)? })
    }

    /// Runs the operation once, with this root if it has one.
    pub(crate) fn run(&self, group: &Group, buffers: &mut Buffers, root: usize) -> Result<()> {
        let Buffers { input, output } = buffers;
        let Some(op) = self.op(root) else {
            return match self.kind {
                Kind::PingPong => self.play_back(group, input.as_bytes(), output.as_bytes_mut()),
                _ => self.pass_on(group, input, output),
            };
        };
        let (input, output) = (input.as_bytes(), output.as_bytes_mut());
        if self.kind.is_in_place() {
            return group.run_bytes(op, self.dtype, None, None, output).map(drop);
        }
        let need = op.need(group.rank(), self.np);
        let unit = self.dtype.byte_len();
        let (input, output) = (&input[..need.input * unit], &mut output[..need.output * unit]);
        group.run_bytes(op, self.dtype, None, Some(input), output).map(drop)
    }

    /// Runs the operation once on data that tells ranks and places apart, and counts the wrong elements of this rank.
    pub(crate) fn check(&self, group: &Group, buffers: &mut Buffers, root: usize) -> Result<usize> {
        let Buffers { input, output } = &mut *buffers;
        let mine = if self.kind.is_in_place() { output } else { input };
        self.write_pattern(group.rank(), 0, mine.as_bytes_mut());
        self.run(group, buffers, root)?;
        Ok(self.wrong(group.rank(), root, buffers.output.as_bytes()))
    }

    fn wrong(&self, rank: usize, root: usize, output: &[u8]) -> usize {
        let unit = self.dtype.byte_len();
        let mut expected = vec![0; AT_ONCE * unit];
        let (mut at, mut wrong) = (0, 0);
        for Piece { source, start, count } in self.pieces(rank, root) {
            for offset in (0..count).step_by(AT_ONCE) {
                let expected = &mut expected[..(count - offset).min(AT_ONCE) * unit];
                match source {
                    Source::Rank(from) => self.write_pattern(from, start + offset, expected),
                    Source::All => self.write_reduced(start + offset, expected),
                }
                let got = &output[at * unit..][..expected.len()];
                at += got.len() / unit;
                if got != expected {
                    wrong +=
                        got.chunks(unit).zip(expected.chunks(unit)).filter(|(got, expected)| got != expected).count();
                }
            }
        }
        wrong
    }

    /// What a rank's output must be made of; nothing where it has no result.
    fn pieces(&self, rank: usize, root: usize) -> Vec<Piece> {
        let (count, share) = (self.count, self.share());
        let one = |source, start, count| vec![Piece { source, start, count }];
        let of_each =
            |start| (0..self.np).map(|from| Piece { source: Source::Rank(from), start, count: share }).collect();
        match self.kind {
            Kind::Reduce | Kind::Gather if rank != root => vec![],
            Kind::AllReduce | Kind::Reduce => one(Source::All, 0, count),
            Kind::ReduceScatter => one(Source::All, rank * share, share),
            Kind::AllGather | Kind::Gather => of_each(0),
            Kind::Broadcast => one(Source::Rank(root), 0, count),
            Kind::Scatter => one(Source::Rank(root), rank * share, share),
            Kind::AllToAll => of_each(rank * share),
            Kind::SendRecv => one(Source::Rank(self.neighbours(rank).1), 0, count),
            Kind::PingPong => one(Source::Rank(rank & !1), 0, count),
            Kind::Barrier => vec![],
        }
    }

    /// The reduction of all ranks' data. Zeros and ones add up without rounding in every order.
    fn write_reduced(&self, start: usize, elements: &mut [u8]) {
        let pattern = |rank| {
            let mut input = vec![0; elements.len()];
            self.write_pattern(rank, start, &mut input);
            input
        };
        let inputs: Vec<Vec<u8>> = (0..self.np).map(pattern).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        // The pair was checked before anything was measured.
        let _ = phalanx::reduce::combine(self.reduce, self.dtype, elements, &inputs);
    }

    /// A rank's data from its element `start` on: zeros and ones in an order that does not repeat.
    fn write_pattern(&self, rank: usize, start: usize, elements: &mut [u8]) {
        let one = one(self.dtype);
        let zero = vec![0; one.len()];
        for (at, element) in (start..).zip(elements.chunks_exact_mut(one.len())) {
            let mixed = (at as u64 ^ (rank as u64) << 40).wrapping_mul(MIXER);
            // Once is not enough: the highest bit of multiples is nearly periodic.
            let mixed = (mixed ^ mixed >> 32).wrapping_mul(MIXER);
            element.copy_from_slice(if mixed >> 63 == 0 || self.is_spared(rank, at) { &zero } else { &one });
        }
    }

    /// Whether a rank has no one at an element because there are others enough: of many ranks each has its turn.
    fn is_spared(&self, rank: usize, at: usize) -> bool {
        self.dtype == DType::BF16 && self.kind.reduces() && (rank + at) % self.np >= MOST_ONES
    }

    fn op(&self, root: usize) -> Option<Op> {
        let (count, reduce) = (self.count, self.reduce);
        let counts = Counts::Even(self.share());
        match self.kind {
            Kind::AllReduce => Some(Op::AllReduce { count, reduce }),
            Kind::ReduceScatter => Some(Op::ReduceScatter { counts, reduce }),
            Kind::AllGather => Some(Op::AllGather { counts }),
            Kind::Broadcast => Some(Op::Broadcast { count, root }),
            Kind::Reduce => Some(Op::Reduce { count, reduce, root }),
            Kind::AllToAll => Some(Op::AllToAll { give: counts.clone(), take: counts }),
            Kind::Gather => Some(Op::Gather { counts, root }),
            Kind::Scatter => Some(Op::Scatter { counts, root }),
            Kind::Barrier => Some(Op::Barrier),
            Kind::SendRecv | Kind::PingPong => None,
        }
    }

    fn pass_on(&self, group: &Group, input: &mut Buffer, output: &mut Buffer) -> Result<()> {
        if self.np == 1 {
            output.as_bytes_mut().copy_from_slice(input.as_bytes());
            return Ok(());
        }
        let (to, from) = self.neighbours(group.rank());
        let (send, recv) =
            (Op::Send { count: self.count, to, tag: 0 }, Op::Recv { count: self.count, from: Some(from), tag: 0 });
        let given = backend::Buffers { input: Some(std::mem::take(input)), output: Buffer::default() };
        let mut sent = group.submit_bytes(send, self.dtype, None, given)?;
        group.run_bytes(recv, self.dtype, None, Some(&[]), output.as_bytes_mut())?;
        if let Some(end) = sent.wait(None) {
            let Finished { buffers, .. } = end?;
            *input = buffers.input.unwrap_or_default();
        }
        Ok(())
    }

    /// The first of two ranks sends and gets it back; a last one without another keeps to itself.
    fn play_back(&self, group: &Group, input: &[u8], output: &mut [u8]) -> Result<()> {
        let peer = group.rank() ^ 1;
        if peer >= self.np {
            output.copy_from_slice(input);
            return Ok(());
        }
        let send = |bytes: &[u8]| {
            let op = Op::Send { count: self.count, to: peer, tag: 0 };
            group.run_bytes(op, self.dtype, None, Some(bytes), &mut [])
        };
        if group.rank() < peer {
            send(input)?;
        }
        let op = Op::Recv { count: self.count, from: Some(peer), tag: 0 };
        group.run_bytes(op, self.dtype, None, Some(&[]), output)?;
        if group.rank() > peer {
            send(output)?;
        }
        Ok(())
    }

    fn neighbours(&self, rank: usize) -> (usize, usize) {
        ((rank + 1) % self.np, (rank + self.np - 1) % self.np)
    }

    fn share(&self) -> usize {
        self.count / self.np
    }
}

impl Memory {
    /// The name, as told to ranks and to other programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Memory::Ordinary => "ordinary",
            Memory::Shared => "shared",
        }
    }
}

impl Buffers {
    /// Zeros everywhere, which no number of reductions in place takes out of the range of its type.
    pub(crate) fn clear(&mut self) {
        self.input.as_bytes_mut().fill(0);
        self.output.as_bytes_mut().fill(0);
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Barrier => f.write_str(self.kind.name()),
            _ => write!(f, "{} {}", self.kind.name(), sizes::show(self.byte_len())),
        }
    }
}

/// The bytes of 1 in this type.
fn one(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F64 => 1_f64.to_le_bytes().to_vec(),
        DType::F32 => 1_f32.to_le_bytes().to_vec(),
        DType::F16 => 0x3C00_u16.to_le_bytes().to_vec(),
        DType::BF16 => 0x3F80_u16.to_le_bytes().to_vec(),
        DType::F8E4M3FN => vec![0x38],
        DType::F8E5M2 => vec![0x3C],
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => vec![0x40],
        DType::Complex64 => [1_f32.to_le_bytes(), [0; 4]].concat(),
        DType::Complex128 => [1_f64.to_le_bytes(), [0; 8]].concat(),
        other => {
            let mut bytes = vec![0; other.byte_len()];
            bytes[0] = 1;
            bytes
        }
    }
}

/// Elements that are checked at once, so that a check needs little memory.
const AT_ONCE: usize = 4096;
/// Ones that are added up in bf16, which has every whole number up to 256, and then only every other one.
const MOST_ONES: usize = 128;
/// Odd, and far from all simple fractions: 2^64 divided by the golden ratio.
const MIXER: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use phalanx::Threads;

    use super::super::kind::parse_kinds;
    use super::*;

    fn cases(np: usize) -> impl Iterator<Item = Case> {
        let kinds = parse_kinds("all").expect("all");
        kinds.into_iter().map(move |kind| Case::new(kind, 40_000, np, DType::I32, ReduceOp::Sum))
    }

    #[test]
    fn every_operation_is_right_from_every_root() {
        for case in cases(3) {
            let ranks = Threads::new(3).run(|group| {
                let mut buffers = case.buffers(&group, Memory::Shared)?;
                (0..3).map(|root| case.check(&group, &mut buffers, root)).sum::<Result<usize>>()
            });
            assert_eq!(ranks.expect("a world"), [Ok(0), Ok(0), Ok(0)], "{case}");
        }
    }

    #[test]
    fn a_wrong_element_is_one_wrong_element() {
        for case in cases(2).filter(|case| case.kind != Kind::Barrier) {
            let ranks = Threads::new(2).run(|group| -> Result<usize> {
                let mut buffers = case.buffers(&group, Memory::Ordinary)?;
                case.check(&group, &mut buffers, group.size() - 1)?;
                buffers.output.as_bytes_mut()[17] ^= 1;
                Ok(case.wrong(group.rank(), group.size() - 1, buffers.output.as_bytes()))
            });
            let has_none = usize::from(!matches!(case.kind, Kind::Reduce | Kind::Gather));
            assert_eq!(ranks.expect("a world"), [Ok(has_none), Ok(1)], "{case}");
        }
    }

    #[test]
    fn data_of_two_ranks_or_places_differ() {
        let case = Case::new(Kind::AllReduce, 4096, 2, DType::U8, ReduceOp::Sum);
        let pattern = |rank, start| {
            let mut elements = [0; 64];
            case.write_pattern(rank, start, &mut elements);
            elements
        };
        let all: Vec<_> = (0..4).flat_map(|rank| (0..200).map(move |start| pattern(rank, start))).collect();
        let set: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(set.len(), all.len());
    }

    #[test]
    fn many_ranks_add_up_without_rounding_in_every_order() {
        let combined = |inputs: &[Vec<u8>]| {
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let mut sums = vec![0; 128];
            phalanx::reduce::combine(ReduceOp::Sum, DType::BF16, &mut sums, &inputs).expect("a sum of bf16");
            sums
        };
        let case = Case::new(Kind::AllReduce, 4096, 600, DType::BF16, ReduceOp::Sum);
        let input = |rank| {
            let mut input = vec![0; 128];
            case.write_pattern(rank, 500, &mut input);
            input
        };
        let inputs: Vec<Vec<u8>> = (0..600).map(input).collect();
        let mut expected = vec![0; 128];
        case.write_reduced(500, &mut expected);
        let one_by_one = inputs.iter().fold(vec![0; 128], |sums, input| combined(&[sums, input.clone()]));
        let in_halves = combined(&[combined(&inputs[..300]), combined(&inputs[300..])]);
        assert_eq!((&one_by_one, &in_halves), (&expected, &expected));
        // Each rank has its part in it.
        let zeros = vec![0; 4096];
        let has_ones = |rank| {
            let mut all = vec![0; 4096];
            case.write_pattern(rank, 0, &mut all);
            all != zeros
        };
        assert!((0..600).all(has_ones));
    }

    #[test]
    fn a_case_survives_its_journey() {
        for case in cases(3) {
            assert_eq!(Case::from_json(&case.to_json()), Some(case));
        }
        assert_eq!(Case::from_json(&json!({ "op": "all_reduce" })), None);
    }
}
