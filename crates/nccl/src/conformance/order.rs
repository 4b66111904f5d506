//! Order and memory: chains of copies and collectives that the host does not wait in, memory of the host, and memory that the communicator
//! knows.

use phalanx_core::{DType, Op, ReduceOp};

use super::values::{elements, given, joined};
use super::{Candidate, Verdict, same, told};
use crate::api::{Cuda, Nccl, Process, Version};
use crate::group::{DeviceBuffer, DeviceGroup, NcclOptions};

/// Collectives and copies on the program's stream by turns, with no wait of the host between.
pub(super) fn chain<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let (cuda, rounds, count) = (on.stack.cuda(), 3, 1024);
    let ones = on.upload(&elements(DType::F64, &vec![1; count]))?;
    let data = [&ones, &ones].map(|ones| on.upload(&vec![0; ones.byte_len()]));
    let [data, spare] = data;
    let (data, spare) = (data?, spare?);
    on.cuda(cuda.copy(data.span(), ones.span(), on.stream))?;
    let mut works = Vec::new();
    for _ in 0..rounds {
        let op = Op::AllReduce { count, reduce: ReduceOp::Sum };
        let work = on.group.submit(op, DType::F64, None, (Some(&data), &spare), on.stream).map_err(told)?;
        work.fence(on.stream).map_err(told)?;
        on.cuda(cuda.copy(data.span(), spare.span(), on.stream))?;
        works.push(work);
    }
    let got = on.download(&data)?;
    works.into_iter().try_for_each(|work| work.wait()).map_err(told)?;
    let expected = elements(DType::F64, &vec![(on.size() as i64).pow(rounds); count]);
    same(&got, &expected, || "a chain of collectives and copies".into()).map(|()| None)
}

/// Operations over memory of the host, as a world's group has them.
pub(super) fn host<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let (group, rank, size) = (on.group.group(), on.rank(), on.size());
    let mut sum = [rank as i64 + 1; 33];
    group.all_reduce(&mut sum, ReduceOp::Sum).map_err(told)?;
    let mut last = [rank as u8; 7];
    group.broadcast(&mut last, size - 1).map_err(told)?;
    group.barrier().map_err(told)?;
    let is_right = sum == [(size * (size + 1) / 2) as i64; 33] && last == [size as u8 - 1; 7];
    if is_right { Ok(None) } else { Err("memory of the host has not what it must".into()) }
}

/// Memory of NCCL's making that is registered, and a window where the library has those. Where it refuses them, the group ends.
pub(super) fn known<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    if on.version < Version::new(2, 19, 0) {
        return Ok(Some(format!("NCCL {} has none", on.version)));
    }
    let group = on.other("known", NcclOptions::default())?;
    let verdict = known_to(on, &group);
    let left = on.leave_other(group);
    verdict.and_then(|note| left.map(|()| note))
}

fn known_to<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>, group: &DeviceGroup<N, C, P>) -> Verdict {
    let memory = group.allocate(4096).map_err(told)?;
    let registered = group.register(&memory).map_err(told)?;
    summed(on, group, &memory)?;
    drop(registered);
    if on.version < Version::new(2, 27, 0) {
        return Ok(None);
    }
    let window = group.register_window(&memory, true).map_err(told)?;
    summed(on, group, window.memory())?;
    let note = || format!("NCCL {} opens no window here; memory that is registered is well", on.version);
    Ok((!window.is_window()).then(note))
}

fn summed<N: Nccl, C: Cuda, P: Process>(
    on: &Candidate<N, C, P>,
    group: &DeviceGroup<N, C, P>,
    memory: &DeviceBuffer<C>,
) -> Result<(), String> {
    let count = memory.byte_len() / 4;
    let own = on.upload(&given(DType::F32, on.rank(), count))?;
    on.cuda(on.stack.cuda().copy(memory.span(), own.span(), on.stream))?;
    let op = Op::AllReduce { count, reduce: ReduceOp::Sum };
    let work = group.submit(op, DType::F32, None, (None, memory), on.stream).map_err(told)?;
    work.fence(on.stream).map_err(told)?;
    let got = on.download(memory)?;
    work.wait().map_err(told)?;
    same(&got, &joined(ReduceOp::Sum, DType::F32, on.size(), count)?, || "a sum in known memory".into())
}
