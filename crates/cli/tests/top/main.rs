//! `phalanx top` as a user meets it at night: four ranks that work, one that is stopped, one that is killed.

mod collected;
mod elsewhere;
mod ranks;
#[path = "../built/scratch.rs"]
mod scratch;
mod terminal;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ranks::Ranks;
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(60);

fn top(arguments: &[&str]) -> String {
    let phalanx = env!("CARGO_BIN_EXE_phalanx");
    let Output { status, stdout, stderr } =
        Command::new(phalanx).arg("top").args(arguments).output().expect("phalanx runs");
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// What is shown of a job, as JSON.
fn shown(job: &str) -> Value {
    serde_json::from_str(&top(&["--json", "--interval", "0.1", "--job-id", job])).expect("JSON")
}

/// Looks until it is so; what was shown then.
fn until(what: &str, job: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let shown = shown(job);
        if is_so(&shown) {
            return shown;
        }
        assert!(began.elapsed() < LONG, "{what}: {shown:#}");
    }
}

fn ranks(shown: &Value) -> Vec<&Value> {
    shown["ranks"].as_array().expect("ranks").iter().collect()
}

/// Whether four ranks answer, each of which ends operations.
fn all_work(shown: &Value) -> bool {
    let works =
        |rank: &&Value| rank["groups"][0]["pace"]["operations_per_second"].as_f64().is_some_and(|pace| pace > 0.0);
    ranks(shown).into_iter().filter(works).count() == 4
}

/// Whom the others wait for.
fn waited_for(shown: &Value) -> Option<&Value> {
    shown["findings"].as_array().expect("findings").iter().find(|finding| finding["finding"] == "waited_for")
}

/// Those to blame in the findings of a kind.
fn culprits<'a>(shown: &'a Value, finding: &str) -> Vec<&'a Value> {
    let all = shown["findings"].as_array().expect("findings").iter();
    all.filter(|found| found["finding"] == finding).map(|found| &found["culprits"]).collect()
}

/// Looks until the table is so.
fn until_table(job: &str, is_so: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let table = top(&["--once", "--interval", "0.1", "--job-id", job]);
        if is_so(&table) {
            return table;
        }
        assert!(began.elapsed() < LONG, "{table}");
    }
}

#[test]
fn a_rank_that_does_not_run_is_named() {
    let job = Ranks::start("stopped", 4);
    let name = job.name.clone();
    let seen = until("all work", &name, all_work);
    let numbers: Vec<&Value> = ranks(&seen).iter().map(|rank| &rank["rank"]).collect();
    assert_eq!(numbers, [&json!(0), &json!(1), &json!(2), &json!(3)]);
    for (rank, pid) in ranks(&seen).iter().zip(job.pids()) {
        assert_eq!((&rank["world_size"], &rank["pid"], &rank["answers"]), (&json!(4), &json!(pid), &json!(true)));
        let share = rank["groups"][0]["pace"]["in_operations"].as_f64().expect("a share");
        assert!((0.0..=1.0).contains(&share), "{share}");
    }

    let held = job.hold(2);
    // On a busy machine others may be late to answer too, but not for long.
    let seen = until("rank 2 alone is silent, and waited for", &name, |seen| {
        waited_for(seen).is_some() && culprits(seen, "silent") == [&json!([2])]
    });
    assert_eq!(waited_for(&seen).expect("found")["culprits"], json!([2]));
    assert_eq!(
        (&ranks(&seen)[2]["answers"], &ranks(&seen)[2]["process"]),
        (&json!(false), &json!("stopped by a debugger"))
    );

    let silent = format!("job {name}: rank 2 does not answer: process {} is stopped by a debugger\n", job.pids()[2]);
    let table = until_table(&name, |table| table.starts_with(&silent) && table.contains(": waiting for rank 2\n"));
    assert!(table.contains("does not answer: stopped by a debugger\n"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with(&format!("{name}  "))).count(), 4, "{table}");

    drop(held);
    until("all work again", &name, |seen| {
        all_work(seen) && waited_for(seen).is_none() && culprits(seen, "silent").is_empty()
    });
}

#[test]
fn a_rank_that_is_killed_is_gone_and_leaves_nothing() {
    let mut job = Ranks::start("killed", 4);
    let name = job.name.clone();
    until("all work", &name, all_work);
    job.kill(3);
    assert!(ranks(&shown(&name)).iter().all(|rank| rank["rank"] != json!(3)));
    // The others are told, and end.
    let told = job.failures();
    assert!(told.len() == 3 && told.iter().all(|line| line.contains("rank 3 is dead")), "{told:?}");
    let table = top(&["--once", "--interval", "0.1", "--job-id", &name]);
    assert!(table.starts_with(&format!("no ranks of job {name} of this user on this host")), "{table}");
}

#[test]
fn a_rank_answers_prometheus_where_it_says() {
    let job = Ranks::start("metrics", 4);
    let seen = until("all work", &job.name, all_work);
    for (number, rank) in ranks(&seen).iter().enumerate() {
        let address: SocketAddr = rank["metrics"].as_str().expect("an address").parse().expect("an address");
        let mut stream = TcpStream::connect(address).expect("somebody there");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("heard");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let line =
            format!("phalanx_operations_total{{rank=\"{number}\",group=\"world\",number=\"0\",kind=\"all_reduce\"}} ");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(&line), "{answer}");
    }
}

#[test]
fn who_does_not_want_to_be_seen_is_not() {
    let mut hidden = Ranks::start_with("hidden", 1, &[("PHALANX_TOP", "0")]);
    hidden.wait_until_joined();
    let shown = Ranks::start("shown", 1);
    until("it is there", &shown.name, |seen| ranks(seen).len() == 1);
    let table = top(&["--once", "--interval", "0.1", "--job-id", &hidden.name]);
    let nobody = format!("no ranks of job {} of this user on this host; there are some of ", hidden.name);
    assert!(table.starts_with(&nobody) && table.contains(&shown.name), "{table}");
}

#[test]
fn a_wrong_address_is_refused_before_the_ranks_meet() {
    let mut wrong = Ranks::start_with("wrong", 2, &[("PHALANX_METRICS", "everywhere")]);
    let told = wrong.failures();
    assert_eq!(told.len(), 2);
    for line in told {
        assert!(
            line.contains("environment: PHALANX_METRICS is \"everywhere\", must be a port, or an address"),
            "{line}"
        );
    }
}
