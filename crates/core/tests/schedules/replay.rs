//! Plays all ranks' schedules on real memory, in the order the validity check walks them.

use phalanx_core::reduce::{Factor, combine, combine_in_place, finish_avg, fold, scale};
use phalanx_core::schedule::{Event, Place, Plan, Recv, Schedule, Send, Span, Step, Then, build, walk};
use phalanx_core::{DType, Layout, Op, ReduceOp};

/// One case: an operation, an algorithm and the ground it is played on.
pub(crate) struct Case<'a> {
    pub(crate) op: &'a Op,
    /// Each rank's own view of `op` where the numbers differ from rank to rank.
    pub(crate) op_of: &'a dyn Fn(usize) -> Op,
    pub(crate) dtype: DType,
    pub(crate) hosts: &'a [u32],
    pub(crate) algorithm: phalanx_core::schedule::Algorithm,
    pub(crate) segments: usize,
    pub(crate) in_place: bool,
    pub(crate) windows: bool,
}

/// One rank's memory, in bytes.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    scratch: Vec<u8>,
    offers: Vec<Vec<u8>>,
}

impl Memory {
    pub(crate) fn new(input: Vec<u8>, output: Vec<u8>) -> Memory {
        Memory {
            input,
            output,
            ..Memory::default()
        }
    }
}

impl Memory {
    fn place(&mut self, place: Place) -> &mut [u8] {
        match place {
            Place::Input => &mut self.input,
            Place::Output => &mut self.output,
            Place::Scratch => &mut self.scratch,
        }
    }
}

impl Case<'_> {
    pub(crate) fn size(&self) -> usize {
        self.hosts.len()
    }

    /// The schedules of all ranks, or `None` where the algorithm does not play the operation.
    pub(crate) fn schedules(&self) -> Option<Vec<Schedule>> {
        (0..self.size()).map(|rank| self.schedule(rank)).collect()
    }

    fn schedule(&self, rank: usize) -> Option<Schedule> {
        let layout = Layout::new(rank, self.hosts.to_vec()).unwrap();
        build(&Plan {
            layout: &layout,
            op: &(self.op_of)(rank),
            dtype: self.dtype,
            in_place: self.in_place,
            algorithm: self.algorithm,
            segments: self.segments,
            windows: self.windows,
        })
    }

    /// Walks the schedules over `memory`; panics with the case's name when they are not valid.
    pub(crate) fn play(&self, schedules: &[Schedule], memory: &mut [Memory], factor: Option<&Factor>) {
        let byte_len = self.dtype.byte_len();
        for (memory, schedule) in memory.iter_mut().zip(schedules) {
            // Whatever is in scratch must not matter.
            memory.scratch = vec![0xA5; schedule.scratch * byte_len];
        }
        let lens: Vec<_> = memory
            .iter()
            .map(|m| (m.input.len() / byte_len, m.output.len() / byte_len))
            .collect();
        let len_of = |rank: usize, place| {
            if place == Place::Input {
                lens[rank].0
            } else {
                lens[rank].1
            }
        };
        let reduce = self.op.reduce().unwrap_or(ReduceOp::Sum);
        let mut play = Play {
            memory,
            reduce,
            dtype: self.dtype,
            factor,
        };
        let walked = walk(schedules, self.hosts, len_of, |event| play.take(event));
        walked.unwrap_or_else(|fault| panic!("{self:?}: {fault}"));
    }
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {:?} {} hosts {:?} segments {}",
            self.algorithm, self.op, self.dtype, self.hosts, self.segments
        )?;
        write!(f, " in_place {} windows {}", self.in_place, self.windows)
    }
}

struct Play<'a> {
    memory: &'a mut [Memory],
    reduce: ReduceOp,
    dtype: DType,
    factor: Option<&'a Factor>,
}

impl Play<'_> {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Transfer { send, recv } => self.transfer(send, recv),
            Event::Local { rank, step } => self.local(rank, step),
        }
    }

    fn transfer(&mut self, send: Send, recv: Recv) {
        let byte_len = self.dtype.byte_len();
        let [from, to] = self.memory.get_disjoint_mut([recv.from, send.to]).unwrap();
        let bytes = &from.place(send.span.place)[byte_range(send.span, byte_len)];
        let into = &mut to.place(recv.span.place)[byte_range(recv.span, byte_len)];
        match recv.then {
            Then::Store => into.copy_from_slice(bytes),
            Then::Fold => fold(self.reduce, self.dtype, into, bytes).unwrap(),
        }
    }

    fn local(&mut self, rank: usize, step: &Step) {
        let (reduce, dtype, size) = (self.reduce, self.dtype, self.memory.len());
        match step {
            Step::Offer(spans) => {
                let offer = spans
                    .iter()
                    .map(|&span| self.read(rank, span))
                    .collect::<Vec<_>>()
                    .concat();
                self.memory[rank].offers.push(offer);
            }
            Step::Pull {
                from,
                offer,
                start,
                into,
            } => {
                let part = self.part(*from, *offer, *start, into.len);
                self.write(rank, *into).copy_from_slice(&part);
            }
            Step::PullAll {
                from,
                offer,
                start,
                into,
                whole,
            } => {
                let parts: Vec<_> = from
                    .iter()
                    .map(|&peer| self.part(peer, *offer, *start, into.len))
                    .collect();
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                combine(partial(reduce, *whole), dtype, self.write(rank, *into), &parts).unwrap();
            }
            Step::Copy { from, into } => {
                let bytes = self.read(rank, *from);
                self.write(rank, *into).copy_from_slice(&bytes);
            }
            Step::Combine { into, parts, whole } => {
                let held: Vec<_> = parts.iter().map(|&part| self.read(rank, part)).collect();
                let mut others: Vec<&[u8]> = held.iter().map(Vec::as_slice).collect();
                let reduce = partial(reduce, *whole);
                match parts.iter().position(|part| part == into) {
                    Some(position) => {
                        others.remove(position);
                        combine_in_place(reduce, dtype, self.write(rank, *into), position, &others).unwrap();
                    }
                    None => combine(reduce, dtype, self.write(rank, *into), &others).unwrap(),
                }
            }
            Step::Scale(span) => {
                if let Some(factor) = self.factor {
                    scale(dtype, self.write(rank, *span), factor).unwrap();
                }
            }
            Step::Finish(span) if reduce == ReduceOp::Avg => finish_avg(dtype, self.write(rank, *span), size).unwrap(),
            _ => {}
        }
    }

    fn part(&self, peer: usize, offer: usize, start: usize, len: usize) -> Vec<u8> {
        let byte_len = self.dtype.byte_len();
        self.memory[peer].offers[offer][start * byte_len..][..len * byte_len].to_vec()
    }

    fn read(&mut self, rank: usize, span: Span) -> Vec<u8> {
        let byte_len = self.dtype.byte_len();
        self.memory[rank].place(span.place)[byte_range(span, byte_len)].to_vec()
    }

    fn write(&mut self, rank: usize, span: Span) -> &mut [u8] {
        let byte_len = self.dtype.byte_len();
        &mut self.memory[rank].place(span.place)[byte_range(span, byte_len)]
    }
}

fn byte_range(span: Span, byte_len: usize) -> std::ops::Range<usize> {
    span.start * byte_len..span.end() * byte_len
}

/// What a combine of a part of the inputs computes: an average divides only when all are there.
fn partial(reduce: ReduceOp, whole: bool) -> ReduceOp {
    if reduce == ReduceOp::Avg && !whole {
        ReduceOp::Sum
    } else {
        reduce
    }
}
