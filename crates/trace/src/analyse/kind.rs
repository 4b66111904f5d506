//! What is known of an operation by its name, ours or PyTorch's: which numbers its ranks agree on, and who waits for whom.

use crate::dump::Entry;

/// Whether no rank can end it before every rank has called it.
pub(super) fn is_meeting(kind: &str) -> bool {
    ["all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "all_to_all", "alltoall", "barrier"]
        .iter()
        .any(|word| kind.contains(word))
}

/// The number of elements that all ranks must have alike, if there is one.
pub(super) fn elements(entry: &Entry) -> Option<u64> {
    let (input, output) = (entry.input, entry.output);
    let kind = entry.kind.to_lowercase();
    let is = |words: [&str; 2]| words.iter().any(|word| kind.contains(word));
    if is(["reduce_scatter", "reducescatter"]) {
        Some(input)
    } else if is(["all_gather", "allgather"]) {
        Some(output)
    } else if is(["broadcast", "reduce"]) {
        Some(input.max(output))
    } else if !entry.even {
        None
    } else {
        match &*kind {
            "gather" | "all_to_all" => Some(input),
            "scatter" => Some(output),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_must_come_before_anybody_leaves() {
        for kind in ["all_reduce", "_all_gather_base", "all_reduce_barrier", "reduce_scatter", "all_to_all", "barrier"]
        {
            assert!(is_meeting(kind), "{kind}");
        }
        for kind in ["broadcast", "reduce", "gather", "scatter", "send", "recv"] {
            assert!(!is_meeting(kind), "{kind}");
        }
    }
}
