//! `phalanx trace collect`: ranks of which one is stopped are asked for what they remember, on their host and over their store.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use phalanx::{JobName, Store};
use phalanx_comm::rendezvous::service_keys;
use phalanx_comm::secure::{Claim, Session};
use phalanx_comm::store::{ClientOptions, ServerOptions, StoreAddress, StoreServer, TcpStore};
use phalanx_trace::{Dump, files};

use super::ranks::Ranks;
use super::scratch::Scratch;
use super::{LONG, all_work, until};

fn collect(into: impl AsRef<OsStr>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
    command.args(["trace", "collect", "--output"]).arg(into).args(arguments).output().expect("phalanx runs")
}

pub(super) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The ranks that have a dump in a directory, and how many there are in their world.
pub(super) fn dumped(directory: &Path) -> Vec<(usize, Option<usize>)> {
    let dumps = files::read_directory(directory).expect("dumps").dumps;
    dumps.iter().map(|dump| (dump.rank, dump.world_size)).collect()
}

/// What is told of four ranks, one of which is held while the others wait for it.
fn look(job: &Ranks, address: &[&str]) {
    let scratch = Scratch::new(&format!("collect-{}", job.name));
    let (all, rest) = (scratch.0.join("all"), scratch.0.join("rest"));
    let named = [address, &["--job-id", &job.name]].concat();
    let output = collect(&all, &[&named[..], &["--timeout", "60"]].concat());
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(dumped(&all), [0, 1, 2, 3].map(|rank| (rank, Some(4))));
    let again = collect(&all, &named);
    assert_eq!(again.status.code(), Some(2), "older dumps are not mixed with newer ones");
    assert!(errors(&again).contains("there are dumps already"), "{}", errors(&again));

    let held = job.hold(1);
    let output = collect(&rest, &[&named[..], &["--timeout", "5"]].concat());
    drop(held);
    assert!(output.status.success(), "{}", errors(&output));
    assert!(errors(&output).contains("no answer within 5 s from rank 1\n"), "{}", errors(&output));
    assert_eq!(dumped(&rest), [0, 2, 3].map(|rank| (rank, Some(4))));
    // They hang in an operation that rank 1 has not come to.
    let dumps = files::read_directory(&rest).expect("dumps").dumps;
    let waits = |dump: &Dump| dump.entries.last().is_some_and(|entry| entry.ended_ns.is_none());
    assert!(dumps.iter().all(waits), "{dumps:?}");
}

#[test]
fn ranks_of_this_host_are_asked_without_an_address() {
    let job = Ranks::start("collect-host", 4);
    until("all work", &job.name, all_work);
    look(&job, &[]);
    let output = collect(Scratch::new("collect-nobody").path(), &["--job-id", "nobody-has-this-name"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("there is no rank that this user may ask"), "{}", errors(&output));
}

#[test]
fn jobs_of_one_name_on_a_host_are_not_mixed() {
    let scratch = Scratch::new("collect-twins");
    let start = |which: &str| {
        let place = format!("file://{}?timeout=300", scratch.0.join(which).display());
        let mut job = Ranks::start_at("collect-twins", 2, &place, &[]);
        job.wait_until_joined();
        job
    };
    let jobs = [start("one"), start("other")];
    let both = collect(scratch.0.join("both"), &["--job-id", &jobs[0].name]);
    assert_eq!(both.status.code(), Some(1));
    assert!(errors(&both).contains("they are of 2 jobs of the name"), "{}", errors(&both));
    for (number, job) in jobs.iter().enumerate() {
        let (into, pid) = (scratch.0.join(number.to_string()), job.pids()[1].to_string());
        let output = collect(&into, &["--pid", &pid]);
        assert!(output.status.success(), "{}", errors(&output));
        let dumps = files::read_directory(&into).expect("dumps").dumps;
        assert_eq!(dumps.iter().filter_map(|dump| dump.pid).collect::<Vec<_>>(), job.pids());
    }
}

#[test]
fn ranks_are_asked_over_their_store() {
    let name = Ranks::name("collect-store");
    let job = JobName::new(&name).expect("a name");
    let claim = Claim::new(job.clone(), 0, Session::mint().expect("random bytes"));
    let options = ServerOptions::new(StoreAddress::tcp("127.0.0.1", 0)).job(job.clone()).world(4);
    let server = StoreServer::start(options).expect("a store");
    let address = server.address().to_string();
    // Nobody has joined yet.
    let empty = collect(Scratch::new("collect-empty").path(), &[&address, "--job-id", &name, "--timeout", "30"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(errors(&empty).contains("no rank of it can be asked"), "{}", errors(&empty));
    // The ranks of this host are not to be seen by others than those who have the store.
    let mut ranks =
        Ranks::start_at("collect-store", 4, &format!("tcp://{address}?host=false"), &[("PHALANX_TOP", "0")]);
    ranks.wait_until_joined();
    // Rank 0 says how many can be asked soon after it has joined.
    let store = TcpStore::connect(ClientOptions::new(server.address().clone()).claim(claim)).map(Store::new);
    let keys = service_keys(&store.expect("the store").with_timeout(LONG), &job, 0, "traces");
    assert_eq!(keys.get("size").expect("rank 0 says it"), b"4");
    look(&ranks, &[&address]);
}
