//! From a reduction and an element type, known at run time, to the Rust types and functions a kernel is compiled for.

use std::ops::{BitAnd, BitOr, BitXor, Neg};

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;

use super::lane::Lane;
use super::number::{Number, Ordered, Share, complex_product, keep};
use super::{ReduceOp, Unsupported};
use crate::{Bool, DType};

/// A kernel waiting for its types.
pub(super) trait Job {
    /// Runs the kernel on lanes `L` that accumulate as `W`: operands are joined, then the total is settled by their count.
    fn run<L, W>(self, join: impl Fn(W, W) -> W + Copy, settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod;
}

/// Runs `job` with the types and functions of `reduce` on `dtype`.
pub(super) fn resolve<J: Job>(reduce: ReduceOp, dtype: DType, job: J) -> Result<(), Unsupported> {
    reduce.supports(dtype)?;
    let ran = match dtype {
        DType::F64 => float::<f64, f64, J>(reduce, job),
        DType::F32 => float::<f32, f32, J>(reduce, job),
        DType::F16 => float::<f16, f32, J>(reduce, job),
        DType::BF16 => float::<bf16, f32, J>(reduce, job),
        DType::I8 => integer::<i8, u8, i64, J>(reduce, job),
        DType::U8 => integer::<u8, u8, i64, J>(reduce, job),
        DType::I16 => integer::<i16, u16, i64, J>(reduce, job),
        DType::U16 => integer::<u16, u16, i64, J>(reduce, job),
        DType::I32 => integer::<i32, u32, i64, J>(reduce, job),
        DType::U32 => integer::<u32, u32, i64, J>(reduce, job),
        DType::I64 => integer::<i64, u64, i128, J>(reduce, job),
        DType::U64 => integer::<u64, u64, i128, J>(reduce, job),
        DType::Bool => flag(reduce, job),
        DType::Complex64 => complex::<f32, J>(reduce, job),
        DType::Complex128 => complex::<f64, J>(reduce, job),
        DType::F8E4M3FN | DType::F8E5M2 | DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => None,
    };
    ran.ok_or_else(|| reduce.refused(dtype, "there is no kernel for it"))
}

fn float<L: Lane<W>, W: Ordered + Share, J: Job>(reduce: ReduceOp, job: J) -> Option<()> {
    match reduce {
        ReduceOp::Sum | ReduceOp::PreMulSum => job.run::<L, W>(W::plus, keep),
        ReduceOp::Product => job.run::<L, W>(W::times, keep),
        ReduceOp::Min => job.run::<L, W>(W::least, keep),
        ReduceOp::Max => job.run::<L, W>(W::greatest, keep),
        ReduceOp::Avg => job.run::<L, W>(W::plus, W::share),
        ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => return None,
    }
    Some(())
}

/// Sums and averages of complex numbers are those of their parts.
fn complex<F, J: Job>(reduce: ReduceOp, job: J) -> Option<()>
where
    F: Lane<F> + Ordered + Share + Neg<Output = F>,
    Complex<F>: Lane<Complex<F>>,
{
    match reduce {
        ReduceOp::Product => job.run::<Complex<F>, Complex<F>>(complex_product, keep),
        ReduceOp::Sum | ReduceOp::PreMulSum | ReduceOp::Avg => float::<F, F, J>(reduce, job)?,
        _ => return None,
    }
    Some(())
}

/// What wraps is the same for both signs, and what joins bits for all widths: each is compiled once.
fn integer<L, U, W, J>(reduce: ReduceOp, job: J) -> Option<()>
where
    L: Lane<L> + Lane<W> + Ordered,
    U: Lane<U> + Number,
    W: Share,
    J: Job,
{
    match reduce {
        ReduceOp::Sum => job.run::<U, U>(U::plus, keep),
        ReduceOp::Product => job.run::<U, U>(U::times, keep),
        ReduceOp::Min => job.run::<L, L>(L::least, keep),
        ReduceOp::Max => job.run::<L, L>(L::greatest, keep),
        ReduceOp::Avg => job.run::<L, W>(W::plus, W::share),
        ReduceOp::BitAnd => job.run::<u8, u8>(u8::bitand, keep),
        ReduceOp::BitOr => job.run::<u8, u8>(u8::bitor, keep),
        ReduceOp::BitXor => job.run::<u8, u8>(u8::bitxor, keep),
        ReduceOp::PreMulSum => return None,
    }
    Some(())
}

fn flag<J: Job>(reduce: ReduceOp, job: J) -> Option<()> {
    match reduce {
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::BitOr => job.run::<Bool, u8>(u8::bitor, keep),
        ReduceOp::Product | ReduceOp::Min | ReduceOp::BitAnd => job.run::<Bool, u8>(u8::bitand, keep),
        ReduceOp::BitXor => job.run::<Bool, u8>(u8::bitxor, keep),
        ReduceOp::Avg | ReduceOp::PreMulSum => return None,
    }
    Some(())
}
