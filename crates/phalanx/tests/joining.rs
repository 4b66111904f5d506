//! Worlds joined as users join them: by the environment and by URLs, as threads and as processes.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use phalanx::store::{Limits, LocalStore, ServerOptions, StoreServer};
use phalanx::{Error, JobKey, JobName, Joining, Launcher, Placement, ReduceOp, Result, Store, Wiring, World};

const LONG: Duration = Duration::from_secs(60);

/// A directory of a test's own, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        let directory = std::env::temp_dir().join(format!("phalanx-{}", unique("joining")));
        fs::create_dir(&directory).unwrap();
        Directory(directory)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name that no other test, and no other run, has.
fn unique(what: &str) -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    format!("{what}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Has every rank of `size` do `rank` on a thread of its own; what each returns, in rank order.
fn ranks<R: Send>(size: usize, rank: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let rank = &rank;
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size).map(|number| scope.spawn(move || rank(number))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// `NAME=value` pairs, parted by spaces.
fn placed(variables: &str) -> Result<Joining> {
    let lookup = |name: &str| {
        let mut pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.find(|(other, _)| *other == name).map(|(_, value)| value.to_owned())
    };
    Joining::placed(Placement::from_lookup(&lookup)?)
}

fn meet(joining: Result<Joining>, rank: usize, size: usize) {
    let world = joining.and_then(Joining::join).unwrap();
    assert_eq!((world.rank(), world.size(), world.local_rank(), world.nodes()), (rank, size, rank, 1));
    world.store().set(&format!("from {rank}"), "hello").unwrap();
    let greeting = |from: usize| world.store().with_timeout(LONG).get(&format!("from {from}"));
    assert!((0..size).all(|from| greeting(from).is_ok()));
    world.leave(LONG).unwrap();
}

fn missing(error: &Error) -> &[usize] {
    if let Error::Setup(setup) = error { &setup.missing } else { panic!("{error}") }
}

#[test]
fn ranks_of_one_host_meet_without_being_told_where() {
    let job = unique("mpirun");
    ranks(4, |rank| {
        let joining = placed(&format!(
            "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK={rank} \
             OMPI_COMM_WORLD_LOCAL_SIZE=4 PHALANX_JOB={job}"
        ));
        assert_eq!(joining.as_ref().unwrap().launcher(), Some(Launcher::OpenMpi));
        meet(joining, rank, 4);
    });
}

#[test]
fn rank_0_serves_the_store_of_a_url() {
    let directory = Directory::new();
    let socket = directory.0.join("store");
    ranks(3, |rank| meet(Joining::url(&format!("unix://{}?rank={rank}&world_size=3", socket.display())), rank, 3));
}

#[test]
fn ranks_meet_in_a_file() {
    let directory = Directory::new();
    let file = directory.0.join("store");
    // It may have served earlier starts, of as many ranks or not.
    for size in [3, 3, 2] {
        let url = |rank| format!("file://{}?rank={rank}&world_size={size}", file.display());
        ranks(size, |rank| meet(Joining::url(&url(rank)), rank, size));
    }
}

#[test]
fn ranks_meet_at_a_launchers_store_with_its_key() {
    let (directory, key) = (Directory::new(), JobKey::mint().unwrap());
    let file = directory.0.join("key");
    key.write_file(&file).unwrap();
    let server = StoreServer::start(ServerOptions::new("127.0.0.1:0".parse().unwrap()).key(key).epoch(4)).unwrap();
    let (address, key) = (server.address(), file.display());
    ranks(2, |rank| {
        let joining = placed(&format!(
            "RANK={rank} WORLD_SIZE=2 PHALANX_STORE={address} PHALANX_KEY_FILE={key} PHALANX_EPOCH=4 PHALANX_JOB=a"
        ));
        meet(joining, rank, 2);
    });
    let url = format!("tcp://{address}?rank=0&world_size=1&host=false&epoch=5&job=b&key_file={key}");
    // Another epoch, as a launcher begins one: who left the old one may still end a request to the store.
    server.advance(5, 0);
    meet(Joining::url(&url), 0, 1);
}

#[test]
fn a_port_that_another_program_has_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let joining = placed(&format!("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}")).unwrap();
    let error = joining.join().unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
}

#[test]
fn beyond_this_machine_a_key_is_needed() {
    let error = placed("RANK=0 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT=0").and_then(Joining::join).unwrap_err();
    assert!(error.to_string().contains("insecure"), "{error}");
}

#[test]
fn a_key_that_is_none_is_named_by_its_variable() {
    let short = "5a".repeat(31);
    for (variable, said) in [
        (format!("PHALANX_KEY={short}"), "PHALANX_KEY: job key has 62 of 64 digits, must be 64 hexadecimal digits"),
        ("PHALANX_KEY_FILE=/proc/none".into(), "PHALANX_KEY_FILE: key file /proc/none: No such file or directory"),
    ] {
        let error = placed(&format!("RANK=0 WORLD_SIZE=1 PHALANX_STORE=h:1 {variable}")).unwrap_err().to_string();
        assert!(error.starts_with(said) && !error.contains(&short), "{error}");
    }
}

#[test]
fn all_who_came_name_the_missing_rank() {
    let directory = Directory::new();
    let url = format!("unix://{}?world_size=4", directory.0.join("store").display());
    let ends = ranks(4, |rank| {
        let timeout = if rank == 1 { Duration::from_millis(700) } else { LONG };
        (rank != 2).then(|| Joining::url(&format!("{url}&rank={rank}")).unwrap().timeout(timeout).join().map(drop))
    });
    let errors: Vec<Error> = ends.into_iter().flatten().map(Result::unwrap_err).collect();
    assert!(errors.iter().all(|error| missing(error) == [2] && *error == errors[0]), "{errors:?}");
}

#[test]
fn a_world_whose_rank_0_does_not_come_says_so() {
    let directory = Directory::new();
    let url = format!("unix://{}?world_size=2&rank=1", directory.0.join("store").display());
    let error = Joining::url(&url).unwrap().timeout(Duration::from_millis(200)).join().unwrap_err();
    assert_eq!(missing(&error), [0], "{error}");

    let alone = format!("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 PHALANX_JOB={}", unique("alone"));
    let error = placed(&alone).unwrap().timeout(Duration::from_millis(50)).join().unwrap_err();
    assert_eq!(missing(&error), [0], "{error}");
}

#[test]
fn a_rank_outside_the_world_is_refused() {
    let error = Joining::url("tcp://127.0.0.1:1?rank=2&world_size=2").unwrap().join().unwrap_err();
    assert_eq!(error.to_string(), "rank: 2 is not below the world size 2");
    let error = Joining::url("tcp://127.0.0.1:1?rank=0").unwrap_err().to_string();
    assert!(error.ends_with("world_size is not said"), "{error}");
}

#[test]
fn a_world_beyond_any_machine_is_refused() {
    let directory = Directory::new();
    let place = format!("file://{}?rank=0&world_size=1000000000000", directory.0.join("store").display());
    let error = phalanx::join(&place).unwrap_err().to_string();
    assert_eq!(error, "group size: 1000000000000 is above the limit of 1048576");
}

/// What the processes below do; as a test of its own it has nothing to join.
#[test]
fn process() {
    if std::env::var_os("PHALANX_TEST_PROCESS").is_some() {
        if let Some(url) = std::env::var_os("PHALANX_TEST_NEWCOMER") {
            Joining::newcomer(url.to_str().unwrap()).and_then(Joining::join).unwrap();
        }
        if let Some(url) = std::env::var_os("PHALANX_TEST_RETRY") {
            let error = phalanx::join(url.to_str().unwrap()).unwrap_err();
            assert_eq!(missing(&error), [0], "{error}");
            assert!(fs::exists(std::env::var_os("PHALANX_ERROR_FILE").unwrap()).unwrap(), "a report is left");
        }
        let world: World = phalanx::init().unwrap();
        world.barrier("here", LONG).unwrap();
        if std::env::var_os("PHALANX_TEST_PANIC").is_some() {
            let group = world.group().unwrap();
            assert!(world.rank() == 0, "this rank panics");
            group.barrier().unwrap();
        }
        world.leave(LONG).unwrap();
    }
}

/// Starts this program as a rank with nothing but `variables`.
fn start(variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process", "--nocapture"]).env_clear().env("PHALANX_TEST_PROCESS", "1");
    command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].concat().iter().map(|&byte| char::from(byte)).collect()
}

#[test]
fn processes_of_one_parent_meet_without_a_name() {
    let processes = ["0", "1", "2"].map(|rank| {
        start(&[("PMI_RANK", rank), ("PMI_SIZE", "3"), ("MPI_LOCALNRANKS", "3"), ("MPI_LOCALRANKID", rank)])
    });
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn a_process_that_cannot_join_leaves_a_report() {
    let directory = Directory::new();
    let (report, socket) = (directory.0.join("error.json"), directory.0.join("socket"));
    let (report, store) = (report.to_str().unwrap(), format!("unix:{}", socket.display()));
    let _server = StoreServer::start(ServerOptions::new(store.parse().unwrap())).unwrap();
    let told = |variables: &[(&str, &str)], file: &str| {
        let output = start(&[variables, &[(file, report)]].concat()).wait_with_output().unwrap();
        assert!(!output.status.success(), "{}", text(&output));
        let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
        (
            report["message"]["message"].to_string(),
            report["missing"].clone(),
            report["message"]["extraInfo"]["rank"].clone(),
        )
    };
    let alone = [("RANK", "1"), ("WORLD_SIZE", "3"), ("PHALANX_STORE", &store), ("PHALANX_JOIN_TIMEOUT", "1")];
    let (message, missing, rank) = told(&alone, "TORCHELASTIC_ERROR_FILE");
    assert!(message.contains("ranks 0, 2 of 3 did not come"), "{message}");
    assert_eq!((missing, rank), (serde_json::json!([0, 2]), serde_json::json!(1)));

    let nobody = format!("unix://{}?timeout=0.5", socket.display());
    let (message, _, rank) = told(&[("PHALANX_TEST_NEWCOMER", &nobody)], "PHALANX_ERROR_FILE");
    assert!(message.contains("the world of job default did not change within 500ms"), "{message}");
    assert_eq!(rank, serde_json::Value::Null);

    let (message, missing, _) = told(&[("RANK", "first")], "PHALANX_ERROR_FILE");
    assert!(message.contains("RANK is \\\"first\\\", must be a whole number"), "{message}");
    assert_eq!(missing, serde_json::json!([]));

    let nowhere = [("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("MPI_LOCALNRANKS", "1"), ("PHALANX_TRACE_DIR", "/proc/x")];
    let (message, _, _) = told(&nowhere, "PHALANX_ERROR_FILE");
    assert!(message.contains("environment: PHALANX_TRACE_DIR is \\\"/proc/x\\\", cannot be written: "), "{message}");
}

/// The launcher would tell it as why the rank ended, however much later that is.
#[test]
fn a_process_that_joins_after_all_takes_its_report_back() {
    let directory = Directory::new();
    let (report, nobody) = (directory.0.join("error.json"), directory.0.join("nobody"));
    let nobody = format!("unix://{}?rank=1&world_size=2&timeout=0.1", nobody.display());
    let joins = |variables: &[(&str, &str)]| {
        let alone = [("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("MPI_LOCALNRANKS", "1"), ("MPI_LOCALRANKID", "0")];
        let asked = [("PHALANX_ERROR_FILE", report.to_str().unwrap())];
        let output = start(&[variables, &alone, &asked].concat()).wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    };
    joins(&[("PHALANX_TEST_RETRY", &nobody)]);
    assert!(!fs::exists(&report).unwrap(), "its join has succeeded");
    fs::write(&report, "another's").unwrap();
    joins(&[]);
    assert_eq!(fs::read_to_string(&report).unwrap(), "another's");
}

/// What a launcher judges by: who panics is known to the others before its process has ended, and may well end after them.
#[test]
fn a_process_whose_group_fails_leaves_because_of_whom() {
    let directory = Directory::new();
    let reports = [0, 1].map(|rank| directory.0.join(format!("{rank}.json")).to_str().unwrap().to_owned());
    let processes = [0, 1].map(|rank: usize| {
        let (number, report) = (rank.to_string(), reports[rank].as_str());
        let pmi = [("PMI_RANK", number.as_str()), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
        let asked = [("MPI_LOCALRANKID", number.as_str()), ("PHALANX_ERROR_FILE", report), ("PHALANX_TEST_PANIC", "1")];
        start(&[&pmi[..], &asked].concat())
    });
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(!output.status.success(), "{}", text(&output));
    }
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&reports[0]).unwrap()).unwrap();
    assert_eq!((&report["accused"], &report["gone"]), (&serde_json::json!([1]), &serde_json::json!(true)));
    let failure = report["failure"].as_str().unwrap();
    assert!(failure.contains("rank 1 is dead: its thread panicked"), "{failure}");
    assert!(!fs::exists(&reports[1]).unwrap(), "nobody else is to blame for its own end");
}

/// A world on a store of the program's own is seen as any other is.
#[test]
fn a_store_that_the_program_has_is_where_ranks_meet() {
    let (store, job) = (Store::new(LocalStore::new(Limits::default())), unique("given"));
    let met = Barrier::new(2);
    ranks(2, |rank| {
        let joining = Joining::store(store.clone(), rank, 2).job(JobName::new(&job).unwrap()).epoch(3);
        let world = joining.timeout(LONG).join().unwrap();
        assert_eq!((world.rank(), world.size(), world.epoch()), (rank, 2, 3));
        let neighbours = phalanx::neighbours(LONG).unwrap();
        assert!(neighbours.iter().any(|one| one.job == job && one.rank == rank), "{neighbours:?}");
        met.wait();
    });
    let refused = Joining::store(store, 2, 2).join().unwrap_err();
    assert_eq!(refused.to_string(), "rank: 2 is not below the world size 2");
}

/// As the example `survivors` goes on where its group cannot be formed.
#[test]
fn a_rank_that_is_lost_while_a_group_is_formed_is_left_behind() {
    let directory = Directory::new();
    let place = format!("file://{}?world_size=3", directory.0.join("store").display());
    ranks(3, |rank| {
        let world = phalanx::join(&format!("{place}&rank={rank}")).unwrap();
        if rank == 1 {
            return;
        }
        let error = world.wire(&Wiring::default().timeout(Duration::from_millis(700))).unwrap_err();
        assert_eq!(error.culprits(), [1], "{error}");
        let (world, mut sum) = (world.reconfigure(&error.culprits(), LONG).unwrap(), [1.0_f32]);
        world.group().unwrap().all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!((world.size(), sum), (2, [2.0]));
    });
}

/// A rank that is stopped says nothing: it is known by what stands on its door, which is to be its number of now.
#[test]
fn a_rank_is_seen_under_its_number_after_a_change() {
    let (directory, job) = (Directory::new(), unique("renamed"));
    let place = format!("file://{}?world_size=3&job={job}", directory.0.join("store").display());
    let seen = Barrier::new(2);
    ranks(3, |rank| {
        let world = phalanx::join(&format!("{place}&rank={rank}")).unwrap();
        if rank == 0 {
            return;
        }
        let world = world.reconfigure(&[0], LONG).unwrap();
        let is_one_of_two = |expected: usize| {
            let all = phalanx::neighbours(LONG).unwrap();
            let own: Vec<_> = all.iter().filter(|neighbour| neighbour.job == job).collect();
            own.len() == 2 && own.iter().any(|own| (own.rank, own.world_size) == (expected, 2))
        };
        let until = Instant::now() + LONG;
        while !is_one_of_two(world.rank()) {
            assert!(Instant::now() < until, "{:?}", phalanx::neighbours(LONG));
            thread::yield_now();
        }
        seen.wait();
    });
}

/// A world of one takes in a second process, which is told only where the store is.
#[test]
fn a_newcomer_joins_a_world_that_works() {
    let directory = Directory::new();
    let place = format!("file://{}", directory.0.join("store").display());
    let first = phalanx::join(&format!("{place}?rank=0&world_size=1")).expect("alone");
    std::thread::scope(|scope| {
        let newcomer = scope.spawn(|| Joining::newcomer(&place).and_then(Joining::join).expect("taken in"));
        while first.waiting().expect("a store") == 0 {
            std::thread::yield_now();
        }
        let first = first.reconfigure(&[], LONG).expect("both are there");
        let second = newcomer.join().expect("no panic");
        assert_eq!([first.rank(), second.rank(), first.size(), second.survivors()], [0, 1, 2, 1]);
    });
    for (wrong, told) in [
        (format!("{place}?rank=1"), "a newcomer gets its rank from the world"),
        ("env://".to_owned(), "a newcomer is told where the store is"),
    ] {
        let error = Joining::newcomer(&wrong).expect_err("wrong").to_string();
        assert!(error.ends_with(told), "{error}");
    }
}
