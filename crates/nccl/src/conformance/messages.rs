//! Messages: one by one round a ring, and in batches that cross.

use phalanx_core::{DType, Message, Op};

use super::values::given;
use super::{Candidate, Verdict, same, told};
use crate::api::{Cuda, Nccl, Process};

/// Each rank to the next. Even ranks send first, so that none waits for itself in a ring of two or more.
pub(super) fn singles<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let (rank, size) = (on.rank(), on.size());
    if size == 1 {
        return Ok(Some("there is nobody to send to".into()));
    }
    let (to, from, count) = ((rank + 1) % size, (rank + size - 1) % size, 300);
    let (out, none) = (on.upload(&given(DType::F32, rank, count))?, on.upload(&[])?);
    let into = on.upload(&vec![0; count * 4])?;
    let send = || on.group.submit(Op::Send { count, to, tag: 0 }, DType::F32, None, (Some(&out), &none), on.stream);
    let recv = || {
        let op = Op::Recv { count, from: Some(from), tag: 0 };
        on.group.submit(op, DType::F32, None, (Some(&none), &into), on.stream)
    };
    let (first, second) = if rank % 2 == 0 { (send(), recv()) } else { (recv(), send()) };
    for work in [first, second] {
        work.and_then(|work| work.wait()).map_err(told)?;
    }
    let what = || format!("a message from rank {from} to rank {rank}");
    same(&on.download(&into)?, &given(DType::F32, from, count), what).map(|()| None)
}

/// Each rank to all others at once, over memory of the host.
pub(super) fn batches<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let (rank, size) = (on.rank(), on.size());
    if size == 1 {
        return Ok(Some("there is nobody to send to".into()));
    }
    let others: Vec<usize> = (0..size).filter(|&other| other != rank).collect();
    let sends = others.iter().map(|&to| Message::Send { data: vec![(100 * rank + to) as u64; 40], to, tag: 0 });
    let recvs = others.iter().map(|&from| Message::Recv { data: vec![0; 40], from: Some(from), tag: 0 });
    let brought = on.group.group().batch(sends.chain(recvs).collect()).map_err(told)?;
    let wrong =
        others.iter().zip(&brought[others.len()..]).find(|(from, got)| got.data != [(100 * **from + rank) as u64; 40]);
    wrong.map_or(Ok(None), |(from, _)| Err(format!("what came from rank {from} is not what it sent")))
}
