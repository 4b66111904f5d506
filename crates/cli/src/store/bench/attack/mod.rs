//! Strangers by the hundred thousand before a server with a job key, and what a member of the job notices of them.

mod attempt;
mod kind;
mod member;
mod report;
mod strangers;
mod tally;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::JobKey;
use rustix::process::{getpriority_process, setpriority_process};
use serde_json::{Value, json};

use super::handover::hand_over;
use super::server::Server;
use super::{progress_bar, system};
use crate::burden::Burden;
use crate::failure::{Failure, printed};
use crate::open_files;
use crate::tied::{Process, tied_ourselves};
use member::{Latencies, Member};
use strangers::Strangers;
use tally::Tally;

/// What was seen.
#[derive(Debug)]
struct Siege {
    idle: Latencies,
    attacked: Latencies,
    tally: Tally,
    /// How long it took.
    elapsed: Duration,
    before: Burden,
    after: Burden,
}

/// Measures a member alone, then among strangers; finds fault when anything was given away, or not let go.
pub(super) fn run(tries: u32, json: bool) -> Result<(), Failure> {
    open_files::check("--attack", strangers::AT_ONCE.iter().sum())?;
    let key = JobKey::mint().map_err(system("job key"))?;
    let epoch = attempt::EPOCH.to_string();
    let mut server = Server::phalanx(Some(&key), &["--epoch", &epoch])?;
    let mut member = Member::join(server.address(), &key)?;
    let calls_alone = u64::from(tries / 5).clamp(FEWEST_CALLS, MOST_CALLS);
    let idle = member.work(|calls| calls < calls_alone)?;
    let before = server.burden()?;
    let began = Instant::now();
    let (tally, attacked) = attack(tries, &server, &key, &mut member)?;
    let elapsed = began.elapsed();
    let after = settle(&mut server, before.descriptors)?;
    let siege = Siege { idle, attacked, tally, elapsed, before, after };
    printed(report::print(&siege, json))?;
    if report::faults(&siege).is_empty() { Ok(()) } else { Err(Failure::Found) }
}

/// The strangers' process: makes all tries and tells their tally.
pub(super) fn strangers(tries: u32, address: SocketAddr, key_file: &Path) -> Result<(), Failure> {
    let key = JobKey::read_file(key_file).map_err(system("job key"))?;
    let strangers = Strangers::new(tries, address, key)?;
    step_aside()?;
    let say = |value: Value| printed(writeln!(io::stdout().lock(), "{value}"));
    let tally = strangers.run(|done| say(json!({ "done": done })))?;
    say(tally.to_json())
}

/// Strangers elsewhere would not take this machine's processors from those who are measured: this process runs only where
/// nobody else wants to, or where the system has no word for that, with the lowest priority.
fn step_aside() -> Result<(), Failure> {
    let lowest = getpriority_process(None).map_err(system("priority"))?.max(LOWEST_PRIORITY);
    setpriority_process(None, lowest).map_err(system("priority"))?;
    let own = std::process::id().to_string();
    let aside = Command::new("chrt").args(["--all-tasks", "--idle", "--pid", "0", &own]).stdin(Stdio::null()).output();
    if !aside.is_ok_and(|done| done.status.success()) {
        log::warn!("chrt could not make the strangers idle; they have the lowest priority only");
    }
    Ok(())
}

/// Lets the strangers loose while the member works, and ends with them.
fn attack(tries: u32, server: &Server, key: &JobKey, member: &mut Member) -> Result<(Tally, Latencies), Failure> {
    let (tries_text, address) = (tries.to_string(), server.address().to_string());
    let mut command = tied_ourselves(&["store", "bench", "--attack", &tries_text, "--attacker", &address], &[])?;
    hand_over(&mut command, key)?;
    let (teller, lines) = mpsc::channel();
    let _strangers = Process::start(command, move |line| drop(line.map(|line| teller.send(line))))?;
    let progress = progress_bar(tries.into());
    let mut tally = None;
    let latencies = member.work(|_| match lines.try_recv() {
        Ok(line) => {
            let told: Value = serde_json::from_str(&line).unwrap_or_default();
            told["done"].as_u64().into_iter().for_each(|done| progress.set_position(done));
            tally = Tally::from_json(&told);
            tally.is_none()
        }
        Err(TryRecvError::Empty) => true,
        Err(TryRecvError::Disconnected) => false,
    })?;
    progress.finish_and_clear();
    let tally = tally.ok_or_else(|| Failure::Stopped("the strangers ended before their time".to_owned()))?;
    Ok((tally, latencies))
}

/// What the server has left once it let go of all strangers, or has had time enough to.
fn settle(server: &mut Server, descriptors: usize) -> Result<Burden, Failure> {
    let deadline = Instant::now() + SETTLED_WITHIN;
    loop {
        let burden = server.burden()?;
        if burden.descriptors <= descriptors || Instant::now() > deadline {
            return Ok(burden);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// How many calls the member makes alone: as many as matter, but no great deal before few strangers.
const FEWEST_CALLS: u64 = 2_000;
const MOST_CALLS: u64 = 20_000;
const LOWEST_PRIORITY: i32 = 19;
/// By when the server has let go of the last stranger.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);
