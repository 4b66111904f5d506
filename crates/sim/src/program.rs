//! Drawing programs: which operation, over what, and how it is played.

use std::iter;

use fastrand::Rng;
use phalanx_core::schedule::{Algorithm, Ground, choose};
use phalanx_core::{Class, Counts, DType, Layout, Op, OpKind, ReduceOp};

use crate::data;
use crate::scene::{Act, Call};

/// What the drawing of operations stands on.
pub(crate) struct World {
    pub(crate) layout: Layout,
    pub(crate) is_one_host: bool,
    pub(crate) boards: bool,
    /// Whether slots of windows are small, so that only the core's own choice is sure to fit them.
    pub(crate) tight: bool,
    pub(crate) ground: Ground,
}

impl World {
    pub(crate) fn size(&self) -> usize {
        self.layout.size()
    }

    /// An operation of any kind.
    pub(crate) fn act(&self, dice: &mut Rng) -> Act {
        let kind = OpKind::ALL[dice.usize(..9)];
        self.act_of(dice, kind)
    }

    /// An operation of this kind, which all ranks call alike.
    pub(crate) fn act_of(&self, dice: &mut Rng, kind: OpKind) -> Act {
        let (dtype, reduce) = dtype(dice, kind);
        let ops = self.ops(dice, kind, reduce);
        let mixed = dice.u8(..4) == 0;
        let usual = dice.bool();
        let (algorithm, segments, windows) = self.way(dice, &ops[0], dtype);
        let call = |op: Op| {
            let can = op.need_in_place(0, self.size()).is_some();
            let factor = (reduce == Some(ReduceOp::PreMulSum)).then(|| data::factor(dice, dtype));
            Call {
                in_place: can && if mixed { dice.bool() } else { usual },
                op,
                dtype,
                factor,
                algorithm,
                segments,
                windows,
            }
        };
        Act { calls: ops.into_iter().map(call).collect(), odd: None }
    }

    /// How an operation is played: the algorithm, the segments, and whether two levels use windows.
    pub(crate) fn way(&self, dice: &mut Rng, op: &Op, dtype: DType) -> (Algorithm, usize, bool) {
        let windows = self.boards && self.is_one_host;
        if self.tight || dice.u8(..3) == 0 {
            let mut ground = self.ground;
            if !windows {
                ground.slot_byte_len = 0;
            }
            let (algorithm, segments) = choose(op, dtype, &self.layout, &ground);
            let fits = ground.segment_byte_len + self.size() * 16 <= self.ground.slot_byte_len;
            let two_level = algorithm == Algorithm::TwoLevel && self.boards;
            return (algorithm, segments, two_level && (fits || !self.tight));
        }
        let able = |algorithm: &Algorithm| algorithm.plays(op, dtype) && (windows || !algorithm.reads_windows());
        let algorithm = dice.choice(Algorithm::ALL.into_iter().filter(able).collect::<Vec<_>>());
        let algorithm = algorithm.expect("every operation can be played over links");
        let two_level = algorithm == Algorithm::TwoLevel && self.boards && dice.bool();
        (algorithm, dice.usize(1..=4), two_level)
    }

    /// Every rank's view of an operation.
    fn ops(&self, dice: &mut Rng, kind: OpKind, reduce: Option<ReduceOp>) -> Vec<Op> {
        let (size, count) = (self.size(), count(dice));
        let (reduce, root) = (reduce.unwrap_or(ReduceOp::Sum), dice.usize(..size));
        let op = match kind {
            OpKind::AllReduce => Op::AllReduce { count, reduce },
            OpKind::Reduce => Op::Reduce { count, reduce, root },
            OpKind::Broadcast => Op::Broadcast { count, root },
            OpKind::AllGather => Op::AllGather { counts: counts(dice, count, size) },
            OpKind::ReduceScatter => Op::ReduceScatter { counts: counts(dice, count, size), reduce },
            OpKind::Gather => Op::Gather { counts: counts(dice, count, size), root },
            OpKind::Scatter => Op::Scatter { counts: counts(dice, count, size), root },
            OpKind::AllToAll => return tables(dice, count, size),
            _ => Op::Barrier,
        };
        vec![op; size]
    }

    /// An operation in which any two ranks send each other something over a link, so that whatever an earlier
    /// mismatch left behind in a link is found.
    pub(crate) fn last_act(&self, dice: &mut Rng) -> Act {
        let mut act = self.act_of(dice, OpKind::AllToAll);
        for call in &mut act.calls {
            (call.algorithm, call.windows) = (Algorithm::Exchange, false);
        }
        act
    }
}

/// An element type, and a reduction that is defined for it where the operation has one.
fn dtype(dice: &mut Rng, kind: OpKind) -> (DType, Option<ReduceOp>) {
    let reduces = matches!(kind, OpKind::AllReduce | OpKind::Reduce | OpKind::ReduceScatter);
    let mut dtypes = DType::ALL.to_vec();
    dtypes.retain(|dtype| !reduces || dtype.class() != Class::Float8);
    let dtype = dtypes[dice.usize(..dtypes.len())];
    let mut defined = ReduceOp::ALL.to_vec();
    defined.retain(|reduce| reduces && reduce.supports(dtype).is_ok());
    (dtype, dice.choice(defined))
}

/// Mostly small, now and then nothing at all or some thousands.
fn count(dice: &mut Rng) -> usize {
    match dice.u8(..48) {
        0..=2 => 0,
        3..=5 => 1,
        6..=28 => dice.usize(2..24),
        47 => dice.usize(1000..4000),
        _ => dice.usize(24..300),
    }
}

/// About `total` elements over all ranks.
fn counts(dice: &mut Rng, total: usize, size: usize) -> Counts {
    let each = total.div_ceil(size);
    if dice.bool() {
        return Counts::Even(each);
    }
    Counts::uneven(&iter::repeat_with(|| uneven(dice, each)).take(size).collect::<Vec<_>>())
}

fn uneven(dice: &mut Rng, each: usize) -> usize {
    if dice.u8(..5) == 0 { 0 } else { dice.usize(..=each * 2) }
}

/// All-to-all: every rank has tables of its own.
fn tables(dice: &mut Rng, total: usize, size: usize) -> Vec<Op> {
    let each = total.div_ceil(size * size);
    if dice.bool() {
        let counts = Counts::Even(each);
        let op = Op::AllToAll { give: counts.clone(), take: counts };
        return vec![op; size];
    }
    let table: Vec<usize> = iter::repeat_with(|| uneven(dice, each)).take(size * size).collect();
    let column = |rank: usize| -> Vec<usize> { (0..size).map(|from| table[from * size + rank]).collect() };
    (0..size)
        .map(|rank| Op::AllToAll {
            give: Counts::uneven(&table[rank * size..][..size]),
            take: Counts::uneven(&column(rank)),
        })
        .collect()
}
