//! A server with a key, and what epochs, jobs and ranks decide.

use std::io::Write;

use phalanx_comm::secure::{Claim, ClientHandshake, Denial, JobKey, JobName, Plane, Session};
use phalanx_comm::store::server::Rejection;
use phalanx_comm::store::{StoreAddress, StoreServer};
use phalanx_core::ErrorKind;
use phalanx_core::store::wire::native::Answer;
use phalanx_core::store::{Reply, Request, Value};

use crate::client::{Native, claim, connect, counts, get, is_closed, local, read, set, start, wait};

fn keyed(key: &JobKey) -> StoreServer {
    start(local().key(key.clone()).job(JobName::new("train").unwrap()).world(4))
}

fn join(server: &StoreServer, key: &JobKey, claim: &Claim) -> Result<Native, Denial> {
    Native::join(connect(server), Some(key), claim)
}

#[test]
fn who_proves_the_key_is_served() {
    let key = JobKey::mint().unwrap();
    let server = keyed(&key);
    let mut client = join(&server, &key, &claim(Some(2))).unwrap();
    let long = vec![7; 1 << 20];
    assert_eq!(client.ask(set("k", long.clone())), Ok(Reply::Done));
    let mut other = join(&server, &key, &claim(None)).unwrap();
    assert_eq!(other.ask(get("k")), Ok(Reply::Values(vec![Some(Value::from(long))])));
    let roster = server.roster();
    assert_eq!(roster.len(), 1);
    assert_eq!((roster[0].rank, roster[0].connections), (2, 1));
    assert!(roster[0].peer.starts_with("127.0.0.1:"));
    assert_eq!(server.counts().connections, 2);
}

#[test]
fn who_does_not_prove_it_learns_nothing() {
    let (key, other) = (JobKey::mint().unwrap(), JobKey::mint().unwrap());
    let server = keyed(&key);
    let claim = claim(None);
    // The wrong key: a challenge, and then the end.
    let mut stream = connect(&server);
    let mut wrong = ClientHandshake::new(Some(&other), &claim, Plane::Store);
    stream.write_all(&wrong.start()).unwrap();
    let proof = wrong.receive(&read(&mut stream, 32)).unwrap().1;
    let phalanx_comm::secure::ClientStep::Send(proof) = proof else { panic!("{proof:?}") };
    stream.write_all(&proof).unwrap();
    assert!(is_closed(&mut stream));
    // No key, in our words and in those of PyTorch, and other programs: the end at once.
    let plain = ClientHandshake::new(None, &claim, Plane::Store).start();
    let strangers: [&[u8]; 5] =
        [&plain, b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\n", b"\x00\xce\xf7\x85\x3c", b"\x16\x03\x01"];
    for said in strangers {
        let mut stream = connect(&server);
        stream.write_all(said).unwrap();
        assert!(is_closed(&mut stream), "after {said:?}");
    }
    let counts = counts(&server, |counts| counts.rejected.values().sum::<u64>() == 6);
    assert_eq!([Rejection::Key, Rejection::Mode, Rejection::Garbage].map(|why| counts.rejected(why)), [1, 2, 3]);
    assert_eq!((counts.connections, counts.newcomers), (0, 0));
}

#[test]
fn a_recorded_handshake_is_worth_nothing() {
    let key = JobKey::mint().unwrap();
    let server = keyed(&key);
    let mut handshake = ClientHandshake::new(Some(&key), &claim(Some(1)), Plane::Store);
    let hello = handshake.start();
    let mut stream = connect(&server);
    stream.write_all(&hello).unwrap();
    let step = handshake.receive(&read(&mut stream, 32)).unwrap().1;
    let phalanx_comm::secure::ClientStep::Send(proof) = step else { panic!("{step:?}") };
    let mut replayed = connect(&server);
    replayed.write_all(&[hello, proof].concat()).unwrap();
    read(&mut replayed, 32);
    assert!(is_closed(&mut replayed));
    assert_eq!(counts(&server, |counts| counts.rejected(Rejection::Key) == 1).connections, 0);
    assert!(server.roster().is_empty());
}

#[test]
fn wrong_claims_are_denied_with_the_reason() {
    let key = JobKey::mint().unwrap();
    let server = keyed(&key);
    let session = || Session::mint().unwrap();
    let job = |name: &str| JobName::new(name).unwrap();
    let denied = |claim: Claim| join(&server, &key, &claim).err();
    assert_eq!(denied(Claim::new(job("other"), 0, session())), Some(Denial::WrongJob { job: "train".to_owned() }));
    assert_eq!(denied(Claim::new(job("train"), 7, session())), Some(Denial::WrongEpoch { claimed: 7, current: 0 }));
    let wide = Claim::new(job("train"), 0, session()).member(4, 5).unwrap();
    assert_eq!(denied(wide), Some(Denial::WrongWorld { claimed: 5, current: 4 }));
    let counts = counts(&server, |counts| counts.rejected.len() == 3);
    assert_eq!([Rejection::Job, Rejection::Epoch, Rejection::World].map(|why| counts.rejected(why)), [1, 1, 1]);
}

#[test]
fn a_rank_belongs_to_one_session_for_the_whole_epoch() {
    let key = JobKey::mint().unwrap();
    let server = keyed(&key);
    let (first, second) = (claim(Some(1)), claim(Some(1)));
    let one = join(&server, &key, &first).unwrap();
    let two = join(&server, &key, &first).unwrap();
    assert_eq!(server.roster()[0].connections, 2);
    let by = server.roster()[0].peer.clone();
    let taken = Some(Denial::RankTaken { rank: 1, by });
    assert_eq!(join(&server, &key, &second).err(), taken);
    drop((one, two));
    counts(&server, |counts| counts.connections == 0);
    assert_eq!(server.roster()[0].connections, 0);
    assert_eq!(join(&server, &key, &second).err(), taken);
    join(&server, &key, &first).unwrap();
}

#[test]
fn a_new_epoch_ends_the_old_one_and_keeps_what_is_stored() {
    let key = JobKey::mint().unwrap();
    let server = keyed(&key);
    let old = claim(Some(0));
    let mut client = join(&server, &key, &old).unwrap();
    client.ask(set("k", "v")).unwrap();
    client.say(&wait("never"));
    counts(&server, |counts| counts.waiting == 1);
    server.advance(1, 2);
    assert_eq!((server.counts().waiting, server.counts().connections), (0, 0));
    assert!(is_closed(&mut client.stream));
    assert!(server.roster().is_empty());
    assert_eq!(join(&server, &key, &old).err(), Some(Denial::WrongEpoch { claimed: 0, current: 1 }));
    let new = Claim::new(JobName::new("train").unwrap(), 1, Session::mint().unwrap()).member(0, 2).unwrap();
    let mut client = join(&server, &key, &new).unwrap();
    assert_eq!(client.ask(get("k")), Ok(Reply::Values(vec![Some(Value::from(b"v".to_vec()))])));
}

#[test]
fn a_wait_can_be_cancelled_and_nothing_else_said_meanwhile() {
    let server = start(local());
    let mut client = Native::join(connect(&server), None, &claim(None)).unwrap();
    client.say(&Request::Pop { key: "q".into(), wait: true });
    counts(&server, |counts| counts.waiting == 1);
    client.cancel();
    assert_eq!(client.answer(), Answer::Cancelled);
    client.cancel();
    assert_eq!(client.answer(), Answer::Cancelled);
    let pushed = client.ask(Request::Push { key: "q".into(), value: b"kept".to_vec().into() });
    assert_eq!(pushed, Ok(Reply::Done));
    let popped = client.ask(Request::Pop { key: "q".into(), wait: true });
    assert_eq!(popped, Ok(Reply::Values(vec![Some(Value::from(b"kept".to_vec()))])));
    client.say(&wait("never"));
    client.say(&Request::Ping);
    assert!(is_closed(&mut client.stream));
    assert_eq!(counts(&server, |counts| counts.connections == 0).waiting, 0);
}

#[test]
fn a_changed_record_ends_the_connection() {
    let key = JobKey::mint().unwrap();
    let server = keyed(&key);
    let mut client = join(&server, &key, &claim(None)).unwrap();
    client.ask(Request::Ping).unwrap();
    client.stream.write_all(&[20, 0]).unwrap();
    client.stream.write_all(&[0; 20]).unwrap();
    assert!(is_closed(&mut client.stream));
    counts(&server, |counts| counts.rejected(Rejection::Breach) == 1);
}

#[test]
fn without_a_key_only_this_machine_unless_told() {
    let open = || phalanx_comm::store::ServerOptions::new(StoreAddress::tcp("0.0.0.0", 0));
    let refused = StoreServer::start(open()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Setup);
    assert!(refused.to_string().contains("0.0.0.0") && refused.to_string().contains("insecure"), "{refused}");
    start(open().insecure(true));
    start(open().key(JobKey::mint().unwrap()));
}
