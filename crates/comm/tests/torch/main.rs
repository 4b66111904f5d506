//! Our store and PyTorch's, each other's clients and servers. Needs a Python with PyTorch, named by `PHALANX_TEST_PYTHON`
//! (else `python3`), so these tests are run on demand: `interop/run` installs what they need.

mod model;
mod op;
mod python;

use std::time::Duration;

use phalanx_comm::store::{ClientOptions, ServerOptions, StoreAddress, StoreServer, TcpStore};
use phalanx_core::store::{Limits, Store};

use model::Model;
use op::{Answer, Op, Player, SHORT};
use python::{Kind, Python};

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn every_operation_through_the_libuv_server() {
    let mut python = Python::serve(Kind::Libuv);
    let mut rust = client(python.ready);
    every_operation(&mut python, &mut rust, true);
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn every_operation_through_the_legacy_server() {
    let mut python = Python::serve(Kind::Legacy);
    let mut rust = client(python.ready);
    every_operation(&mut python, &mut rust, false);
    assert_eq!(rust.play(&Op::Push("queue".into(), vec![1])), Answer::Unsupported);
    assert_eq!(rust.play(&Op::Set("after".into(), vec![1])), Answer::Done, "the client goes on after a refusal");
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn every_operation_through_our_server() {
    let (server, port) = server();
    let (mut python, mut rust) = (Python::connect(port), client(port));
    every_operation(&mut python, &mut rust, true);
    drop(server);
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn a_thousand_random_operations_in_lock_step_with_the_libuv_server() {
    let mut python = Python::serve(Kind::Libuv);
    let mut rust = client(python.ready);
    lock_step(&mut python, &mut rust, 1, |_| true);
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn a_thousand_random_operations_in_lock_step_with_the_legacy_server() {
    let mut python = Python::serve(Kind::Legacy);
    let mut rust = client(python.ready);
    lock_step(&mut python, &mut rust, 2, Op::is_old);
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn a_thousand_random_operations_in_lock_step_with_our_server() {
    let (server, port) = server();
    let (mut python, mut rust) = (Python::connect(port), client(port));
    lock_step(&mut python, &mut rust, 3, |_| true);
    drop(server);
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn a_wait_in_one_language_ends_by_a_set_in_the_other() {
    let (server, port) = server();
    let (mut python, mut rust) = (Python::connect(port), client(port));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| python.play(&Op::Get("from rust".into())));
        assert_eq!(rust.play(&Op::Set("from rust".into(), b"v".to_vec())), Answer::Done);
        assert_eq!(waiting.join().expect("no panic"), Answer::Value(b"v".to_vec()));
    });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| rust.play(&Op::Pop("from python".into())));
        assert_eq!(python.play(&Op::Push("from python".into(), b"w".to_vec())), Answer::Done);
        assert_eq!(waiting.join().expect("no panic"), Answer::Value(b"w".to_vec()));
    });
    drop(server);
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn a_gloo_group_meets_in_our_store() {
    gloo(&[]);
}

#[test]
#[ignore = "needs PyTorch: interop/run"]
fn a_gloo_group_with_a_barrier_in_the_store_meets_in_our_store() {
    gloo(&[("TORCH_DIST_INIT_BARRIER", "1".to_owned())]);
}

fn gloo(more: &[(&str, String)]) {
    let (server, port) = server();
    let ranks: Vec<Python> = (0..2)
        .map(|rank: usize| {
            let mut variables = vec![
                ("RANK", rank.to_string()),
                ("WORLD_SIZE", "2".to_owned()),
                ("LOCAL_RANK", rank.to_string()),
                ("MASTER_ADDR", "127.0.0.1".to_owned()),
                ("MASTER_PORT", port.to_string()),
                ("TORCHELASTIC_USE_AGENT_STORE", "True".to_owned()),
                ("TORCHELASTIC_RESTART_COUNT", "0".to_owned()),
            ];
            variables.extend(more.iter().cloned());
            Python::rank(&variables)
        })
        .collect();
    for rank in ranks {
        assert_eq!(rank.until_ready().answer()["answer"], 3, "the sum of 1 and 2");
    }
    drop(server);
}

/// Each operation once by either side, with the other looking; every answer as the model has it.
fn every_operation(python: &mut Python, rust: &mut Store, queues: bool) {
    let mut model = Model::default();
    let (key, keys) = ("key".to_owned(), vec!["key".to_owned(), "other".to_owned()]);
    let ops = [
        Op::Set(key.clone(), b"v\0\xff".to_vec()),
        Op::Get(key.clone()),
        Op::MultiSet(vec![("key".into(), b"1".to_vec()), ("other".into(), Vec::new())]),
        Op::MultiGet(keys.clone()),
        Op::Wait(keys.clone(), SHORT),
        Op::Wait(vec!["absent".into()], SHORT),
        Op::Check(keys.clone()),
        Op::Check(vec!["key".into(), "absent".into()]),
        Op::Add("number".into(), -7),
        Op::Add("number".into(), 49),
        Op::Get("number".into()),
        Op::CompareSet(key.clone(), b"1".to_vec(), b"2".to_vec()),
        Op::CompareSet(key.clone(), b"1".to_vec(), b"3".to_vec()),
        Op::CompareSet("nothing".into(), b"x".to_vec(), b"y".to_vec()),
        Op::CompareSet("nothing".into(), Vec::new(), b"y".to_vec()),
        Op::Append(key.clone(), vec![7; 100_000]),
        Op::Get(key.clone()),
        Op::NumKeys,
        Op::ListKeys,
        Op::Delete(key.clone()),
        Op::Delete(key),
        Op::Push("queue".into(), b"first".to_vec()),
        Op::Push("queue".into(), Vec::new()),
        Op::QueueLen("queue".into()),
        Op::Check(vec!["queue".into()]),
        Op::Pop("queue".into()),
        Op::Pop("queue".into()),
        Op::QueueLen("queue".into()),
        Op::Barrier("together".into(), 3, SHORT),
        Op::Barrier("together".into(), 2, SHORT),
        Op::Barrier("together".into(), 2, SHORT),
    ];
    for op in ops.iter().filter(|op| queues || op.is_old()) {
        for round in 0..2 {
            if !model.is_ready(op) {
                continue;
            }
            let by: &mut dyn Player = if round == 0 { python } else { rust };
            assert_eq!(by.play(op), model.play(op), "{op:?} by {}", ["PyTorch's client", "our client"][round]);
        }
    }
}

/// Operations drawn from a seed, each by one of the two at random.
fn lock_step(python: &mut Python, rust: &mut Store, seed: u64, takes: impl Fn(&Op) -> bool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut model = Model::default();
    let mut played = 0;
    while played < 1000 {
        let op = Op::draw(&mut rng);
        if !takes(&op) || !model.is_ready(&op) {
            continue;
        }
        let by: &mut dyn Player = if rng.bool() { &mut *python } else { &mut *rust };
        assert_eq!(by.play(&op), model.play(&op), "operation {played} of seed {seed}: {op:?}");
        played += 1;
    }
}

fn server() -> (StoreServer, u16) {
    let address: StoreAddress = "127.0.0.1:0".parse().expect("an address");
    let server = StoreServer::start(ServerOptions::new(address).limits(Limits::default())).expect("a free port");
    let port = server.address().port().expect("a TCP address");
    (server, port)
}

fn client(port: u16) -> Store {
    let address: StoreAddress = format!("127.0.0.1:{port}").parse().expect("an address");
    let home = TcpStore::connect(ClientOptions::new(address).timeout(Duration::from_secs(20))).expect("a server");
    Store::new(home).with_timeout(Duration::from_secs(20))
}
