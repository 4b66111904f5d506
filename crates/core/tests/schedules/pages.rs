//! The pages of docs against the code: numbers, fields and messages are those that are really written, and no name is missing.

use std::time::Duration;

use phalanx_core::{
    Chain, DType, Desync, Device, Error, ErrorKind, Fingerprint, Last, Layout, Op, OpKind, PeerReason, Place, ReduceOp,
    Scope, Site, Stuck, Timeout, Waiting,
};

const WIRE: &str = include_str!("../../../../docs/wire.md");
const FAILURES: &str = include_str!("../../../../docs/failures.md");
const C10D: &str = include_str!("../../../../docs/c10d.md");
/// What `torch.distributed` exports.
const PUBLIC_NAMES: &str = "
    Backend BackendConfig GroupMember P2POp all_gather all_gather_coalesced all_gather_object all_reduce
    all_reduce_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast send_object_list
    recv_object_list broadcast_object_list destroy_process_group gather gather_object get_backend_config get_backend
    get_rank get_world_size get_pg_count group init_process_group irecv is_gloo_available is_initialized
    is_mpi_available is_backend_available is_nccl_available is_torchelastic_launched is_ucc_available isend
    monitored_barrier new_group new_subgroups new_subgroups_by_enumeration recv reduce reduce_scatter scatter
    scatter_object_list send supports_complex AllreduceCoalescedOptions AllreduceOptions AllToAllOptions
    BarrierOptions BroadcastOptions GatherOptions PrefixStore ProcessGroup ReduceOp ReduceOptions ReduceScatterOptions
    ScatterOptions Store DebugLevel get_debug_level Work default_pg_timeout get_group_rank get_global_rank
    get_process_group_ranks reduce_op all_gather_into_tensor reduce_scatter_tensor get_node_local_rank";

#[test]
fn the_numbers_of_the_page_are_those_on_the_wire() {
    let ops: Vec<_> = OpKind::ALL.iter().map(|op| (*op as usize, op.to_string())).collect();
    assert_eq!(numbered("### Operations", 2), ops);
    let reduces: Vec<_> = ReduceOp::ALL.iter().map(|op| (*op as usize, op.to_string())).collect();
    assert_eq!(numbered("### Reductions", 2), reduces);
    let dtypes: Vec<_> =
        DType::ALL.iter().map(|dtype| (*dtype as usize, format!("{dtype} {}", dtype.byte_len()))).collect();
    assert_eq!(numbered("### Element types", 3), dtypes);
}

#[test]
fn the_fields_of_the_page_stand_where_it_says() {
    let print = Fingerprint {
        epoch: 0x0102,
        sequence: 0x0304_0506,
        op: OpKind::AllToAll,
        dtype: DType::Bool,
        reduce: Some(ReduceOp::Max),
        root: 0x0708_090A,
        count: 0x0B0C_0D0E_0F10_1112,
        splits: 0x1314_1516,
        site: 0x1718_191A,
        offer: 0x1B,
    };
    let values: [(&str, u64); 11] = [
        ("magic", 0xFA),
        ("version", 3),
        ("op", 6),
        ("dtype", 17),
        ("reduce", 4),
        ("offer", 0x1B),
        ("epoch", print.epoch.into()),
        ("sequence", print.sequence.into()),
        ("root", print.root.into()),
        ("count", print.count),
        ("splits", print.splits.into()),
    ];
    let mut end = 0;
    let fields = table(WIRE, "## The fingerprint");
    for (row, (name, value)) in fields.iter().zip(values.into_iter().chain([("site", print.site.into())])) {
        let (at, len): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        assert_eq!((at, &*row[2]), (end, name), "fields follow each other");
        assert_eq!(print.encode()[at..at + len], value.to_le_bytes()[..len], "{name} at byte {at}");
        end = at + len;
    }
    assert_eq!((fields.len(), end), (12, Fingerprint::BYTE_LEN));
}

#[test]
fn a_head_without_a_reduction_is_told_by_zero() {
    let print = Fingerprint::of(&Op::Barrier, DType::U8, 4, 1, 2);
    assert_eq!(print.encode()[4], 0);
}

#[test]
fn the_messages_of_the_page_are_those_that_errors_print() {
    let place = Place { file: "train.py".into(), line: 12, function: "step".into() };
    let site = Site::Foreign(Box::leak(Box::new(place)));
    let desync = |sequence, (rank, ours): (usize, &str), (peer, theirs): (usize, &str), field| {
        Error::Desync(Box::new(Desync {
            sequence,
            rank,
            peer,
            field,
            ours: ours.into(),
            theirs: theirs.into(),
            moved: true,
            site: (field == "count").then_some(site),
        }))
    };
    let dead = Error::peer(3, PeerReason::Dead, "connection closed");
    let device = Device {
        code: 1,
        name: "ncclUnhandledCudaError".into(),
        text: "Call to CUDA function failed.".into(),
        sticky: false,
    };
    let last = Last { op: OpKind::Barrier, sequence: 8, site: "src/train.rs:7:9".into() };
    let undefined = ReduceOp::BitAnd.supports(DType::F32).unwrap_err();
    let errors = [
        Error::usage(OpKind::Broadcast, "root", 7, "must be below the group size 4"),
        Error::usage(
            OpKind::AllReduce,
            "op",
            ReduceOp::BitAnd,
            format!("which is not defined for f32: {}", undefined.why),
        ),
        Error::usage(OpKind::AllGather, "output", "12 elements long", "must be 16"),
        desync(12, (0, "all_reduce"), (3, "broadcast"), "op"),
        desync(12, (0, "1000"), (3, "999"), "count"),
        desync(13, (0, "2"), (1, "1"), "offer"),
        dead.clone(),
        several(Error::peer(1, PeerReason::Dead, "connection closed"), [4, 5, 6, 7]),
        Error::peer(2, PeerReason::Unresponsive, "silent for 3s"),
        Error::peer(2, PeerReason::Left, "closed its group"),
        Error::peer(1, PeerReason::Corrupt, "checksum of a frame does not match"),
        Error::peer(1, PeerReason::Corrupt, unknown_version()),
        timeout(OpKind::AllReduce, 9, &[(2, Waiting::Giving), (5, Waiting::Taking)]),
        timeout(OpKind::AllReduce, 9, &[(1, Waiting::Coming { last: Some(last) })]),
        timeout(OpKind::Barrier, 10, &[]),
        timeout(OpKind::Barrier, 11, &[(2, Waiting::Arriving), (4, Waiting::Arriving)]),
        timeout(OpKind::Reduce, 11, &[(0, Waiting::Working)]),
        by_way_of(12, OpKind::Recv, Chain::Through("rank 3, which waits for".into())),
        by_way_of(13, OpKind::AllReduce, Chain::Circle("rank 1, which waits in group \"rows\" for rank 0".into())),
        Error::aborted_by(dead),
        Error::aborted("the job is being cancelled"),
        Error::Device(Box::new(device)),
        Layout::one_host(4, 4).unwrap_err(),
        Error::setup("store", "no route to host"),
    ];
    for error in errors {
        let line = error.to_string();
        let section = section(FAILURES, &format!("## {:?}", error.kind()));
        assert!(section.lines().any(|other| other == line), "docs/failures.md lacks: {line}");
        assert!(has_scope(error.kind(), error.scope()), "{line}: {:?}", error.scope());
    }
}

/// The page names everything that torch.distributed exports, and nothing twice.
#[test]
fn every_name_of_c10d_has_one_row() {
    let rows: Vec<String> = C10D.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
    let names = |row: &String| {
        let cell = row.split('|').nth(1).unwrap_or_default();
        cell.split(',').map(|name| name.trim().trim_matches('`').to_owned()).collect::<Vec<_>>()
    };
    let mut told: Vec<String> = rows.iter().flat_map(names).collect();
    told.sort_unstable();
    let twice = told.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None);
    for name in PUBLIC_NAMES.split_whitespace() {
        assert!(told.iter().any(|other| other == name), "docs/c10d.md lacks {name}");
    }
}

fn several(error: Error, others: [usize; 4]) -> Error {
    let Error::Peer(peer) = error else { panic!("a peer") };
    peer.and(others).into()
}

/// Whether the page's table names this scope for this kind.
fn has_scope(kind: ErrorKind, scope: Scope) -> bool {
    let name = format!("`{scope:?}`");
    let rows = table(FAILURES, "# Failures");
    rows.iter().any(|row| row[0] == format!("{kind:?}") && format!("`{}`", row[2]).contains(&name))
}

fn unknown_version() -> String {
    let mut bytes = Fingerprint::of(&Op::Barrier, DType::U8, 4, 1, 2).encode();
    bytes[1] = 9;
    Fingerprint::decode(&bytes).unwrap_err().to_string()
}

fn timeout(op: OpKind, sequence: u32, stuck: &[(usize, Waiting)]) -> Error {
    Error::Timeout(Box::new(Timeout {
        op,
        sequence,
        after: Duration::from_secs(3),
        stuck: stuck.iter().map(|(peer, on)| Stuck { peer: *peer, on: on.clone() }).collect(),
        chain: Chain::Direct,
    }))
}

fn by_way_of(sequence: u32, op: OpKind, chain: Chain) -> Error {
    let (after, stuck) = (Duration::from_secs(3), vec![Stuck::unknown(2)]);
    Error::Timeout(Box::new(Timeout { op, sequence, after, stuck, chain }))
}

/// The rows of a numbered table of the wire page: the number, and the other cells.
fn numbered(heading: &str, cells: usize) -> Vec<(usize, String)> {
    let number = |row: Vec<String>| (row[0].parse().expect("a number"), row[1..cells].join(" "));
    table(WIRE, heading).into_iter().map(number).collect()
}

/// The first table under a heading: its rows without the head, cells without their code marks at either end.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let lines = section(page, heading).lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect())
        .collect()
}

/// What follows a heading, up to the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = format!("{heading}\n");
    let at = if page.starts_with(&start) {
        0
    } else {
        page.find(&format!("\n{start}")).unwrap_or_else(|| panic!("no {heading}")) + 1
    };
    let rest = &page[at + start.len()..];
    &rest[..rest.find("\n#").unwrap_or(rest.len())]
}
