//! Which server it is, who is let in, and what happens when either changes.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{ClientOptions, ServerOptions, Speech, StoreAddress, StoreServer, TcpStore};
use phalanx_core::store::{Refusal, Store, StoreError, Verb};

const LONG: Duration = Duration::from_secs(30);

fn loopback() -> StoreAddress {
    "127.0.0.1:0".parse().unwrap()
}

fn client(server: &StoreServer) -> ClientOptions {
    ClientOptions::new(server.address().clone()).timeout(LONG)
}

fn denied(outcome: Result<TcpStore, StoreError>) -> String {
    match outcome {
        Err(StoreError::Denied { verb: Verb::Connect, detail }) => detail,
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_machine_is_reached_with_a_key_only() {
    let address: StoreAddress = "192.0.2.1:29500".parse().unwrap();
    let Err(StoreError::Refused { verb, refusal }) = TcpStore::connect(ClientOptions::new(address)) else { panic!() };
    assert_eq!(verb, Verb::Connect);
    assert!(matches!(&refusal, Refusal::Argument { argument, .. } if argument == "key"), "{refusal}");
    assert!(refusal.to_string().contains("unless insecure is set"), "{refusal}");
}

#[test]
fn another_key_is_denied_long_before_the_time_ends() {
    let server = StoreServer::start(ServerOptions::new(loopback()).key(JobKey::mint().unwrap())).unwrap();
    let start = Instant::now();
    let detail = denied(TcpStore::connect(client(&server).key(JobKey::mint().unwrap())));
    assert!(detail.contains("it has another key"), "{detail}");
    assert!(start.elapsed() < LONG / 2);
}

#[test]
fn without_the_key_there_is_no_way_in() {
    let server = StoreServer::start(ServerOptions::new(loopback()).key(JobKey::mint().unwrap())).unwrap();
    let error = TcpStore::connect(client(&server).timeout(Duration::from_millis(200))).unwrap_err();
    assert!(matches!(error, StoreError::Lost { verb: Verb::Connect, .. }), "{error}");
    assert!(error.to_string().contains("it asks for a key, and none was given"), "{error}");
}

#[test]
fn claims_that_do_not_fit_are_denied_with_the_reason() {
    let key = JobKey::mint().unwrap();
    let job = |name: &str| JobName::new(name).unwrap();
    let options = ServerOptions::new(loopback()).key(key.clone()).job(job("train")).epoch(3).world(2);
    let server = StoreServer::start(options).unwrap();
    let claim = |name, epoch| Claim::new(job(name), epoch, Session::mint().unwrap());
    let connect = |claim| TcpStore::connect(client(&server).key(key.clone()).claim(claim));
    assert!(denied(connect(claim("other", 3))).contains("job \"train\""));
    assert!(denied(connect(claim("train", 2))).contains("epoch 3"));
    let first = connect(claim("train", 3).member(0, 2).unwrap()).unwrap();
    assert!(denied(connect(claim("train", 3).member(0, 2).unwrap())).contains("rank 0 was taken"));
    Store::new(first).set("k", "v").unwrap();
}

#[test]
fn a_server_that_comes_up_later_is_found() {
    let path = std::env::temp_dir().join(format!("phalanx-late-{}-{}", std::process::id(), fastrand::u64(..)));
    let address = StoreAddress::unix(path);
    let options = ClientOptions::new(address.clone()).timeout(LONG);
    let early = TcpStore::connect(options.clone().timeout(Duration::from_millis(50))).unwrap_err();
    assert!(early.to_string().contains("there is no such socket"), "{early}");
    thread::scope(|scope| {
        let connecting = scope.spawn(|| TcpStore::connect(options));
        let _server = StoreServer::start(ServerOptions::new(address)).unwrap();
        Store::new(connecting.join().unwrap().unwrap()).set("k", "v").unwrap();
    });
}

#[test]
fn a_restarted_server_is_not_taken_for_the_first() {
    let server = StoreServer::start(ServerOptions::new(loopback())).unwrap();
    let store = Store::new(TcpStore::connect(client(&server)).unwrap()).with_timeout(LONG);
    let torch = client(&server).speech(Speech::PyTorch);
    let other = Store::new(TcpStore::connect(torch).unwrap()).with_timeout(LONG);
    store.set("k", "v").unwrap();
    let address = server.address().clone();
    drop(server);
    let _server = StoreServer::start(ServerOptions::new(address)).unwrap();
    for _ in 0..2 {
        let error = store.get("k").unwrap_err();
        assert!(error.to_string().ends_with("it was restarted: what it held is gone"), "{error}");
    }
    // PyTorch's words do not say which server it is.
    assert_eq!(other.find("k").unwrap(), None);
}

#[test]
fn clients_of_an_epoch_that_ended_are_told() {
    let server = StoreServer::start(ServerOptions::new(loopback()).epoch(1)).unwrap();
    let claim = Claim::new(JobName::default(), 1, Session::mint().unwrap());
    let store = Store::new(TcpStore::connect(client(&server).claim(claim)).unwrap()).with_timeout(LONG);
    store.set("k", "v").unwrap();
    server.advance(2, 0);
    let error = store.get("k").unwrap_err();
    assert!(error.to_string().contains("epoch is 1, the server serves epoch 2"), "{error}");
}
