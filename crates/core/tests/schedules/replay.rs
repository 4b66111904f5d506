//! Plays all ranks' schedules on real memory, in the order the validity check walks them.

use phalanx_core::link::Lease;
use phalanx_core::reduce::{Factor, combine, combine_in_place, finish_avg, fold, scale};
use phalanx_core::schedule::{
    Algorithm, Event, Lending, Part, Place, Plan, Recv, Schedule, Send, Source, Span, Step, Then, build, walk,
};
use phalanx_core::{DType, Layout, Op, ReduceOp};

/// One case: an operation, an algorithm and the ground it is played on.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    /// Rank 0's view of the operation.
    pub(crate) op: &'a Op,
    /// Each rank's own view where the numbers differ from rank to rank.
    pub(crate) op_of: &'a dyn Fn(usize) -> Op,
    pub(crate) dtype: DType,
    pub(crate) hosts: &'a [u32],
    pub(crate) algorithm: Algorithm,
    pub(crate) segments: usize,
    pub(crate) in_place: bool,
    pub(crate) windows: bool,
}

/// All ranks' memory. It is kept from case to case: new pages for each would cost more than the schedules themselves.
pub(crate) struct Stage {
    own: Vec<Own>,
    windows: Vec<Window>,
    /// What every byte of an output is before it is written.
    blank: u8,
    /// The same of scratch.
    nonsense: u8,
}

/// What one rank alone reads and writes.
#[derive(Default)]
struct Own {
    output: Vec<u8>,
    scratch: Vec<u8>,
}

/// One rank's latest offers: no peer may read an older one.
#[derive(Default)]
struct Window {
    made: usize,
    /// The latest offers, and what each refers to if it stays where it is.
    slots: [Vec<u8>; LOOKBACK],
    staying: [Option<Vec<Span>>; LOOKBACK],
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

    /// Walks the schedules over `inputs`, each rank with its factor if there are any; panics with the case's name when
    /// they are not valid. The outputs stay on the stage.
    pub(crate) fn play(&self, inputs: &[Vec<u8>], factors: &[Factor], stage: &mut Stage) {
        let schedules = self.schedules().unwrap_or_else(|| panic!("{self:?}: cannot be built"));
        stage.set(self, &schedules, inputs);
        let unit = self.dtype.byte_len();
        let lens: Vec<_> = (0..self.size())
            .map(|rank| (self.input(inputs, rank).len() / unit, stage.own[rank].output.len() / unit))
            .collect();
        let len_of = |rank: usize, place| {
            if place == Place::Input { lens[rank].0 } else { lens[rank].1 }
        };
        let mut play = Play { case: self, inputs, factors, reduce: self.op.reduce().unwrap_or(ReduceOp::Sum), stage };
        let walked = walk(&schedules, self.hosts, len_of, |event| play.take(event));
        walked.unwrap_or_else(|fault| panic!("{self:?}: {fault}"));
    }

    /// Does what is done in the place of the schedules where all ranks lend their memory; false where they cannot. One slice after the other:
    /// if any two had an element in common, it would be joined twice.
    pub(crate) fn lend(&self, inputs: &[Vec<u8>], stage: &mut Stage) -> bool {
        let schedules = self.schedules().unwrap_or_else(|| panic!("{self:?}: cannot be built"));
        let lendings: Vec<&Lending> = schedules.iter().filter_map(|schedule| schedule.lending.as_ref()).collect();
        assert!(lendings.is_empty() || lendings.len() == self.size(), "{self:?}: the ranks do not all meet");
        let Some(room) = lendings.first().and_then(|lending| lending.room) else { return false };
        if lendings.iter().any(|lending| lending.room.is_none()) {
            return false;
        }
        assert!(lendings.iter().all(|lending| lending.room == Some(room)), "{self:?}: the ranks lend different memory");
        stage.set(self, &schedules, inputs);
        let (dtype, own) = (self.dtype, &mut stage.own[..self.size()]);
        for Lending { slice, source, .. } in lendings {
            let parts: Vec<Vec<u8>> = own.iter().map(|own| own.read(&[], *slice, dtype).to_vec()).collect();
            let mut part = vec![0; slice.len * dtype.byte_len()];
            match *source {
                Source::All => {
                    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                    combine(self.op.reduce().unwrap(), dtype, &mut part, &parts).unwrap();
                }
                Source::Rank(root) => part.copy_from_slice(&parts[root]),
            }
            own.iter_mut().for_each(|own| own.write(*slice, dtype).copy_from_slice(&part));
        }
        true
    }

    /// A rank's result within its output buffer.
    pub(crate) fn result<'a>(&self, stage: &'a Stage, rank: usize) -> &'a [u8] {
        let op = (self.op_of)(rank);
        let (start, len) = match &op {
            Op::ReduceScatter { counts, .. } if self.in_place => {
                ((0..rank).map(|before| counts.of(before)).sum(), counts.of(rank))
            }
            _ => (0, op.need(rank, self.size()).output),
        };
        let unit = self.dtype.byte_len();
        &stage.own[rank].output[start * unit..][..len * unit]
    }

    /// Panics unless every rank has what is expected of it, and an untouched buffer where nothing is.
    pub(crate) fn compare(&self, stage: &Stage, inputs: &[Vec<u8>], expected: &[Option<Vec<u8>>]) {
        for (rank, expected) in expected.iter().enumerate() {
            if let Some(expected) = expected {
                let right = self.result(stage, rank) == expected;
                assert!(right, "{self:?}: rank {rank} has a wrong answer");
                continue;
            }
            let output = &stage.own[rank].output;
            let is_blank = || output.iter().all(|&byte| byte == stage.blank);
            let untouched = if self.in_place { *output == inputs[rank] } else { is_blank() };
            assert!(untouched, "{self:?}: rank {rank}'s buffer was touched");
        }
    }

    /// What a rank reads as its input; in place there is none.
    fn input<'a>(&self, inputs: &'a [Vec<u8>], rank: usize) -> &'a [u8] {
        if self.in_place { &[] } else { &inputs[rank] }
    }
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {} hosts {:?} segments {}", self.algorithm, self.op, self.dtype, self.hosts, self.segments)?;
        write!(f, " in_place {} windows {}", self.in_place, self.windows)
    }
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::filled_with(0xFF, 0xA5)
    }
}

impl Stage {
    /// One on which outputs and scratch hold these bytes before a case is played.
    pub(crate) fn filled_with(blank: u8, nonsense: u8) -> Stage {
        Stage { own: vec![], windows: vec![], blank, nonsense }
    }

    /// Lays out a case: whatever is in scratch or output must not matter, so both are filled with nonsense.
    fn set(&mut self, case: &Case<'_>, schedules: &[Schedule], inputs: &[Vec<u8>]) {
        let (size, unit) = (case.size(), case.dtype.byte_len());
        self.own.resize_with(self.own.len().max(size), Own::default);
        self.windows.resize_with(self.windows.len().max(size), Window::default);
        for (rank, schedule) in schedules.iter().enumerate() {
            let op = (case.op_of)(rank);
            let own = &mut self.own[rank];
            refill(&mut own.scratch, schedule.scratch * unit, self.nonsense);
            self.windows[rank].made = 0;
            if !case.in_place {
                refill(&mut own.output, op.need(rank, size).output * unit, self.blank);
                continue;
            }
            let len = op.need_in_place(rank, size).expect("works in place");
            refill(&mut own.output, len * unit, self.blank);
            let start: usize = match &op {
                Op::AllGather { counts } => (0..rank).map(|before| counts.of(before)).sum(),
                _ => 0,
            };
            own.output[start * unit..][..inputs[rank].len()].copy_from_slice(&inputs[rank]);
        }
    }
}

struct Play<'a> {
    case: &'a Case<'a>,
    inputs: &'a [Vec<u8>],
    factors: &'a [Factor],
    reduce: ReduceOp,
    stage: &'a mut Stage,
}

impl Play<'_> {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Transfer { send, recv } => self.transfer(send, recv),
            Event::Local { rank, step } => self.local(rank, step),
        }
    }

    fn transfer(&mut self, send: Send, recv: Recv) {
        let dtype = self.case.dtype;
        let input = self.case.input(self.inputs, recv.from);
        let [from, to] = self.stage.own.get_disjoint_mut([recv.from, send.to]).unwrap();
        let bytes = from.read(input, send.span, dtype);
        let into = to.write(recv.span, dtype);
        match recv.then {
            Then::Store => into.copy_from_slice(bytes),
            Then::Fold => fold(self.reduce, dtype, into, bytes).unwrap(),
        }
    }

    fn local(&mut self, rank: usize, step: &Step) {
        let (dtype, size) = (self.case.dtype, self.case.size());
        let input = self.case.input(self.inputs, rank);
        match step {
            Step::Pull { from, offer, .. } => self.look_again(*from, *offer),
            Step::PullAll { from, offer, .. } => from.iter().for_each(|part| self.look_again(part.rank, *offer)),
            _ => {}
        }
        let Stage { own, windows, .. } = &mut *self.stage;
        let own = &mut own[rank];
        match step {
            Step::Offer { spans, lease } => {
                let slot = windows[rank].next((*lease != Lease::None).then(|| spans.clone()));
                spans.iter().for_each(|&span| slot.extend_from_slice(own.read(input, span, dtype)));
            }
            Step::Pull { from, offer, start, into } => {
                let part = windows[*from].part(*offer, *start, into.len, dtype);
                own.write(*into, dtype).copy_from_slice(part);
            }
            Step::PullAll { from, offer, own: mine, place, into, whole } => {
                let part = |part: &Part| windows[part.rank].part(*offer, part.start, into.len, dtype);
                let mut parts: Vec<&[u8]> = from.iter().map(part).collect();
                let mine = own.read(input, *mine, dtype).to_vec();
                parts.insert(*place, &mine);
                combine(partial(self.reduce, *whole), dtype, own.write(*into, dtype), &parts).unwrap();
            }
            Step::Copy { from, into } => own.with_parts(input, *into, &[*from], dtype, |target, _, parts| {
                target.copy_from_slice(parts[0]);
            }),
            Step::Combine { into, parts, whole } => {
                let reduce = partial(self.reduce, *whole);
                own.with_parts(input, *into, parts, dtype, |target, position, others| match position {
                    Some(position) => combine_in_place(reduce, dtype, target, position, others).unwrap(),
                    None => combine(reduce, dtype, target, others).unwrap(),
                });
            }
            Step::Scale(span) => {
                if let Some(factor) = self.factors.get(rank) {
                    scale(dtype, own.write(*span, dtype), factor).unwrap();
                }
            }
            Step::Finish(span) if self.reduce == ReduceOp::Avg => {
                finish_avg(dtype, own.write(*span, dtype), size).unwrap();
            }
            _ => {}
        }
    }
}

impl Play<'_> {
    /// What stays where it is may be read there: whatever its owner has done to it since, it must be the same.
    fn look_again(&mut self, owner: usize, offer: usize) {
        let input = self.case.input(self.inputs, owner);
        let Stage { own, windows, .. } = &mut *self.stage;
        let Some(spans) = windows[owner].staying(offer).filter(|_| self.case.size() <= FEW) else { return };
        let now: Vec<u8> =
            spans.iter().flat_map(|&span| own[owner].read(input, span, self.case.dtype)).copied().collect();
        windows[owner].replace(offer, now);
    }
}

impl Own {
    fn read<'a>(&'a self, input: &'a [u8], span: Span, dtype: DType) -> &'a [u8] {
        let memory = match span.place {
            Place::Input => input,
            Place::Output => &self.output,
            Place::Scratch => &self.scratch,
        };
        &memory[byte_range(span, dtype)]
    }

    fn write(&mut self, span: Span, dtype: DType) -> &mut [u8] {
        let memory = match span.place {
            Place::Scratch => &mut self.scratch,
            _ => &mut self.output,
        };
        &mut memory[byte_range(span, dtype)]
    }

    /// Hands out `into` and the parts beside it; where `into` is one of them, its position instead.
    fn with_parts(
        &mut self,
        input: &[u8],
        into: Span,
        parts: &[Span],
        dtype: DType,
        act: impl FnOnce(&mut [u8], Option<usize>, &[&[u8]]),
    ) {
        let (memory, other) = match into.place {
            Place::Scratch => (&mut self.scratch, &self.output),
            _ => (&mut self.output, &self.scratch),
        };
        let (before, rest) = memory.split_at_mut(byte_range(into, dtype).start);
        let (target, after) = rest.split_at_mut(into.len * dtype.byte_len());
        let shift = into.end() * dtype.byte_len();
        let others = parts.iter().filter(|&&part| part != into).map(|&part| {
            let range = byte_range(part, dtype);
            match part.place {
                Place::Input => &input[range],
                place if place != into.place => &other[range],
                _ if part.end() <= into.start => &before[range],
                _ => &after[range.start - shift..range.end - shift],
            }
        });
        let others: Vec<&[u8]> = others.collect();
        act(target, parts.iter().position(|part| *part == into), &others);
    }
}

impl Window {
    fn next(&mut self, staying: Option<Vec<Span>>) -> &mut Vec<u8> {
        let place = self.made % LOOKBACK;
        self.made += 1;
        self.staying[place] = staying;
        let slot = &mut self.slots[place];
        slot.clear();
        slot
    }

    fn part(&self, offer: usize, start: usize, len: usize, dtype: DType) -> &[u8] {
        assert!(offer < self.made && self.made <= offer + LOOKBACK, "an offer that is gone");
        let unit = dtype.byte_len();
        &self.slots[offer % LOOKBACK][start * unit..][..len * unit]
    }

    fn staying(&self, offer: usize) -> Option<&[Span]> {
        self.staying[offer % LOOKBACK].as_deref()
    }

    fn replace(&mut self, offer: usize, bytes: Vec<u8>) {
        self.slots[offer % LOOKBACK] = bytes;
    }
}

fn refill(buffer: &mut Vec<u8>, len: usize, byte: u8) {
    buffer.clear();
    buffer.resize(len, byte);
}

fn byte_range(span: Span, dtype: DType) -> std::ops::Range<usize> {
    span.start * dtype.byte_len()..span.end() * dtype.byte_len()
}

/// What a combine of a part of the inputs computes: an average divides only when all are there.
fn partial(reduce: ReduceOp, whole: bool) -> ReduceOp {
    if reduce == ReduceOp::Avg && !whole { ReduceOp::Sum } else { reduce }
}

/// How many offers are kept: a rank may view its three latest, and the walk lets no rank be two ahead of another.
const LOOKBACK: usize = 4;
/// In larger worlds nothing else would happen, only more often.
const FEW: usize = 5;
