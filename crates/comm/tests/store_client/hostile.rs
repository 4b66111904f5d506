//! Servers that stall, cut, lie and babble: every call still ends in time, and never says more than is known.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::store::TcpStore;
use phalanx_core::store::{Doubt, Home, Limits, Refusal, Reply, Request, Store, StoreError, Table, Value};

use crate::scripted::{Honest, Scripted, greet, swallow};

/// What a busy machine may take; how soon a call ends on a quiet one is measured elsewhere.
const SLACK: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(200);
/// More than any test waits for.
const LONG: Duration = Duration::from_secs(30);

fn set(key: &str, value: &[u8]) -> Request {
    Request::Set { pairs: vec![(key.into(), value.into())] }
}

fn get(key: &str) -> Request {
    Request::Get { keys: vec![key.into()], wait: true }
}

fn add(key: &str, delta: i64) -> Request {
    Request::Add { key: key.into(), delta }
}

fn push(key: &str) -> Request {
    Request::Push { key: key.into(), value: b"v".as_slice().into() }
}

fn value(bytes: &[u8]) -> Reply {
    Reply::Values(vec![Some(Value::from(bytes))])
}

/// Asks with little time, and fails the test unless the call ends in it.
fn ask_in_time(store: &TcpStore, request: Request) -> Result<Reply, StoreError> {
    let start = Instant::now();
    let outcome = store.ask(request, SHORT);
    assert!(start.elapsed() <= SHORT + SLACK, "{:?}", start.elapsed());
    outcome
}

fn pass(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

fn honest(table: &Mutex<Table>, client: usize) -> Honest<'_> {
    Honest { table, client: client as u64, limits: Limits::default(), knows: u8::MAX }
}

#[test]
fn a_server_that_never_speaks() {
    let server = Scripted::start(|_, mut stream| swallow(&mut stream));
    let start = Instant::now();
    let error = server.connect(SHORT).unwrap_err();
    assert!(start.elapsed() <= SHORT + SLACK, "{:?}", start.elapsed());
    assert!(matches!(&error, StoreError::Lost { doubt: Doubt::None, .. }), "{error}");
    assert!(error.to_string().contains("it does not answer the greeting"), "{error}");
}

#[test]
fn nothing_listens() {
    let address = Scripted::start(|_, _| {}).address();
    let options = phalanx_comm::store::ClientOptions::new(address.clone()).timeout(SHORT);
    let start = Instant::now();
    let error = TcpStore::connect(options).unwrap_err();
    assert!(start.elapsed() <= SHORT + SLACK, "{:?}", start.elapsed());
    let said = error.to_string();
    assert!(said.starts_with(&format!("store connect: the store at {address}: nothing listens there (")), "{said}");
}

/// The call says which server it is that does not let it in any more, and what was seen of it last.
#[test]
fn a_server_that_greets_only_once() {
    let server = Scripted::start(|number, mut stream| match number {
        0 => drop(greet(&mut stream)),
        _ => swallow(&mut stream),
    });
    let said = ask_in_time(&server.client(), get("k")).unwrap_err().to_string();
    let store = format!("store get: no answer within 200ms from the store at {}: ", server.address());
    assert!(said.starts_with(&store) && said.contains("it does not answer the greeting"), "{said}");
    assert!(said.ends_with("; asked for k"), "{said}");
}

/// A stopped process looks like this: the system still takes connections and bytes for it.
#[test]
fn a_server_that_stops_after_the_greeting() {
    let server = Scripted::start(|_, mut stream| {
        greet(&mut stream);
        swallow(&mut stream);
    });
    let store = server.client();
    let timeout = |request: Request, doubt| {
        let verb = request.verb();
        let keys: Vec<_> = request.keys().cloned().collect();
        let error = ask_in_time(&store, request).unwrap_err();
        let detail = format!("the store at {}", server.address());
        assert_eq!(error, StoreError::Timeout { verb, after: SHORT, keys, detail, doubt });
    };
    timeout(set("k", b"v"), Doubt::None);
    timeout(get("k"), Doubt::None);
    timeout(Request::Ping, Doubt::None);
    timeout(add("k", 1), Doubt::Unknown);
    timeout(Request::Append { key: "k".into(), value: b"v".as_slice().into() }, Doubt::Unknown);
    timeout(Request::Barrier { key: "k".into(), size: 2 }, Doubt::None);
    timeout(Request::Pop { key: "k".into(), wait: true }, Doubt::None);
}

#[test]
fn a_server_that_reads_nothing() {
    let (done, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Scripted::start(move |_, mut stream| {
        greet(&mut stream);
        let _ = wait.lock().expect("whole").recv();
    });
    let store = server.client();
    let error = ask_in_time(&store, set("k", &vec![7; 8 << 20])).unwrap_err();
    assert!(error.is_timeout() && error.doubt() == Doubt::None, "{error}");
    let large = Request::Append { key: "k".into(), value: vec![7; 8 << 20].into() };
    // It never went out whole, so it was not done.
    assert_eq!(ask_in_time(&store, large).unwrap_err().doubt(), Doubt::None);
    drop((done, store));
}

#[test]
fn a_server_that_sends_a_byte_at_a_time_and_never_enough() {
    let server = Scripted::start(|_, mut stream| {
        greet(&mut stream);
        // A value of 4 KiB, at fifty bytes a second.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
        let answer = 4096_u64.to_le_bytes().into_iter().chain([b'x'; 4095]);
        let mut bytes = [0; 4096];
        for byte in answer {
            if matches!(stream.read(&mut bytes), Ok(0)) || !pass(&mut stream, &[byte]) {
                return;
            }
        }
    });
    let store = server.client();
    let swap = Request::CompareSet { key: "k".into(), expected: Value::default(), desired: Value::default() };
    let error = ask_in_time(&store, swap).unwrap_err();
    assert!(error.is_timeout() && error.doubt() == Doubt::Unknown, "{error}");
}

#[test]
fn a_half_closed_connection() {
    let server = Scripted::start(|_, mut stream| {
        greet(&mut stream);
        let _ = stream.shutdown(Shutdown::Write);
        swallow(&mut stream);
    });
    let store = server.client();
    let error = ask_in_time(&store, set("k", b"v")).unwrap_err();
    assert!(matches!(error, StoreError::Lost { doubt: Doubt::None, .. }), "{error}");
}

#[test]
fn a_connection_cut_at_every_byte_of_every_answer() {
    let requests = [set("k", b"value"), get("k"), Request::Check { keys: vec!["k".into()] }, add("n", 1), push("q")];
    for request in requests {
        for cut in 0..32 {
            let table = Arc::new(Mutex::new(Table::new(Limits::default())));
            let shared = Arc::clone(&table);
            let armed = Arc::new(AtomicUsize::new(usize::MAX));
            let left = Arc::clone(&armed);
            let server = Scripted::start(move |number, mut stream| {
                honest(&shared, number).serve(&mut stream, |stream, _, bytes| {
                    let budget = left.load(Ordering::SeqCst);
                    if budget == usize::MAX {
                        return pass(stream, bytes);
                    }
                    let now = budget.min(bytes.len());
                    // The next connection is an honest one.
                    left.store(if now < bytes.len() { usize::MAX } else { budget - now }, Ordering::SeqCst);
                    pass(stream, &bytes[..now]) && now == bytes.len()
                });
            });
            let store = server.client();
            store.ask(set("k", b"value"), LONG).unwrap();
            store.ask(push("other"), LONG).unwrap();
            armed.store(cut, Ordering::SeqCst);
            check_cut(&store, &table, request.clone(), cut);
        }
    }
}

/// The answer is right, or it is said that nobody knows; and nothing was done twice.
fn check_cut(store: &TcpStore, table: &Mutex<Table>, request: Request, cut: usize) {
    let repeats = request.repeats();
    match (store.ask(request.clone(), LONG), &request) {
        (Ok(reply), Request::Get { .. }) => assert_eq!(reply, value(b"value")),
        (Ok(reply), Request::Check { .. }) => assert_eq!(reply, Reply::Flag(true)),
        (Ok(reply), Request::Add { .. }) => assert_eq!(reply, Reply::Number(1)),
        (Ok(reply), _) => assert_eq!(reply, Reply::Done),
        (Err(error), _) => {
            assert!(matches!(error, StoreError::Lost { doubt: Doubt::Unknown, .. }), "cut at {cut}: {error}");
            assert!(!repeats, "{request:?} could have been asked again, cut at {cut}");
        }
    }
    let mut table = table.lock().unwrap();
    let mut number = |request| match table.ask(phalanx_core::store::ClientId(999), request) {
        phalanx_core::store::Asked::Answered(Ok(Reply::Number(number))) => number,
        other => panic!("{other:?}"),
    };
    match &request {
        Request::Add { .. } => assert_eq!(number(add("/n", 0)), 1),
        Request::Push { .. } => assert_eq!(number(Request::QueueLen { key: "/q".into() }), 1),
        _ => {}
    }
}

#[test]
fn a_ping_that_comes_back_wrong_acknowledges_nothing() {
    let server = Scripted::start(|_, mut stream| {
        if greet(&mut stream) {
            let mut bytes = [0; 256];
            while matches!(stream.read(&mut bytes), Ok(1..)) && pass(&mut stream, b"\0\0\0\0") {}
        }
    });
    let store = server.client();
    let error = store.ask(set("k", b"v"), LONG).unwrap_err();
    assert!(error.to_string().contains("the answer to a ping is 0"), "{error}");
    let error = store.ask(Request::Append { key: "k".into(), value: Value::default() }, LONG).unwrap_err();
    assert_eq!(error.doubt(), Doubt::Unknown);
}

#[test]
fn another_program_listens() {
    let server = Scripted::start(|_, mut stream| {
        let mut bytes = [0; 256];
        if matches!(stream.read(&mut bytes), Ok(1..)) {
            pass(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = server.connect(SHORT).unwrap_err();
    assert!(error.to_string().contains("no store answers there"), "{error}");
}

#[test]
fn any_answer_at_all_is_survived() {
    thread::scope(|scope| {
        for seed in 0..64 {
            scope.spawn(move || babble(seed));
        }
    });
}

/// A server whose answers are noise: calls end in time, whatever they return.
fn babble(seed: u64) {
    let server = Scripted::start(move |number, mut stream| {
        let mut random = fastrand::Rng::with_seed(seed << 32 | number as u64);
        greet(&mut stream);
        let mut bytes = [0; 256];
        while matches!(stream.read(&mut bytes), Ok(1..)) {
            let noise: Vec<u8> = (0..random.usize(..32)).map(|_| random.u8(..3)).collect();
            if random.u8(..4) == 0 || !pass(&mut stream, &noise) {
                return;
            }
        }
    });
    let store = server.client();
    for request in [set("k", b"v"), get("k"), add("k", 1), push("k"), Request::ListKeys] {
        let start = Instant::now();
        let _ = store.ask(request, SHORT);
        // Sixty-four servers and clients at once share the processors.
        assert!(start.elapsed() <= SHORT + 4 * SLACK, "seed {seed}: {:?}", start.elapsed());
    }
}

#[test]
fn a_server_that_closes_on_a_request_is_not_asked_for_ever() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Scripted::start(move |_, mut stream| {
        if greet(&mut stream) && matches!(stream.read(&mut [0; 256]), Ok(1..)) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let error = server.client().ask(set("k", b"v"), LONG).unwrap_err();
    assert!(error.to_string().contains("the server closed the connection, as PyTorch's servers do"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn a_server_that_greets_at_the_third_try() {
    let table = Mutex::new(Table::new(Limits::default()));
    let server = Scripted::start(move |number, mut stream| {
        if number >= 2 {
            honest(&table, number).serve(&mut stream, |stream, _, bytes| pass(stream, bytes));
        }
    });
    let store = server.client();
    assert_eq!(store.ask(add("k", 2), LONG), Ok(Reply::Number(2)));
}

/// PyTorch's older servers close the connection on what they do not know.
#[test]
fn an_older_server_cannot_do_everything() {
    let table = Mutex::new(Table::new(Limits::default()));
    let server = Scripted::start(move |number, mut stream| {
        let old = Honest { knows: 14, ..honest(&table, number) };
        old.serve(&mut stream, |stream, _, bytes| pass(stream, bytes));
    });
    let store = server.client();
    let unsupported = Refusal::Unsupported { store: format!("the store at {}", server.address()) };
    let pop = |wait| Request::Pop { key: "q".into(), wait };
    let lacks = [
        push("q"),
        pop(false),
        pop(true),
        Request::QueueLen { key: "q".into() },
        Request::ListKeys,
        Request::Barrier { key: "b".into(), size: 1 },
    ];
    for request in lacks {
        let refused = StoreError::Refused { verb: request.verb(), refusal: unsupported.clone() };
        assert_eq!(store.ask(request, LONG), Err(refused));
    }
    assert_eq!(store.ask(add("k", 1), LONG), Ok(Reply::Number(1)));
}

/// The answer and the cancel meet on the way: what was waited for counts, and the connection is in step.
#[test]
fn an_answer_that_meets_the_cancel() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let server = Scripted::start(move |_, mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        greet(&mut stream);
        let mut bytes = [0; 256];
        let mut cancelled = 0;
        while let Ok(len @ 1..) = stream.read(&mut bytes) {
            match bytes[0] {
                12 => {
                    cancelled += 1;
                    // The first time the answer was on its way already.
                    let answer: &[u8] = if cancelled == 1 { &[0, 1] } else { &[1] };
                    pass(&mut stream, answer);
                }
                13 => {
                    pass(&mut stream, &bytes[1..len]);
                }
                _ => {}
            }
        }
    });
    let store = server.client();
    let wait = Request::Wait { keys: vec!["k".into()] };
    assert_eq!(ask_in_time(&store, wait.clone()), Ok(Reply::Done));
    assert_eq!(store.ask(Request::Ping, LONG), Ok(Reply::Done));
    assert!(ask_in_time(&store, wait).unwrap_err().is_timeout());
    assert_eq!(store.ask(Request::Ping, LONG), Ok(Reply::Done));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn a_cancel_without_answer_costs_the_connection() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    let server = Scripted::start(move |_, mut stream| {
        count.fetch_add(1, Ordering::SeqCst);
        greet(&mut stream);
        let mut bytes = [0; 256];
        while let Ok(len @ 1..) = stream.read(&mut bytes) {
            if bytes[0] == 13 {
                pass(&mut stream, &bytes[1..len]);
            }
        }
    });
    let store = server.client();
    assert!(ask_in_time(&store, Request::Wait { keys: vec!["k".into()] }).unwrap_err().is_timeout());
    assert_eq!(store.ask(Request::Ping, LONG), Ok(Reply::Done));
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[test]
fn what_pytorchs_servers_would_close_on_is_refused_here() {
    let table = Mutex::new(Table::new(Limits::default()));
    let server = Scripted::start(move |number, mut stream| {
        honest(&table, number).serve(&mut stream, |stream, _, bytes| pass(stream, bytes));
    });
    let store = Store::new(server.client());
    let refused = |outcome: Result<(), StoreError>| match outcome {
        Err(StoreError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    };
    store.set(&"k".repeat(8191), b"v").unwrap();
    let start = "k".repeat(31);
    assert_eq!(refused(store.set(&"k".repeat(8192), b"v")), Refusal::KeyTooLong { len: 8192, limit: 8191, start });
    let (len, limit) = ((8 << 20) + 1, 8 << 20);
    assert_eq!(refused(store.set("k", vec![0; len as usize])), Refusal::ValueTooLong { len, limit, key: "k".into() });
    let keys = vec!["k"; 131_073];
    assert_eq!(refused(store.wait(&keys)), Refusal::TooManyKeys { count: 131_073, limit: 131_072 });
}
