//! Mistakes of a program: what rank 1 calls where the others call something else.

use phalanx_core::{Group, ReduceOp, Result};

/// One mistake.
pub(crate) struct Planted {
    pub(crate) what: &'static str,
    /// The field that tells it, and its values on the other ranks and on rank 1, where they are always the same.
    pub(crate) field: &'static str,
    values: [&'static str; 2],
    /// Gets whether this is the odd rank.
    call: fn(bool, &Group) -> Result<()>,
}

/// The mistakes that a world of this size can make.
pub(crate) fn of(size: usize) -> impl Iterator<Item = &'static Planted> {
    MISTAKES.iter().filter(move |planted| size > 2 || planted.values[1] != "2")
}

impl Planted {
    /// Makes the mistake, and calls on until it is told.
    pub(crate) fn make(&self, group: &Group) -> Result<()> {
        let end = (self.call)(group.rank() == 1, group);
        // A rank that only gives may be done before anybody knows, and between hosts others may be too. One of their next calls
        // tells it.
        (0..3).fold(end, |end, _| end.and_then(|()| group.barrier()))
    }

    /// That the message names the field and both values.
    pub(crate) fn check(&self, told: &str) {
        let [even, odd] = self.values;
        let field = self.field;
        let names = |ours: &str, theirs: &str| {
            let ours = told.contains(&format!("called with {field} {ours}"));
            ours && told.rsplit(", rank").next().is_some_and(|rest| rest.contains(&format!("with {field} {theirs}")))
        };
        // Where the order is wrong, the ranks are seen at different operations.
        let is_told = names(even, odd) || names(odd, even) || told.contains("called with op ");
        assert!(is_told, "{}: {told}", self.what);
    }
}

const fn planted(
    what: &'static str,
    field: &'static str,
    values: [&'static str; 2],
    call: fn(bool, &Group) -> Result<()>,
) -> Planted {
    Planted { what, field, values, call }
}

const MISTAKES: &[Planted] = &[
    planted("count", "count", ["100", "200"], |odd, group| {
        group.all_reduce(&mut vec![1.0_f32; if odd { 200 } else { 100 }], ReduceOp::Sum)
    }),
    planted("count, off by one", "count", ["7", "8"], |odd, group| {
        group.all_reduce(&mut vec![1.0_f32; 7 + usize::from(odd)], ReduceOp::Sum)
    }),
    planted("count, nothing", "count", ["9", "0"], |odd, group| {
        group.all_reduce(&mut vec![1.0_f32; if odd { 0 } else { 9 }], ReduceOp::Sum)
    }),
    planted("count, far apart", "count", ["10", "1000000"], |odd, group| {
        group.all_reduce(&mut vec![1.0_f32; if odd { 1_000_000 } else { 10 }], ReduceOp::Sum)
    }),
    planted("count of a broadcast", "count", ["200", "100"], |odd, group| {
        group.broadcast(&mut vec![1.0_f32; if odd { 100 } else { 200 }], 1)
    }),
    planted("count of an all-gather", "count", ["", ""], |odd, group| {
        let len = if odd { 3 } else { 2 };
        group.all_gather(&vec![1_u8; len], &mut vec![0; group.size() * len])
    }),
    planted("count of an all-to-all", "count", ["2", "3"], |odd, group| {
        let len = group.size() * if odd { 3 } else { 2 };
        group.all_to_all(&vec![1_u8; len], &mut vec![0; len])
    }),
    planted("dtype of one width", "dtype", ["f32", "i32"], |odd, group| match odd {
        true => group.all_reduce(&mut [1_i32; 10], ReduceOp::Sum),
        false => group.all_reduce(&mut [1.0_f32; 10], ReduceOp::Sum),
    }),
    planted("dtype of two widths", "dtype", ["f32", "f64"], |odd, group| match odd {
        true => group.all_reduce(&mut [1.0_f64; 10], ReduceOp::Sum),
        false => group.all_reduce(&mut [1.0_f32; 10], ReduceOp::Sum),
    }),
    planted("reduction", "reduce", ["sum", "max"], |odd, group| {
        group.all_reduce(&mut [1.0_f32; 10], if odd { ReduceOp::Max } else { ReduceOp::Sum })
    }),
    planted("root of a reduction", "root", ["0", "2"], |odd, group| {
        group.reduce(&mut [1.0_f32; 10], ReduceOp::Sum, if odd { 2 } else { 0 })
    }),
    planted("root of a broadcast", "root", ["0", "1"], |odd, group| {
        let mut data = [group.rank() as u8; 10];
        group.broadcast(&mut data, usize::from(odd))
    }),
    planted("operation", "op", ["all_reduce", "broadcast"], |odd, group| match odd {
        true => group.broadcast(&mut [1.0_f32; 10], 0),
        false => group.all_reduce(&mut [1.0_f32; 10], ReduceOp::Sum),
    }),
    planted("operation, one moves nothing", "op", ["all_gather", "barrier"], |odd, group| match odd {
        true => group.barrier(),
        false => group.all_gather(&[1_u8; 10], &mut vec![0; 10 * group.size()]),
    }),
    planted("order of two operations", "op", ["barrier", "reduce_scatter"], |odd, group| {
        let reduce_scatter = || group.reduce_scatter(&vec![1_u8; 2 * group.size()], &mut [0; 2], ReduceOp::Sum);
        match odd {
            true => reduce_scatter().and_then(|()| group.barrier()),
            false => group.barrier().and_then(|()| reduce_scatter()),
        }
    }),
    planted("table", "split table", ["0x", "0x"], |odd, group| {
        let mut counts = vec![2; group.size()];
        counts[0] += usize::from(odd);
        counts[1] -= usize::from(odd);
        group.all_gather_uneven(&vec![1_u8; counts[group.rank()]], &mut vec![0; 2 * counts.len()], &counts)
    }),
    planted("table and none", "split table", ["0x", "0x"], |odd, group| match odd {
        true => {
            let (data, ones) = (vec![1_u8; group.size()], vec![1; group.size()]);
            group.all_to_all_uneven(&data, &ones, &mut data.clone(), &ones)
        }
        false => group.all_to_all(&vec![1_u8; group.size()], &mut vec![0; group.size()]),
    }),
    planted("tables of an all-to-all", "count", ["1", "2"], |odd, group| {
        let give = vec![if odd { 2 } else { 1 }; group.size()];
        let take: Vec<usize> = (0..group.size()).map(|from| if odd && from == 1 { 2 } else { 1 }).collect();
        group.all_to_all_uneven(&vec![1_u8; give.iter().sum()], &give, &mut vec![0; take.iter().sum()], &take)
    }),
];
