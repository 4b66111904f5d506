//! Groups that come from another, and groups that end: what else there is goes on.

use phalanx_core::{DType, ErrorKind, GroupOptions, Op, ReduceOp};

use super::values::elements;
use super::{Candidate, Verdict, told};
use crate::api::{Cuda, Nccl, Process};
use crate::group::NcclOptions;

/// A group of all ranks in the other order, and its parent beside it.
pub(super) fn split<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let members: Vec<usize> = (0..on.size()).rev().collect();
    let part = on.group.split(&members, GroupOptions::default().timeout(on.timeout)).map_err(told)?;
    let part = part.ok_or("a member has no group")?;
    let mut first = [on.rank() as u32];
    part.group().broadcast(&mut first, 0).map_err(told)?;
    on.leave_other(part)?;
    on.group.group().barrier().map_err(told)?;
    let is_right = first == [on.size() as u32 - 1];
    if is_right { Ok(None) } else { Err(format!("rank 0 of the part gave {}", first[0])) }
}

/// A NaN is found, and named where it is.
pub(super) fn nan<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    if let Err(why) = &on.nan_check {
        return Ok(Some(format!("the device does not know the kernels: {why}")));
    }
    let group = on.other("nan", NcclOptions::default().check_nan(true))?;
    let mut bytes = elements(DType::F32, &[1; 3000]);
    let op = || Op::AllReduce { count: 3000, reduce: ReduceOp::Sum };
    let good = on.upload(&bytes)?;
    let work = group.submit(op(), DType::F32, None, (None, &good), on.stream).map_err(told)?;
    work.wait().map_err(told)?;
    if on.rank() == 0 {
        bytes[2900 * 4..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    }
    let bad = on.upload(&bytes)?;
    let work = group.submit(op(), DType::F32, None, (None, &bad), on.stream).map_err(told)?;
    let ended = work.wait();
    on.leave_other(group)?;
    match ended {
        Ok(()) => Err("a NaN went through".into()),
        Err(error) if error.to_string().contains("NaN at element 2900 on rank 0") => Ok(None),
        Err(error) => Err(told(error)),
    }
}

/// One rank aborts: all are told, and the group beside it goes on.
pub(super) fn abort<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let group = on.other("abort", NcclOptions::default())?;
    let host = group.group();
    host.barrier().map_err(told)?;
    if on.rank() == 0 {
        host.abort("the list asks for it");
    }
    let ended = host.all_reduce(&mut [1.0_f32; 16], ReduceOp::Sum);
    on.group.group().barrier().map_err(told)?;
    on.leave_other(group)?;
    match ended {
        Err(error) if error.kind() == ErrorKind::Aborted => Ok(None),
        Err(error) => Err(told(error)),
        Ok(()) => Err("an operation went on after the abort".into()),
    }
}
