//! What each operation means, said as plainly as possible.

use phalanx_core::Op;

/// Every rank's output after `op`, given every rank's input; `None` where the operation leaves the output alone.
///
/// `op_of` gives each rank's own view of the numbers; `join` reduces one element of all ranks, in rank order.
pub(crate) fn outputs<V: Clone>(
    op_of: &dyn Fn(usize) -> Op,
    inputs: &[Vec<V>],
    join: impl Fn(&[V]) -> V,
) -> Vec<Option<Vec<V>>> {
    let size = inputs.len();
    let column = |at: usize| inputs.iter().map(|input| input[at].clone()).collect::<Vec<_>>();
    let joins = op_of(0).reduce().is_some();
    let len = if joins { inputs[0].len() } else { 0 };
    let joined: Vec<V> = (0..len).map(|at| join(&column(at))).collect();
    let output = |rank: usize| match op_of(rank) {
        Op::AllReduce { .. } => Some(joined.clone()),
        Op::Reduce { root, .. } => (rank == root).then(|| joined.clone()),
        Op::Broadcast { root, .. } => Some(inputs[root].clone()),
        Op::AllGather { .. } => Some(inputs.concat()),
        Op::ReduceScatter { counts, .. } => {
            let start: usize = (0..rank).map(|before| counts.of(before)).sum();
            Some(joined[start..start + counts.of(rank)].to_vec())
        }
        Op::AllToAll { .. } => Some((0..size).flat_map(|from| given(op_of, inputs, from, rank)).collect()),
        Op::Gather { root, .. } => (rank == root).then(|| inputs.concat()),
        Op::Scatter { counts, root } => {
            let start: usize = (0..rank).map(|before| counts.of(before)).sum();
            Some(inputs[root][start..start + counts.of(rank)].to_vec())
        }
        _ => None,
    };
    (0..size).map(output).collect()
}

/// What `from` gives to `to` in an all-to-all.
fn given<V: Clone>(op_of: &dyn Fn(usize) -> Op, inputs: &[Vec<V>], from: usize, to: usize) -> Vec<V> {
    let Op::AllToAll { give, .. } = op_of(from) else {
        return vec![];
    };
    let start: usize = (0..to).map(|before| give.of(before)).sum();
    inputs[from][start..start + give.of(to)].to_vec()
}
