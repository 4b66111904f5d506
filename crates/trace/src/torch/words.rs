//! PyTorch's names for what we name otherwise.

use phalanx_core::DType;

/// The name of a type of elements in PyTorch; itself where it has none.
pub(super) fn dtype_to_torch(name: &str) -> &str {
    let known = DTYPES.iter().find(|(ours, _)| ours.name() == name);
    known.map_or(name, |(_, theirs)| *theirs)
}

/// Our name for a type of elements of PyTorch; itself where we have none.
pub(super) fn dtype_from_torch(name: &str) -> &str {
    let known = DTYPES.iter().find(|(_, theirs)| *theirs == name);
    known.map_or(name, |(ours, _)| ours.name())
}

/// What PyTorch calls a collective of ours.
pub(super) fn kind_to_torch(kind: &str, even: bool) -> &str {
    match (kind, even) {
        ("all_gather", true) => "_all_gather_base",
        ("all_gather", false) => "all_gather_v",
        ("reduce_scatter", true) => "_reduce_scatter_base",
        ("reduce_scatter", false) => "reduce_scatter_v",
        _ => kind,
    }
}

/// The library, the operation, and the peer of a message, from `nccl:recv 0<-1`. The library may have colons in its name.
pub(super) fn profiling_name(name: &str) -> Option<(&str, &str, Option<usize>)> {
    let (library, what) = name.rsplit_once(':')?;
    let (kind, between) = what.split_once(' ').unwrap_or((what, ""));
    let peer = between.split_once("->").or_else(|| between.split_once("<-")).and_then(|(_, peer)| peer.parse().ok());
    Some((library, kind, peer))
}

/// The ranks in `[0, 1, 2]`.
pub(super) fn ranks(text: &str) -> Option<Vec<usize>> {
    let inside = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim().trim_end_matches(',');
    let parts = inside.split(',').map(str::trim).filter(|_| !inside.is_empty());
    parts.map(|part| part.parse().ok()).collect()
}

const DTYPES: [(DType, &str); 19] = [
    (DType::F64, "Double"),
    (DType::F32, "Float"),
    (DType::F16, "Half"),
    (DType::BF16, "BFloat16"),
    (DType::F8E4M3FN, "Float8_e4m3fn"),
    (DType::F8E5M2, "Float8_e5m2"),
    (DType::F8E4M3FNUZ, "Float8_e4m3fnuz"),
    (DType::F8E5M2FNUZ, "Float8_e5m2fnuz"),
    (DType::I8, "Char"),
    (DType::U8, "Byte"),
    (DType::I16, "Short"),
    (DType::U16, "UInt16"),
    (DType::I32, "Int"),
    (DType::U32, "UInt32"),
    (DType::I64, "Long"),
    (DType::U64, "UInt64"),
    (DType::Bool, "Bool"),
    (DType::Complex64, "ComplexFloat"),
    (DType::Complex128, "ComplexDouble"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_name_in_both_directions() {
        for dtype in DType::ALL {
            let theirs = dtype_to_torch(dtype.name());
            assert_ne!(theirs, dtype.name());
            assert_eq!(dtype_from_torch(theirs), dtype.name());
        }
        assert_eq!(dtype_from_torch("QInt8"), "QInt8");
    }

    #[test]
    fn profiling_names_and_ranks_are_taken_apart() {
        assert_eq!(profiling_name("nccl:all_reduce"), Some(("nccl", "all_reduce", None)));
        assert_eq!(profiling_name("gloo:recv 0<-1"), Some(("gloo", "recv", Some(1))));
        assert_eq!(profiling_name("a:b:send 1->20"), Some(("a:b", "send", Some(20))));
        assert_eq!(profiling_name("gloo:recv 3<-?"), Some(("gloo", "recv", None)));
        assert_eq!(profiling_name("all_reduce"), None);
        assert_eq!(ranks("[0, 12]"), Some(vec![0, 12]));
        assert_eq!(ranks("[]"), Some(vec![]));
        assert_eq!(ranks("[0, x]"), None);
        assert_eq!(ranks("0"), None);
    }
}
