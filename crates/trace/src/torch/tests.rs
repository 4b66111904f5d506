//! What PyTorch is given, read again as PyTorch's, and what PyTorch wrote.

use super::words;
use super::*;
use crate::dump::{Dump, Entry, FORMAT, Site, State, TracedGroup};
use crate::pickle::{self, Limits, Value};
use crate::{Broken, analyse};

fn entry(kind: &str, sequence: u64) -> Entry {
    Entry {
        group: 0,
        record: sequence,
        sequence,
        kind: kind.to_owned(),
        is_message: matches!(kind, "send" | "recv"),
        dtype: Some("bf16".to_owned()),
        reduce: None,
        peer: matches!(kind, "send" | "recv").then_some(1),
        tag: None,
        input: 6,
        output: 12,
        even: true,
        site: Some(Site { file: "train.rs".to_owned(), line: 7, function: None }),
        created_ns: 1_700_000_000_000_000_000,
        started_ns: Some(1_700_000_000_000_000_100),
        ended_ns: Some(1_700_000_000_000_000_200),
        state: State::Done,
        timeout_ns: Some(30_000_000_000),
        is_ahead: false,
    }
}

fn dump(entries: Vec<Entry>) -> Dump {
    let group = TracedGroup { name: "world".to_owned(), members: Some(vec![0, 1]), ..TracedGroup::default() };
    Dump {
        format: FORMAT,
        rank: 0,
        world_size: Some(2),
        met_ns: None,
        host_name: Some("host".to_owned()),
        pid: Some(7),
        taken_ns: Some(1_700_000_001_000_000_000),
        groups: vec![group],
        entries,
    }
}

/// What PyTorch sees of a dump: the pickle without what is ours.
fn as_torch(dump: &Dump, messages: Messages) -> Dump {
    let mut bytes = encode(dump, messages);
    let ours = "phalanx".as_bytes();
    let at = bytes.windows(ours.len()).position(|window| window == ours).expect("there");
    bytes[at..at + ours.len()].copy_from_slice(b"unknown");
    decode(&bytes, dump.rank, &Limits::default()).expect("PyTorch's words")
}

#[test]
fn a_dump_comes_back_whole() {
    let mut failed = entry("all_reduce", 3);
    failed.state = State::Failed("timeout".to_owned());
    let dump = dump(vec![entry("all_gather", 0), entry("send", 0), entry("barrier", 1), failed]);
    for messages in [Messages::Keep, Messages::Leave] {
        assert_eq!(decode(&encode(&dump, messages), 0, &Limits::default()), Ok(dump.clone()));
    }
}

#[test]
fn what_pytorch_sees_says_the_same() {
    let seen = as_torch(&dump(vec![entry("all_gather", 0), entry("barrier", 1)]), Messages::Keep);
    let [gathered, barrier] = &seen.entries[..] else { panic!("{seen:?}") };
    let group = &seen.groups[gathered.group];
    assert_eq!(
        (&*group.name, &*group.description, group.members.as_deref()),
        ("world", "undefined", Some(&[0, 1][..]))
    );
    assert_eq!((&*gathered.kind, gathered.sequence), ("_all_gather_base", 1));
    assert_eq!((gathered.input, gathered.output, gathered.dtype.as_deref()), (6, 12, Some("bf16")));
    let ours = entry("all_gather", 0);
    assert_eq!((gathered.created_ns, gathered.started_ns), (ours.created_ns, ours.started_ns));
    assert_eq!((gathered.ended_ns, gathered.timeout_ns), (ours.ended_ns, ours.timeout_ns));
    let function = Some("all_gather".to_owned());
    assert_eq!(gathered.site, Some(Site { file: "train.rs".to_owned(), line: 7, function }));
    assert_eq!((&*barrier.kind, barrier.sequence, barrier.dtype.as_deref()), ("barrier", 2, None));
}

#[test]
fn every_state_has_its_word_and_a_failure_is_never_completed() {
    let states = [State::Queued, State::Started, State::Done, State::Failed("peer".to_owned())];
    let entries = states.into_iter().zip(0..).map(|(state, sequence)| Entry { state, ..entry("all_reduce", sequence) });
    let seen = as_torch(&dump(entries.collect()), Messages::Keep);
    let states: Vec<&State> = seen.entries.iter().map(|entry| &entry.state).collect();
    assert_eq!(states, [&State::Queued, &State::Started, &State::Done, &State::Started]);
    assert_eq!(seen.entries[3].ended_ns, None);
}

#[test]
fn messages_are_a_group_of_their_two_ranks() {
    let tagged = Entry { tag: Some(4), ..entry("send", 3) };
    let messages = vec![entry("send", 0), entry("recv", 1), Entry { tag: Some(0), ..entry("send", 2) }, tagged];
    let seen = as_torch(&dump(messages.clone()), Messages::Keep);
    let told = |entry: &Entry| {
        let group = &seen.groups[entry.group];
        (group.name.clone(), group.members.clone(), entry.kind.clone(), entry.sequence, entry.peer)
    };
    let pair = || Some(vec![0, 1]);
    assert_eq!(
        seen.entries.iter().map(told).collect::<Vec<_>>(),
        [
            ("world 0->1".to_owned(), pair(), "send".to_owned(), 1, Some(1)),
            ("world 1->0".to_owned(), pair(), "recv".to_owned(), 1, Some(1)),
            ("world 0->1".to_owned(), pair(), "send".to_owned(), 2, Some(1)),
            ("world 0->1:4".to_owned(), pair(), "send".to_owned(), 1, Some(1)),
        ]
    );
    assert_eq!(as_torch(&dump(messages.clone()), Messages::Leave).entries, []);
    assert_eq!(Messages::of(&[dump(messages.clone())]), Messages::Keep);
    let mut forgetful = dump(messages.clone());
    forgetful.groups[0].forgotten = 1;
    assert_eq!(Messages::of(&[dump(vec![]), forgetful]), Messages::Leave);
    let mut anybody = dump(messages);
    anybody.entries[1].peer = None;
    assert_eq!(Messages::of(&[anybody]), Messages::Leave);
}

#[test]
fn groups_of_one_name_are_told_apart() {
    let mut twice = dump(vec![entry("barrier", 0), Entry { group: 1, ..entry("barrier", 0) }]);
    twice.groups.push(twice.groups[0].clone());
    twice.groups.push(TracedGroup { epoch: 4, ..twice.groups[0].clone() });
    let seen = as_torch(&twice, Messages::Keep);
    let mut names: Vec<&str> = seen.groups.iter().map(|group| &*group.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["world", "world#2", "world@4"]);
    assert_ne!(seen.entries[0].group, seen.entries[1].group);
    // Another rank has dropped the first of them.
    let mut later = dump(vec![entry("barrier", 0)]);
    later.groups[0].generation = Some(1);
    assert_eq!(as_torch(&later, Messages::Keep).groups[0].name, "world#2");
}

/// What a process group of Gloo wrote: nothing ever starts or completes, and no group of the entries is described.
fn gloo(retired: bool) -> Value {
    let frame = |file: &str, line: i64| {
        Value::dict([("filename", file.into()), ("line", Value::Int(line)), ("name", "all_reduce".into())])
    };
    let sizes = || Value::List(vec![Value::List(vec![Value::Int(3), Value::Int(4)])]);
    let dtypes = || Value::List(vec!["Float".into()]);
    let entry = Value::dict([
        ("collective_seq_id", Value::Int(3)),
        ("frames", Value::List(vec![frame("lib/torch/distributed/a.py", 4174), frame("train.py", 7)])),
        ("input_dtypes", dtypes()),
        ("input_sizes", sizes()),
        ("is_p2p", false.into()),
        ("op_id", Value::Int(1)),
        ("output_dtypes", dtypes()),
        ("output_sizes", sizes()),
        ("p2p_seq_id", Value::Int(0)),
        ("process_group", Value::Tuple(vec!["0".into(), "default_pg".into()])),
        ("profiling_name", "gloo:all_reduce".into()),
        ("record_id", Value::Int(0)),
        ("retired", retired.into()),
        ("state", "scheduled".into()),
        ("time_created_ns", Value::Int(1_795_338_272_274_395_526)),
        ("time_discovered_completed_ns", Value::None),
        ("time_discovered_started_ns", Value::None),
        ("timeout_ms", Value::Int(1_800_000)),
    ]);
    let nameless = Value::dict([("desc", "".into()), ("name", "".into()), ("ranks", Value::from("[0, 1]"))]);
    Value::dict([
        ("version", "2.10".into()),
        ("pg_config", Value::dict([("", nameless)])),
        ("entries", Value::List(vec![entry])),
    ])
}

#[test]
fn what_gloo_wrote_is_read() {
    let dump = decode(&pickle::write(&gloo(true)), 5, &Limits::default()).expect("Gloo's");
    let [entry] = &dump.entries[..] else { panic!("{dump:?}") };
    assert_eq!((dump.rank, dump.world_size, &entry.state), (5, None, &State::Done));
    assert_eq!((&*entry.kind, entry.sequence, entry.input, entry.dtype.as_deref()), ("all_reduce", 3, 12, Some("f32")));
    assert_eq!(entry.site.as_ref().map(ToString::to_string), Some("train.py:7".to_owned()));
    let group = &dump.groups[entry.group];
    assert_eq!((&*group.name, group.members.as_ref(), group.forgotten), ("0", None, 2));

    let waits = decode(&pickle::write(&gloo(false)), 0, &Limits::default()).expect("Gloo's");
    assert_eq!(waits.entries[0].state, State::Queued);
    let done = decode(&pickle::write(&gloo(true)), 1, &Limits::default()).expect("Gloo's");
    let report = analyse(&[waits, done]);
    assert!(report.findings[0].to_string().contains("rank 1 has finished it"), "{report}");
}

/// What is done to the top of a pickle.
type Change<'a> = &'a dyn Fn(&mut Vec<(String, Value)>);

/// What is said of Gloo's pickle once this is done to it.
fn wrong(change: Change<'_>) -> String {
    let Value::Dict(mut pairs) = gloo(true) else { unreachable!() };
    change(&mut pairs);
    decode(&pickle::write(&Value::Dict(pairs)), 0, &Limits::default()).expect_err("wrong").to_string()
}

/// What is said of it once its entry has this value.
fn in_entry(key: &str, value: Value) -> String {
    wrong(&|pairs| {
        let Some((_, Value::List(entries))) = pairs.iter_mut().find(|(name, _)| name == "entries") else { return };
        let Value::Dict(entry) = &mut entries[0] else { return };
        entry.iter_mut().filter(|(name, _)| name == key).for_each(|(_, old)| *old = value.clone());
    })
}

#[test]
fn values_that_cannot_be_are_named() {
    assert_eq!(
        in_entry("profiling_name", "all_reduce".into()),
        "entries[0].profiling_name is all_reduce, must be <library>:<operation>"
    );
    assert_eq!(
        in_entry("state", "odd".into()),
        "entries[0].state is odd, must be one of scheduled, started, completed"
    );
    assert_eq!(
        in_entry("collective_seq_id", Value::Int(-1)),
        "entries[0].collective_seq_id is -1, must be 0 or more, and below 2^64"
    );
    assert!(wrong(&|pairs| pairs[0].1 = "3.0".into()).starts_with("version is 3.0, must be 2.0"));
    assert!(wrong(&|pairs| pairs[2].1 = Value::None).starts_with("entries is missing"));
    assert!(wrong(&|pairs| drop(pairs.remove(2))).starts_with("entries is missing"));
    let nobody = Value::dict([("x", Value::dict([("ranks", Value::from("all"))]))]);
    assert_eq!(
        wrong(&|pairs| pairs[1].1 = nobody.clone()),
        "pg_config['x'].ranks is all, must be a list of ranks as text"
    );
    assert_eq!(words::ranks("all"), None);
}

#[test]
fn texts_that_are_longer_than_any_of_their_kind_are_named_and_not_told() {
    let long = || Value::from("x".repeat(5000));
    let refused = |what: &str| format!("{what} is 5000 bytes long, must be 4096 or less");
    assert_eq!(in_entry("profiling_name", long()), refused("entries[0].profiling_name"));
    assert_eq!(in_entry("process_group", Value::Tuple(vec!["0".into(), long()])), refused("entries[0].process_group"));
    for dtypes in ["input_dtypes", "output_dtypes"] {
        assert_eq!(in_entry(dtypes, Value::List(vec![long()])), refused(&format!("entries[0].{dtypes}")));
    }
    let frame = Value::dict([("filename", long())]);
    assert_eq!(in_entry("frames", Value::List(vec![frame])), refused("entries[0].frames[0].filename"));
    let group = |name: String| Value::dict([(name, Value::dict([("ranks", "[0]".into()), ("desc", long())]))]);
    assert_eq!(wrong(&|pairs| pairs[1].1 = group("x".repeat(5000))), refused("a name in pg_config"));
    assert_eq!(wrong(&|pairs| pairs[1].1 = group("g".to_owned())), refused("pg_config['g'].desc"));
    // What is wrong in another way is told by its beginning.
    assert!(wrong(&|pairs| pairs[0].1 = long()).len() < 300);
    assert!(in_entry("state", long()).len() < 300);
}

/// A text as it stands in a pickle.
fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// A pickle of entries that are all the same one, which was called in this file.
fn one_entry_again(file: &str, count: usize) -> Vec<u8> {
    let name = [text("profiling_name"), text("nccl:all_reduce")].concat();
    let state = [text("state"), text("completed")].concat();
    let site = [&text("frames")[..], b"]}(", &text("filename"), &text(file), b"ua"].concat();
    let entries = [&b"}("[..], &name, &state, &site, b"uq\x00", &b"h\x00".repeat(count - 1)].concat();
    [&b"\x80\x02}("[..], &text("version"), &text("2.10"), &text("entries"), b"](", &entries, b"eu."].concat()
}

#[test]
fn a_long_path_that_every_entry_uses_is_not_copied_to_each() {
    // 440 kB, which would take 8 GB.
    let bytes = one_entry_again(&"x".repeat(400_000), 20_000);
    let error = decode(&bytes, 0, &Limits::default()).expect_err("longer than any path");
    assert_eq!(error.to_string(), "entries[0].frames[0].filename is 400000 bytes long, must be 4096 or less");
}

#[test]
fn what_stands_once_and_is_used_too_often_is_named() {
    let bytes = one_entry_again("train.py", 20_000);
    let whole = decode(&bytes, 0, &Limits::default()).expect("a few megabytes");
    assert_eq!(whole.entries.len(), 20_000);
    let tight = 1 << 20;
    let error = decode(&bytes, 0, &Limits::default().copies(tight)).expect_err("a few megabytes");
    let Broken::TooMuch { what, limit } = &error else { panic!("{error}") };
    assert_eq!(*limit, tight + 4 * bytes.len());
    assert!(what.starts_with("entries["), "{error}");
}

#[test]
fn a_list_of_ranks_that_many_groups_share_is_bounded() {
    let ranks = format!("{:?}", (0..20_000).collect::<Vec<usize>>());
    let group = [&text("g")[..], b"q\x00}(", &text("ranks"), &text(&ranks), b"uq\x01"].concat();
    let groups = [&text("pg_config")[..], b"}(", &group, &b"h\x00h\x01".repeat(999), b"u"].concat();
    let version = [text("version"), text("2.10")].concat();
    let bytes = [&b"\x80\x02}("[..], &version, &groups, &text("entries"), b"]u."].concat();
    let error = decode(&bytes, 0, &Limits::default()).expect_err("a thousand groups of 20,000 ranks");
    assert!(matches!(&error, Broken::TooMuch { what, .. } if what == "pg_config['g'].ranks"), "{error}");
}

#[test]
fn a_function_with_a_name_beyond_reason_is_left_out() {
    let frame = |name: &str| {
        let pairs = [("filename", "kernel.cc".into()), ("line", Value::Int(7)), ("name", name.into())];
        Value::List(vec![Value::dict(pairs)])
    };
    let site_of = |name: &str| {
        let Value::Dict(mut pairs) = gloo(true) else { unreachable!() };
        let Value::List(entries) = &mut pairs[2].1 else { unreachable!() };
        let Value::Dict(entry) = &mut entries[0] else { unreachable!() };
        entry.iter_mut().filter(|(key, _)| key == "frames").for_each(|(_, frames)| *frames = frame(name));
        let dump = decode(&pickle::write(&Value::Dict(pairs)), 0, &Limits::default()).expect("Gloo's");
        dump.entries[0].site.clone()
    };
    let site = |function| Some(Site { file: "kernel.cc".to_owned(), line: 7, function });
    assert_eq!(site_of(&"x".repeat(4096)), site(Some("x".repeat(4096))));
    assert_eq!(site_of(&"x".repeat(4097)), site(None));
}

#[test]
fn a_pickle_that_would_run_something_is_refused() {
    let hostile = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R.";
    let error = decode(hostile, 0, &Limits::default()).expect_err("hostile");
    assert!(matches!(error, Broken::Pickle(pickle::Error::Refused { name: "GLOBAL", offset: 2 })), "{error}");
}

#[test]
fn numbers_at_the_end_of_their_range_overflow_nothing() {
    let last = Entry { record: u64::MAX, created_ns: u64::MAX, state: State::Started, ..entry("barrier", u64::MAX) };
    let dumps = [dump(vec![last]), Dump { rank: 1, ..dump(vec![entry("all_reduce", 0)]) }];
    assert_eq!(as_torch(&dumps[0], Messages::Keep).entries[0].sequence, i64::MAX as u64);
    let report = analyse(&dumps);
    assert!(crate::page::html(&dumps, &report).contains("barrier"));
    let everywhere = Value::dict([("g", Value::dict([("ranks", Value::from(format!("[{}]", usize::MAX)))]))]);
    let Value::Dict(mut pairs) = gloo(true) else { unreachable!() };
    pairs[1].1 = everywhere;
    let read = decode(&pickle::write(&Value::Dict(pairs)), 0, &Limits::default());
    assert!(matches!(read, Err(Broken::Value { .. })), "{read:?}");
}

#[test]
fn what_started_before_it_was_called_is_drawn_from_its_call() {
    let backwards = Entry { created_ns: 9000, started_ns: Some(2000), ended_ns: Some(1000), ..entry("barrier", 0) };
    let dumps = [dump(vec![Entry { created_ns: 1000, ..entry("all_reduce", 1) }, backwards])];
    let events = crate::perfetto::trace(&dumps, &analyse(&dumps));
    let drawn = events["traceEvents"].as_array().expect("events").iter().find(|event| event["name"] == "barrier 0");
    let drawn = drawn.expect("it is drawn");
    assert_eq!((&drawn["ts"], &drawn["dur"], &drawn["args"]["queued_us"]), (&8.0.into(), &0.0.into(), &0.0.into()));
}
