//! Two operands: what has been gathered so far, and what a peer just sent.

use bytemuck::Pod;
use pulp::Arch;

use super::fault::{check_length, check_whole};
use super::isa::{Isa, run_on};
use super::lane::Lane;
use super::loops;
use super::resolve::{Job, resolve};
use super::{ReduceError, ReduceOp};
use crate::DType;

/// Folds `incoming` into `accumulator`, element by element.
///
/// There is no left or right: every reduction is commutative to the bit. `Avg` and `PreMulSum` fold as `Sum`; finish an
/// average with [`finish_avg`](super::finish_avg). The average of integers cannot be folded.
///
/// Both slices hold whole elements of `dtype`, equally many, at any address.
///
/// # Errors
///
/// [`ReduceError`] where they do not, and where the reduction is [not defined](ReduceOp::supports_fold). Nothing is written then.
pub fn fold(reduce: ReduceOp, dtype: DType, accumulator: &mut [u8], incoming: &[u8]) -> Result<(), ReduceError> {
    fold_on(Arch::new(), reduce, dtype, accumulator, incoming)
}

/// [`fold`] compiled for `arch`.
pub(super) fn fold_on(
    arch: Arch,
    reduce: ReduceOp,
    dtype: DType,
    accumulator: &mut [u8],
    incoming: &[u8],
) -> Result<(), ReduceError> {
    reduce.supports_fold(dtype)?;
    check_whole(dtype, accumulator)?;
    check_length(accumulator.len(), incoming)?;
    let reduce = if reduce == ReduceOp::Avg { ReduceOp::Sum } else { reduce };
    Ok(resolve(reduce, dtype, Fold { arch, accumulator, incoming })?)
}

struct Fold<'a> {
    arch: Arch,
    accumulator: &'a mut [u8],
    incoming: &'a [u8],
}

impl Job for Fold<'_> {
    fn run<L, W>(self, join: impl Fn(W, W) -> W + Copy, _settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod,
    {
        run_on(
            self.arch,
            #[inline(always)]
            |isa: Isa| loops::fold_all::<L, W>(isa, self.accumulator, self.incoming, join),
        );
    }
}
