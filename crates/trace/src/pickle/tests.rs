//! Pickles that are none, that lie about their sizes, or that want more than to be read.

use super::opcode::REFUSED;
use super::*;

/// A value of every kind.
fn sample() -> Value {
    Value::dict([
        ("none", Value::None),
        ("flags", Value::Tuple(vec![true.into(), false.into()])),
        ("numbers", Value::List([0, 1, 255, 256, 65_536, -1, i64::MAX, i64::MIN].map(Value::Int).into())),
        ("float", Value::Float(-2.5)),
        ("text", Value::from("all_reduce \u{e9}\u{4e16}")),
        ("empty", Value::Tuple(vec![Value::List(vec![]), Value::Tuple(vec![]), Value::Dict(vec![]), "".into()])),
    ])
}

/// What was read as what could be written, tuples as lists.
fn value(view: View<'_, '_>) -> Value {
    match view.look().expect("few looks") {
        Node::None => Value::None,
        Node::Bool(flag) => Value::Bool(*flag),
        Node::Int(number) => Value::int(*number),
        Node::Float(number) => Value::Float(*number),
        Node::Text(text) => (*text).into(),
        Node::List(_) => Value::List(view.items().expect("few").into_iter().flatten().map(value).collect()),
        Node::Dict(_) => {
            let pairs = view.pairs().expect("few").into_iter().flatten();
            Value::Dict(pairs.map(|(key, of)| (format!("{:?}", value(key)), value(of))).collect())
        }
    }
}

/// The same with lists for tuples, and keys as they are told.
fn told(value: &Value) -> Value {
    match value {
        Value::List(items) | Value::Tuple(items) => Value::List(items.iter().map(told).collect()),
        Value::Dict(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| (format!("{:?}", Value::from(&**key)), told(value)));
            Value::Dict(pairs.collect())
        }
        other => other.clone(),
    }
}

fn read_all(bytes: &[u8]) -> Result<Value, Error> {
    read(bytes, &Limits::default()).map(|tree| value(tree.root()))
}

#[test]
fn what_is_written_is_read() {
    assert_eq!(read_all(&write(&sample())), Ok(told(&sample())));
}

#[test]
fn what_python_writes_is_read() {
    // pickle.dumps({'a': [1, (2, 3), 'x', None, True, 1.5, 2**40], 'b': 'x'}, protocol=p) for p of 2 and 4.
    let two = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01K\x02K\x03\x86q\x03X\x01\x00\x00\x00xq\x04N\x88\
                G?\xf8\x00\x00\x00\x00\x00\x00\x8a\x06\x00\x00\x00\x00\x00\x01eX\x01\x00\x00\x00bq\x05h\x04u.";
    let four = b"\x80\x04\x95\x35\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01K\x02K\x03\x86\x94\x8c\x01x\
                 \x94N\x88G?\xf8\x00\x00\x00\x00\x00\x00\x8a\x06\x00\x00\x00\x00\x00\x01e\x8c\x01b\x94h\x04u.";
    let pair = Value::List(vec![Value::Int(2), Value::Int(3)]);
    let rest = [Value::None, true.into(), Value::Float(1.5), Value::Int(1 << 40)];
    let list = [vec![Value::Int(1), pair, "x".into()], rest.into()].concat();
    let expected = told(&Value::dict([("a", Value::List(list)), ("b", "x".into())]));
    assert_eq!(read_all(two), Ok(expected.clone()));
    assert_eq!(read_all(four), Ok(expected));
}

#[test]
fn whatever_asks_for_more_than_data_is_refused_by_name() {
    for (byte, name) in REFUSED {
        let bytes = [&[0x80, 2, b'N'], &[byte][..], b"os\nsystem\n."].concat();
        assert_eq!(read_all(&bytes), Err(Error::Refused { name, offset: 3 }), "{name}");
    }
    // What `pickle.dumps(os.system)` and an object with `__reduce__` are.
    let system = b"\x80\x04\x95\x14\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.";
    let refused = read_all(system).expect_err("a function");
    assert_eq!(refused.to_string(), "byte 28: opcode STACK_GLOBAL asks for more than plain data, and is refused");
}

#[test]
fn every_byte_is_an_opcode_that_is_read_or_an_error() {
    for byte in 0..=u8::MAX {
        let bytes = [0x80, 2, b']', byte];
        let read = read_all(&bytes);
        assert_eq!(read.is_ok(), byte == super::opcode::STOP, "{byte:#x}: {read:?}");
        let is_refused = matches!(read, Err(Error::Refused { offset: 3, .. }));
        assert_eq!(is_refused, REFUSED.iter().any(|(code, _)| *code == byte), "{byte:#x}");
    }
}

#[test]
fn a_pickle_that_is_cut_off_is_truncated_wherever_it_is_cut() {
    let whole = write(&sample());
    for len in 0..whole.len() {
        assert_eq!(read_all(&whole[..len]), Err(Error::Truncated { offset: len }), "{len}");
    }
}

#[test]
fn lengths_that_are_not_there_take_no_memory() {
    for text in [&b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc."[..], b"\x80\x02X\xff\xff\xff\xffabc."] {
        assert_eq!(read_all(text), Err(Error::Truncated { offset: text.len() }));
    }
    let long = b"\x80\x02\x8a\xff\x01.";
    assert_eq!(read_all(long), Err(Error::Malformed { what: "an integer is longer than 16 bytes", offset: 2 }));
}

#[test]
fn each_limit_is_kept_and_named() {
    let limits = || Limits::default().bytes(1000).values(10).depth(3).memo(2).looks(10);
    let beyond = |bytes: &[u8], limits: Limits| match read(bytes, &limits) {
        Err(Error::Beyond { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(beyond(&[b'N'; 1001], limits()), Limit::Bytes);
    assert_eq!(beyond(&[b'N'; 11], limits()), Limit::Values);
    assert_eq!(beyond(b"N\x85\x85\x85\x85.", limits()), Limit::Depth);
    assert_eq!(beyond(b"((((", limits()), Limit::Depth);
    assert_eq!(beyond(b"Nq\x00q\x01q\x02", limits()), Limit::Memo);
    assert_eq!(beyond(b"N\x94h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00", limits()), Limit::Values);
}

/// A list of ten times a list of ten times a list of ... takes little to write and read, and for ever to walk through.
#[test]
fn a_small_pickle_that_means_a_large_value_is_not_walked_through() {
    let mut bytes = b"\x80\x02(K\x01t\x94".to_vec();
    for level in 0..12_u8 {
        bytes.push(b'(');
        bytes.extend([b'h', level].repeat(10));
        bytes.extend(b"t\x94");
    }
    bytes.push(b'.');
    // The levels stand below the last as values of their own.
    assert_eq!(
        read(&bytes, &Limits::default()).map(|_| ()),
        Err(Error::Malformed { what: "the pickle is not one value", offset: bytes.len() - 1 })
    );
    let mut one = b"\x80\x02(K\x01t\x94".to_vec();
    for level in 0..12_u8 {
        one.extend([&b"("[..], &[b'h', level].repeat(10), b"t\x94"].concat());
    }
    // All of them in one tuple.
    let bytes = [&b"\x80\x02("[..], &one[2..], b"t."].concat();
    let tree = read(&bytes, &Limits::default().looks(100_000)).expect("it is well formed");
    fn walk(view: View<'_, '_>) -> Result<usize, Error> {
        let items = view.items()?;
        items.into_iter().flatten().try_fold(1, |sum, item| Ok(sum + walk(item)?))
    }
    assert_eq!(walk(tree.root()), Err(Error::Beyond { limit: Limit::Looks, most: 100_000, offset: 0 }));
}

#[test]
fn what_does_not_fit_together_is_named() {
    let what = |bytes: &[u8]| match read_all(&[b"\x80\x02", bytes].concat()) {
        Err(Error::Malformed { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(what(b"a"), "a value is missing");
    assert_eq!(what(b"N(a"), "a value is missing");
    assert_eq!(what(b"NNa"), "items are appended to no list");
    assert_eq!(what(b"NNNs"), "pairs are set in no dictionary");
    assert_eq!(what(b"}(Nu"), "a key has no value");
    assert_eq!(what(b"h\x07"), "what is used again was never remembered");
    assert_eq!(what(b"N\x86"), "a value is missing");
    assert_eq!(what(b"t"), "a mark is missing");
    assert_eq!(what(b"N(."), "a mark was never used");
    assert_eq!(what(b"."), "the pickle is not one value");
    assert_eq!(what(b"\x80\x01"), "the protocol must be 2 to 5");
    assert_eq!(what(b"X\x02\x00\x00\x00\xff\xfe."), "a text is not UTF-8");
}

/// A list that holds itself is read, and whoever walks through it ends.
#[test]
fn a_list_that_holds_itself_has_an_end() {
    let tree = read(b"\x80\x02]q\x00h\x00a.", &Limits::default().looks(1000)).expect("it is well formed");
    let mut view = tree.root();
    let end = loop {
        match view.items() {
            Ok(items) => view = items.and_then(|mut items| items.next()).expect("itself"),
            Err(error) => break error,
        }
    };
    assert_eq!(end, Error::Beyond { limit: Limit::Looks, most: 1000, offset: 0 });
}

#[test]
fn random_bytes_are_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(7);
    let whole = write(&sample());
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        if let Ok(tree) = read(&bytes, &Limits::default().values(1000).looks(10_000)) {
            assert!(tree.nodes.len() <= 1000);
            let _ = tree.root().under("text");
        }
    }
}
