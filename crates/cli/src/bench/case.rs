//! One thing to measure: an operation at a size, its data, and the answer it must give.

use std::fmt;

use phalanx::{Counts, DType, Group, Op, OpKind, ReduceOp, Result};

use crate::sizes;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
    AllToAll,
    Gather,
    Scatter,
    /// Every rank sends to the next one and receives from the one before.
    SendRecv,
    Barrier,
}

/// An operation at a size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) np: usize,
    pub(crate) dtype: DType,
    pub(crate) reduce: ReduceOp,
    /// Elements of the larger buffer, a multiple of the number of ranks where it is sliced.
    count: usize,
}

impl Kind {
    const ALL: [Kind; 10] = [
        Kind::AllReduce,
        Kind::ReduceScatter,
        Kind::AllGather,
        Kind::Broadcast,
        Kind::Reduce,
        Kind::AllToAll,
        Kind::Gather,
        Kind::Scatter,
        Kind::SendRecv,
        Kind::Barrier,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => OpKind::AllReduce.name(),
            Kind::ReduceScatter => OpKind::ReduceScatter.name(),
            Kind::AllGather => OpKind::AllGather.name(),
            Kind::Broadcast => OpKind::Broadcast.name(),
            Kind::Reduce => OpKind::Reduce.name(),
            Kind::AllToAll => OpKind::AllToAll.name(),
            Kind::Gather => OpKind::Gather.name(),
            Kind::Scatter => OpKind::Scatter.name(),
            Kind::Barrier => OpKind::Barrier.name(),
            Kind::SendRecv => "send_recv",
        }
    }

    pub(crate) fn reduces(self) -> bool {
        matches!(self, Kind::AllReduce | Kind::ReduceScatter | Kind::Reduce)
    }

    fn is_sliced(self) -> bool {
        matches!(self, Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll | Kind::Gather | Kind::Scatter)
    }

    /// Bytes that each rank's hardware moves for each byte of the size, as nccl-tests counts them.
    pub(crate) fn bus_factor(self, np: usize) -> f64 {
        let share = (np - 1) as f64 / np as f64;
        match self {
            Kind::AllReduce => 2.0 * share,
            kind if kind.is_sliced() => share,
            _ => 1.0,
        }
    }
}

impl Case {
    pub(crate) fn new(kind: Kind, bytes: usize, np: usize, dtype: DType, reduce: ReduceOp) -> Case {
        let count = bytes / dtype.byte_len();
        let count = if kind.is_sliced() { count.next_multiple_of(np) } else { count };
        Case { kind, np, dtype, reduce, count }
    }

    /// Bytes of the larger of a rank's input and output.
    pub(crate) fn byte_len(&self) -> usize {
        self.count * self.dtype.byte_len()
    }

    /// The buffers of one rank, with fresh data.
    pub(crate) fn buffers(&self, rank: usize) -> Buffers {
        let (input, output) = match self.op() {
            Some(op) => (op.need(rank, self.np).input, op.need(rank, self.np).output),
            None => (self.count, self.count),
        };
        if self.kind == Kind::AllReduce {
            // As the programs of the peers do, and mostly those of users.
            return Buffers { input: vec![], output: self.pattern(rank, output) };
        }
        Buffers { input: self.pattern(rank, input), output: vec![0; output * self.dtype.byte_len()] }
    }

    /// Runs the operation once.
    pub(crate) fn run(&self, group: &Group, buffers: &mut Buffers) -> Result<()> {
        let Buffers { input, output } = buffers;
        match self.op() {
            Some(op) => {
                let input = (self.kind != Kind::AllReduce).then_some(&input[..]);
                group.run_bytes(op, self.dtype, None, input, output).map(drop)
            }
            None => self.pass_on(group, input, output),
        }
    }

    /// How many bytes of a rank's output are not what they must be.
    pub(crate) fn wrong(&self, rank: usize, output: &[u8]) -> usize {
        let expected = self.expected(rank);
        debug_assert!(expected.is_empty() || expected.len() == output.len());
        expected.iter().zip(output).filter(|(expected, got)| expected != got).count()
    }

    fn op(&self) -> Option<Op> {
        let (count, reduce, root) = (self.count, self.reduce, 0);
        let counts = Counts::Even(count / self.np);
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
            Kind::SendRecv => None,
        }
    }

    fn pass_on(&self, group: &Group, input: &mut Vec<u8>, output: &mut [u8]) -> Result<()> {
        if self.np == 1 {
            output.copy_from_slice(input);
            return Ok(());
        }
        let (next, previous) = self.neighbours(group.rank());
        let sent = group.send_async(std::mem::take(input), next, 0)?;
        group.recv(output, previous, 0)?;
        *input = sent.wait()?.data;
        Ok(())
    }

    fn neighbours(&self, rank: usize) -> (usize, usize) {
        ((rank + 1) % self.np, (rank + self.np - 1) % self.np)
    }

    /// What a rank's output must be; empty where it has none.
    fn expected(&self, rank: usize) -> Vec<u8> {
        let (count, share) = (self.count, self.count / self.np);
        let part = |from: usize| self.slice(&self.pattern(from, count), rank * share, share);
        match self.kind {
            Kind::Reduce | Kind::Gather if rank > 0 => vec![],
            Kind::AllReduce | Kind::Reduce => self.joined(count),
            Kind::ReduceScatter => self.slice(&self.joined(count), rank * share, share),
            Kind::AllGather | Kind::Gather => (0..self.np).flat_map(|from| self.pattern(from, share)).collect(),
            Kind::Broadcast => self.pattern(0, count),
            Kind::Scatter => part(0),
            Kind::AllToAll => (0..self.np).flat_map(part).collect(),
            Kind::SendRecv => self.pattern(self.neighbours(rank).1, count),
            Kind::Barrier => vec![],
        }
    }

    /// The reduction of all ranks' patterns. Zeros and ones add up without rounding in every order.
    fn joined(&self, count: usize) -> Vec<u8> {
        let inputs: Vec<Vec<u8>> = (0..self.np).map(|rank| self.pattern(rank, count)).collect();
        let parts: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let mut joined = vec![0; count * self.dtype.byte_len()];
        // The pair was checked before anything was measured.
        let _ = phalanx::reduce::combine(self.reduce, self.dtype, &mut joined, &parts);
        joined
    }

    /// Zeros and ones in an order that differs from rank to rank.
    fn pattern(&self, rank: usize, count: usize) -> Vec<u8> {
        let zero = vec![0; self.dtype.byte_len()];
        let one = one(self.dtype);
        let element = |at: usize| {
            if (at / 3 + at + rank).is_multiple_of(2) { &zero } else { &one }
        };
        (0..count).flat_map(|at| element(at).iter().copied()).collect()
    }

    fn slice(&self, bytes: &[u8], start: usize, count: usize) -> Vec<u8> {
        let unit = self.dtype.byte_len();
        bytes[start * unit..(start + count) * unit].to_vec()
    }
}

/// The buffers of one rank.
#[derive(Debug)]
pub(crate) struct Buffers {
    input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), sizes::show(self.byte_len()))
    }
}

/// Reads a comma-separated list of operations, or `all`.
pub(crate) fn parse_kinds(text: &str) -> Result<Vec<Kind>, String> {
    if text == "all" {
        return Ok(Kind::ALL.to_vec());
    }
    let names = || Kind::ALL.map(Kind::name).join(", ");
    let find = |name: &str| Kind::ALL.into_iter().find(|kind| kind.name() == name);
    text.split(',').map(|name| find(name).ok_or_else(|| format!("no operation '{name}'; one of {}", names()))).collect()
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
