//! The argument checks of every operation, in one place. What passes here is legal everywhere below.

use std::fmt::Display;

use super::{Group, nan};
use crate::call::Reduction;
use crate::op::Need;
use crate::reduce::{Factor, ReduceOp};
use crate::{Class, Counts, DType, Error, Layout, Op, OpKind, Result};

impl Group {
    /// That `op` could be called with these buffers now: what [`run_bytes`](Group::run_bytes) and [`submit_bytes`](Group::submit_bytes) check
    /// before they begin, for whoever calls several operations of which none is to begin where another one cannot. It begins nothing.
    ///
    /// # Errors
    ///
    /// [`Usage`](crate::ErrorKind::Usage), as they refuse it.
    pub fn check_bytes(
        &self,
        op: &Op,
        dtype: DType,
        factor: Option<Factor>,
        input: Option<&[u8]>,
        output: &[u8],
    ) -> Result<()> {
        self.fits(op, dtype, factor, input, output)?;
        if self.shared.options.check_nan {
            nan::check(op, dtype, (&self.shared.layout, self.own_world_rank()), input, output)?;
        }
        self.shared.backend.accepts(op, dtype, factor)
    }
}

/// The buffers of a call, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lens {
    /// Absent when the operation works in place.
    pub(super) input: Option<usize>,
    pub(super) output: usize,
}

/// That `op` may be called like this.
pub(super) fn check(op: &Op, dtype: DType, factor: Option<Factor>, layout: &Layout, lens: Lens) -> Result<()> {
    let kind = op.kind();
    if let Some(root) = op.root() {
        check_rank(kind, "root", root, layout.size())?;
    }
    check_peer(op, layout)?;
    check_tables(op, dtype, layout)?;
    match (op.reduce(), factor) {
        (Some(op), factor) => check_reduction(kind, Reduction { op, factor }, dtype)?,
        (None, Some(_)) => return Err(useless_factor(kind, kind)),
        (None, None) => {}
    }
    check_lens(op, layout, lens)
}

/// That bytes are whole elements.
pub(super) fn whole_elements(kind: OpKind, argument: &'static str, byte_len: usize, dtype: DType) -> Result<usize> {
    ensure(dtype.is_whole(byte_len), || {
        let expected = format!("must be a multiple of the {} bytes of {dtype}", dtype.byte_len());
        Error::usage(kind, argument, format!("{byte_len} bytes long"), expected)
    })?;
    Ok(dtype.elements(byte_len))
}

/// That a buffer divides into one part for each rank.
pub(super) fn equal_parts(kind: OpKind, argument: &'static str, len: usize, size: usize) -> Result<usize> {
    ensure(len.is_multiple_of(size), || {
        Error::usage(kind, argument, elements(len), format!("must be a multiple of the group size {size}"))
    })?;
    Ok(len / size)
}

pub(super) fn check_rank(kind: OpKind, argument: &'static str, rank: usize, size: usize) -> Result<()> {
    ensure(rank < size, || Error::usage(kind, argument, rank, format!("must be below the group size {size}")))
}

/// That a list has as many entries as there are ranks, or none where another rank has it.
pub(super) fn check_list(kind: OpKind, argument: &'static str, len: usize, expected: usize) -> Result<()> {
    ensure(len == expected, || {
        let expected = match expected {
            0 => "must be empty on all ranks but the root".to_owned(),
            size => format!("must have one for each of the {size} ranks"),
        };
        Error::usage(kind, argument, format!("a list of {len}"), expected)
    })
}

/// That a message is to or from another rank.
pub(super) fn check_peer(op: &Op, layout: &Layout) -> Result<()> {
    let (argument, peer, tag) = match op {
        Op::Send { to, tag, .. } => ("to", Some(*to), *tag),
        Op::Recv { from, tag, .. } => ("from", *from, *tag),
        _ => return Ok(()),
    };
    match peer {
        Some(peer) => check_rank(op.kind(), argument, peer, layout.size())?,
        None => ensure(layout.size() > 1, || {
            Error::usage(op.kind(), argument, "any", "which needs another rank in the group")
        })?,
    }
    ensure(!Group::OWN_TAGS.contains(&tag), || {
        let (first, last) = (Group::OWN_TAGS.start(), Group::OWN_TAGS.end());
        let expected = format!("must not be one of {first:#x} to {last:#x}, which are the group's own");
        Error::usage(op.kind(), "tag", format!("{tag:#x}"), expected)
    })?;
    ensure(peer != Some(layout.rank()), || {
        Error::usage(op.kind(), argument, layout.rank(), "must be another rank than the caller's own")
    })
}

/// That the tables of an operation are of this group, and fit each other.
fn check_tables(op: &Op, dtype: DType, layout: &Layout) -> Result<()> {
    let check = |argument, counts| check_table(op.kind(), argument, counts, layout.size(), dtype);
    match op {
        Op::AllGather { counts } | Op::ReduceScatter { counts, .. } => check("counts", counts),
        Op::Gather { counts, .. } | Op::Scatter { counts, .. } => check("counts", counts),
        Op::AllToAll { give, take } => {
            check("give", give)?;
            check("take", take)?;
            check_own_part(give.of(layout.rank()), take.of(layout.rank()))
        }
        _ => Ok(()),
    }
}

/// That a table has a part for each rank, and all parts together fit the address space: offsets are summed on ranks that only have a part, too.
fn check_table(kind: OpKind, argument: &'static str, counts: &Counts, size: usize, dtype: DType) -> Result<()> {
    let total = match counts {
        Counts::Even(count) => *count as u128 * size as u128,
        Counts::Uneven(table) => {
            ensure(table.len() == size, || {
                let expected = format!("must have one for each of the {size} ranks");
                Error::usage(kind, argument, format!("a table of {}", table.len()), expected)
            })?;
            table.iter().map(|&count| count as u128).sum()
        }
    };
    let most = dtype.elements(isize::MAX as usize);
    ensure(total <= most as u128, || {
        Error::usage(kind, argument, format!("{total} elements in all"), format!("must be at most {most} of {dtype}"))
    })
}

/// That a rank takes from itself what it gives itself.
fn check_own_part(given: usize, taken: usize) -> Result<()> {
    ensure(given == taken, || {
        let value = format!("{taken} for this rank itself");
        Error::usage(OpKind::AllToAll, "take", value, format!("must be the {given} of give"))
    })
}

fn check_reduction(kind: OpKind, reduction: Reduction, dtype: DType) -> Result<()> {
    let Reduction { op, factor } = reduction;
    op.supports(dtype).map_err(|refused| {
        Error::usage(kind, "op", op, format!("which is not defined for {dtype}: {}", refused.why))
    })?;
    match (op, factor) {
        (ReduceOp::PreMulSum, None) => Err(Error::usage(kind, "op", op, "must come with a factor")),
        (ReduceOp::PreMulSum, Some(Factor::Complex(factor))) if dtype.class() != Class::Complex => {
            Err(Error::usage(kind, "factor", factor, format!("must be real for {dtype}")))
        }
        (ReduceOp::PreMulSum, Some(_)) | (_, None) => Ok(()),
        (_, Some(_)) => Err(useless_factor(kind, op)),
    }
}

fn useless_factor(kind: OpKind, what: impl Display) -> Error {
    Error::usage(kind, "factor", "given", format!("which {what} has no use for"))
}

fn check_lens(op: &Op, layout: &Layout, lens: Lens) -> Result<()> {
    let (rank, size) = (layout.rank(), layout.size());
    let need = op.need(rank, size);
    let Some(input) = lens.input else {
        return match op.need_in_place(rank, size) {
            Some(expected) => check_len(op, "output", lens.output, expected),
            None => {
                Err(Error::usage(op.kind(), "input", "absent", "must be given: this operation has no form in place"))
            }
        };
    };
    let Need { input: given, output: taken } = need;
    check_len(op, "input", input, given)?;
    check_len(op, "output", lens.output, taken)
}

fn check_len(op: &Op, argument: &'static str, len: usize, expected: usize) -> Result<()> {
    ensure(len == expected, || Error::usage(op.kind(), argument, elements(len), format!("must be {expected}")))
}

/// That this holds. What is refused is worded out of the way of the many calls of which nothing is.
#[inline]
fn ensure(holds: bool, refusal: impl FnOnce() -> Error) -> Result<()> {
    #[cold]
    #[inline(never)]
    fn refuse(refusal: impl FnOnce() -> Error) -> Result<()> {
        Err(refusal())
    }
    if holds { Ok(()) } else { refuse(refusal) }
}

fn elements(len: usize) -> String {
    format!("{len} elements long")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use num_complex::Complex;

    use crate::backend::{Backend, Buffers, Number, Pending};
    use crate::call::Call;
    use crate::player::Data;
    use crate::{GroupOptions, OpKind};

    use super::*;

    /// A backend that has no numbers of 8 bits, and in which nothing may be begun.
    struct Untouched;

    impl Backend for Untouched {
        fn accepts(&self, op: &Op, dtype: DType, _: Option<Factor>) -> Result<()> {
            if dtype.byte_len() > 1 { Ok(()) } else { Err(Error::usage(op.kind(), "dtype", dtype, "must be wider")) }
        }

        fn number(&self, op: OpKind, _: Duration) -> Result<Number> {
            panic!("{op} has a number")
        }

        fn upcoming(&self) -> u32 {
            0
        }

        fn submit(&self, call: Call, _: Buffers) -> Box<dyn Pending> {
            panic!("{} was begun", call.op.kind())
        }

        fn run(&self, call: &Call, _: &mut Data<'_>) -> Result<Option<usize>> {
            panic!("{} was begun", call.op.kind())
        }

        fn abort(&self, _: Error) {}

        fn now(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn what_a_call_would_be_refused_with_is_said_before_anything_is_begun() {
        let options = GroupOptions::default().check_nan(true);
        let group = Group::new(Layout::one_host(1, 4).unwrap(), Arc::new(Untouched), options);
        let of = |count| Op::AllReduce { count, reduce: ReduceOp::PreMulSum };
        let complex = Some(Factor::Complex(Complex::new(1.0, 2.0)));
        let told = |op: Op, dtype, factor, output: &[u8]| {
            group.check_bytes(&op, dtype, factor, None, output).map_err(|error| error.to_string())
        };
        assert_eq!(told(of(1), DType::Complex64, complex, &[0; 8]), Ok(()));
        for (told, words) in [
            (told(of(2), DType::F32, complex, &[0; 8]), "factor is 1+2i, must be real for f32"),
            (told(of(2), DType::F32, None, &[0; 8]), "op is premul_sum, must come with a factor"),
            (told(of(2), DType::F32, Some(Factor::Real(2.0)), &[0; 4]), "output is 1 elements long, must be 2"),
            (told(of(2), DType::F32, Some(Factor::Real(2.0)), &[0; 7]), "output is 7 bytes long, must be a multiple"),
            (told(of(2), DType::F32, Some(Factor::Real(2.0)), &[255; 8]), "data is NaN at element 0 on rank 1"),
            (told(Op::Broadcast { count: 2, root: 0 }, DType::U8, None, &[0; 2]), "dtype is u8, must be wider"),
        ] {
            assert!(matches!(&told, Err(told) if told.contains(words)), "{told:?}, not: {words}");
        }
    }
}
