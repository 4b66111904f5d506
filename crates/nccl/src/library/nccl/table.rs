//! The functions of NCCL that are called, with the signatures of its header.

use std::ffi::{c_char, c_int, c_void};

use crate::api::Version;
use crate::library::table::table;

/// A communicator, a stream, a window: what they point at is the library's own.
pub(super) type Opaque = *mut c_void;

/// What ranks find each other by, as the library takes it: by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawId(pub(super) [u8; 128]);

/// What an estimate is asked with, and answered in.
#[repr(C)]
pub(super) struct Simulation {
    pub(super) size: usize,
    pub(super) magic: u32,
    pub(super) version: u32,
    pub(super) microseconds: f32,
}

const ALWAYS: Version = Version::new(2, 0, 0);

const fn since(minor: u32, patch: u32) -> Version {
    Version::new(2, minor, patch)
}

table! {
    /// Element types, reductions and results are plain numbers: the library may know more of them than its header of any one day.
    Functions {
        get_version = "ncclGetVersion", ALWAYS, (*mut c_int) -> c_int;
        error_string = "ncclGetErrorString", ALWAYS, (c_int) -> *const c_char;
        last_error = "ncclGetLastError", since(13, 0), (Opaque) -> *const c_char;
        get_unique_id = "ncclGetUniqueId", ALWAYS, (*mut RawId) -> c_int;
        init = "ncclCommInitRankConfig", since(14, 0), (*mut Opaque, c_int, RawId, c_int, *mut c_void) -> c_int;
        init_scalable = "ncclCommInitRankScalable", since(23, 0),
            (*mut Opaque, c_int, c_int, c_int, *mut RawId, *mut c_void) -> c_int;
        split = "ncclCommSplit", since(18, 0), (Opaque, c_int, c_int, *mut Opaque, *mut c_void) -> c_int;
        shrink = "ncclCommShrink", since(27, 0),
            (Opaque, *mut c_int, c_int, *mut Opaque, *mut c_void, c_int) -> c_int;
        grow = "ncclCommGrow", since(29, 2),
            (Opaque, c_int, *const RawId, c_int, *mut Opaque, *mut c_void) -> c_int;
        unique_id_of = "ncclCommGetUniqueId", since(29, 2), (Opaque, *mut RawId) -> c_int;
        count = "ncclCommCount", ALWAYS, (Opaque, *mut c_int) -> c_int;
        rank = "ncclCommUserRank", ALWAYS, (Opaque, *mut c_int) -> c_int;
        device = "ncclCommCuDevice", ALWAYS, (Opaque, *mut c_int) -> c_int;
        async_error = "ncclCommGetAsyncError", since(4, 0), (Opaque, *mut c_int) -> c_int;
        finalize = "ncclCommFinalize", since(14, 0), (Opaque) -> c_int;
        destroy = "ncclCommDestroy", ALWAYS, (Opaque) -> c_int;
        abort = "ncclCommAbort", since(4, 0), (Opaque) -> c_int;
        revoke = "ncclCommRevoke", since(28, 7), (Opaque, c_int) -> c_int;
        group_start = "ncclGroupStart", ALWAYS, () -> c_int;
        group_end = "ncclGroupEnd", ALWAYS, () -> c_int;
        group_simulate_end = "ncclGroupSimulateEnd", since(22, 0), (*mut Simulation) -> c_int;
        all_reduce = "ncclAllReduce", ALWAYS,
            (*const c_void, *mut c_void, usize, c_int, c_int, Opaque, Opaque) -> c_int;
        broadcast = "ncclBroadcast", since(2, 0),
            (*const c_void, *mut c_void, usize, c_int, c_int, Opaque, Opaque) -> c_int;
        reduce = "ncclReduce", ALWAYS,
            (*const c_void, *mut c_void, usize, c_int, c_int, c_int, Opaque, Opaque) -> c_int;
        all_gather = "ncclAllGather", ALWAYS, (*const c_void, *mut c_void, usize, c_int, Opaque, Opaque) -> c_int;
        reduce_scatter = "ncclReduceScatter", ALWAYS,
            (*const c_void, *mut c_void, usize, c_int, c_int, Opaque, Opaque) -> c_int;
        send = "ncclSend", since(7, 0), (*const c_void, usize, c_int, c_int, Opaque, Opaque) -> c_int;
        recv = "ncclRecv", since(7, 0), (*mut c_void, usize, c_int, c_int, Opaque, Opaque) -> c_int;
        all_to_all = "ncclAlltoAll", since(28, 3),
            (*const c_void, *mut c_void, usize, c_int, Opaque, Opaque) -> c_int;
        gather = "ncclGather", since(28, 3),
            (*const c_void, *mut c_void, usize, c_int, c_int, Opaque, Opaque) -> c_int;
        scatter = "ncclScatter", since(28, 3),
            (*const c_void, *mut c_void, usize, c_int, c_int, Opaque, Opaque) -> c_int;
        create_pre_mul_sum = "ncclRedOpCreatePreMulSum", since(11, 0),
            (*mut c_int, *mut c_void, c_int, c_int, Opaque) -> c_int;
        destroy_op = "ncclRedOpDestroy", since(11, 0), (c_int, Opaque) -> c_int;
        allocate = "ncclMemAlloc", since(19, 0), (*mut Opaque, usize) -> c_int;
        free = "ncclMemFree", since(19, 0), (Opaque) -> c_int;
        register = "ncclCommRegister", since(19, 0), (Opaque, *mut c_void, usize, *mut Opaque) -> c_int;
        deregister = "ncclCommDeregister", since(19, 0), (Opaque, Opaque) -> c_int;
        register_window = "ncclCommWindowRegister", since(27, 0),
            (Opaque, *mut c_void, usize, *mut Opaque, c_int) -> c_int;
        deregister_window = "ncclCommWindowDeregister", since(27, 0), (Opaque, Opaque) -> c_int;
        suspend = "ncclCommSuspend", since(29, 7), (Opaque, c_int) -> c_int;
        resume = "ncclCommResume", since(29, 7), (Opaque) -> c_int;
        memory_stat = "ncclCommMemStats", since(29, 7), (Opaque, c_int, *mut u64) -> c_int;
    }
}

#[cfg(test)]
mod tests {
    /// The names in the table above, with the versions since which they exist.
    fn functions() -> Vec<(&'static str, String)> {
        let table = include_str!("table.rs").split("table! {").nth(1).expect("the table");
        let entries = table.lines().filter_map(|line| line.trim().split_once(" = \"nccl"));
        let named = entries.filter_map(|(_, rest)| rest.split_once("\", "));
        let since = |text: &str| match text.strip_prefix("since(").and_then(|text| text.split_once(')')) {
            Some((numbers, _)) => format!("2.{}", numbers.replace(", ", ".")),
            None => "2.0.0".to_owned(),
        };
        named.map(|(name, rest)| (name, since(rest))).collect()
    }

    #[test]
    fn every_function_is_in_the_documents_with_its_version() {
        let document = include_str!("../../../../../docs/nccl.md");
        let functions = functions();
        assert_eq!(functions.len(), 42);
        for (name, since) in functions {
            let row = format!("| `nccl{name}` | {} |", since.strip_suffix(".0").unwrap_or(&since));
            assert!(document.contains(&row), "docs/nccl.md lacks {row}");
        }
    }
}
