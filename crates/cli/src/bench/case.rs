//! One thing to measure: an operation at a size, and its buffers. The answer that it must give is in a room of its own.

mod answer;

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
            Kind::AllReduce | Kind::Broadcast | Kind::Reduce | Kind::PingPong => (0, count),
            Kind::AllGather | Kind::Gather => (share, count),
            Kind::ReduceScatter | Kind::Scatter => (count, share),
            Kind::AllToAll | Kind::SendRecv => (count, count),
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
                Kind::PingPong => self.play_back(group, output.as_bytes_mut(), |_| {}),
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
        match self.kind {
            // What is found in the end has come back.
            Kind::PingPong => self.play_back(group, buffers.output.as_bytes_mut(), spoil)?,
            _ => self.run(group, buffers, root)?,
        }
        Ok(self.wrong(group.rank(), root, buffers.output.as_bytes()))
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

    /// The first of two ranks sends and gets it back; a last one without another keeps to itself. `meanwhile` is for the first one's bytes
    /// once they are sent.
    fn play_back(&self, group: &Group, bytes: &mut [u8], meanwhile: impl FnOnce(&mut [u8])) -> Result<()> {
        let peer = group.rank() ^ 1;
        if peer >= self.np {
            return Ok(());
        }
        let send = |bytes: &[u8]| {
            let op = Op::Send { count: self.count, to: peer, tag: 0 };
            group.run_bytes(op, self.dtype, None, Some(bytes), &mut [])
        };
        if group.rank() < peer {
            send(bytes)?;
            meanwhile(bytes);
        }
        let op = Op::Recv { count: self.count, from: Some(peer), tag: 0 };
        group.run_bytes(op, self.dtype, None, Some(&[]), bytes)?;
        if group.rank() > peer {
            send(bytes)?;
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

fn spoil(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
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
    fn a_case_survives_its_journey() {
        for case in cases(3) {
            assert_eq!(Case::from_json(&case.to_json()), Some(case));
        }
        assert_eq!(Case::from_json(&json!({ "op": "all_reduce" })), None);
    }
}
