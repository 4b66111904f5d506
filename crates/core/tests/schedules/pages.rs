//! docs/wire.md and docs/failures.md against the code: numbers, fields and messages are those that are really written.

use std::time::Duration;

use phalanx_core::{
    DType, Desync, Device, Error, ErrorKind, Fingerprint, Last, Layout, Op, OpKind, PeerReason, ReduceOp, Scope, Stuck,
    Timeout, Waiting,
};

const WIRE: &str = include_str!("../../../../docs/wire.md");
const FAILURES: &str = include_str!("../../../../docs/failures.md");

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
    };
    let values: [(&str, u64); 11] = [
        ("magic", 0xFA),
        ("version", 1),
        ("op", 6),
        ("dtype", 17),
        ("reduce", 4),
        ("reserved", 0),
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
    let desync = |sequence, (rank, ours): (usize, &str), (peer, theirs): (usize, &str), field| {
        Error::Desync(Box::new(Desync {
            sequence,
            rank,
            peer,
            field,
            ours: ours.into(),
            theirs: theirs.into(),
            moved: true,
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
        dead.clone(),
        several(Error::peer(1, PeerReason::Dead, "connection closed"), [4, 5, 6, 7]),
        Error::peer(2, PeerReason::Unresponsive, "silent for 3s"),
        Error::peer(2, PeerReason::Left, "closed its group"),
        Error::peer(1, PeerReason::Corrupt, "checksum of a frame does not match"),
        Error::peer(1, PeerReason::Corrupt, unknown_version()),
        timeout(OpKind::AllReduce, 9, &[(2, Waiting::Giving), (5, Waiting::Taking)]),
        timeout(OpKind::AllReduce, 9, &[(1, Waiting::Coming { last: Some(last) })]),
        timeout(OpKind::Barrier, 10, &[]),
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
    }))
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
