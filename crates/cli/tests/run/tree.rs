//! Nothing is left, whoever is killed and however.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::job::{Job, Running, kill, until};

/// A job of two ranks, each of which has a child, a daemon that left its session, and a stubborn one.
fn family() -> Running {
    let mut running = Job::new().start(2, &["--grace", "1000"], FAMILY);
    running.lines(2);
    running
}

const FAMILY: &str = "sleep 1000 &
    setsid sh -c 'sleep 1000 & exec sleep 1000' &
    sh -c 'trap \"\" TERM INT HUP; exec sleep 1000' &
    echo ready; wait";

#[test]
fn killing_the_guard_ends_everything() {
    let mut running = family();
    kill(running.guard(), Signal::KILL);
    running.child.wait().unwrap();
    running.job.assert_nothing_left();
}

#[test]
fn what_a_script_started_before_it_became_the_guard_is_spared() {
    let job = Job::new();
    let run = "sh -c 'sleep 1000 & exec sleep 1000' > /dev/null 2>&1 & echo $!
        exec \"$PHALANX\" run --nproc-per-node 1 sh -c 'setsid sleep 2000 > /dev/null 2>&1 & exit 0'";
    let output = job.marked("sh").args(["-c", run]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let left = spared(&job, &["sleep 1000"; 2]);
    assert!(left.iter().any(|pid| output.stdout == format!("{pid}\n").into_bytes()), "{left:?}");
    left.into_iter().for_each(|pid| kill(pid, Signal::KILL));
    job.assert_nothing_left();
}

#[test]
fn what_such_a_process_leaves_behind_is_spared_too() {
    let job = Job::new();
    // The subshell ends during the job, and what it leaves becomes a child of the guard.
    let run = "(until [ -e $TMPDIR/go ]; do sleep 0.01; done; sleep 1000 > /dev/null 2>&1 &) & export LEAVES=$!
        exec \"$PHALANX\" run --nproc-per-node 1 sh -c ': > $TMPDIR/go
            while [ -e /proc/$LEAVES ]; do sleep 0.01; done; rm $TMPDIR/go; setsid sleep 2000 > /dev/null 2>&1 &'";
    let output = job.marked("sh").args(["-c", run]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    spared(&job, &["sleep 1000"]).into_iter().for_each(|pid| kill(pid, Signal::KILL));
    job.assert_nothing_left();
}

/// A script whose process goes on during the job, while a child of that ends and leaves one behind: the guard hears of neither.
fn left_in_silence(then: &str) -> String {
    format!(
        "export GUARD=$$
        ((until [ -e $TMPDIR/go ]; do sleep 0.01; done; sleep 1000 & echo $! > $TMPDIR/left) & exec sleep 1000) \
            > /dev/null 2>&1 &
        exec \"$PHALANX\" run --nproc-per-node 1 sh -c ': > $TMPDIR/go
            parent() {{ cut -d \" \" -f 4 /proc/$(cat $TMPDIR/left)/stat; }}
            until [ \"$(parent)\" = $GUARD ]; do sleep 0.01; done 2> /dev/null; rm $TMPDIR/go $TMPDIR/left
            {then}'"
    )
}

#[test]
fn what_the_child_of_such_a_process_leaves_behind_is_spared_too() {
    let job = Job::new();
    let output =
        job.marked("sh").args(["-c", &left_in_silence("setsid sleep 2000 > /dev/null 2>&1 &")]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    spared(&job, &["sleep 1000"; 2]).into_iter().for_each(|pid| kill(pid, Signal::KILL));
    job.assert_nothing_left();
}

#[test]
fn what_others_left_is_spared_though_the_launcher_is_killed() {
    let job = Job::new();
    let mut command = job.marked("sh");
    command.args(["-c", &left_in_silence("echo ready; setsid sleep 2000 & wait")]);
    let mut running = job.spawn(command);
    assert_eq!(running.lines(1), ["[0] ready"]);
    // It looks, and waits again.
    let (guard, before) = (running.guard(), waits(running.guard()));
    until("the guard has looked", || waits(guard) >= before + 2);
    kill(running.launcher(), Signal::KILL);
    let (job, ended) = running.end();
    assert_eq!(ended.code, Some(137), "{}", ended.stderr);
    spared(&job, &["sleep 1000"; 2]).into_iter().for_each(|pid| kill(pid, Signal::KILL));
    job.assert_nothing_left();
}

/// How often the first thread of a process has gone to sleep.
fn waits(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// The processes that are left, which are these commands. What a shell has just forked becomes its command a moment later.
fn spared(job: &Job, expected: &[&str]) -> Vec<i32> {
    until("the expected commands are left", || {
        job.census().iter().map(|(_, command)| command.trim_end()).eq(expected.iter().copied())
    });
    job.census().into_iter().map(|(pid, _)| pid).collect()
}

#[test]
fn nothing_starts_again_once_the_guard_is_killed() {
    // The guard is killed while a rank takes its time to end because another has failed.
    let script = "mkfifo $TMPDIR/ready 2> $TMPDIR/twice || true
        if [ $RANK = 1 ]; then read line < $TMPDIR/ready; rm -f $TMPDIR/ready $TMPDIR/twice; exit 3; fi
        trap 'echo told' TERM; echo ready > $TMPDIR/ready; while :; do sleep 1000 & wait $!; done";
    let mut running = Job::new().start(2, &["--grace", "1000", "--max-restarts", "1000"], script);
    assert_eq!(running.lines(1), ["[0] told"]);
    kill(running.guard(), Signal::KILL);
    running.child.wait().unwrap();
    running.job.assert_nothing_left();
}

#[test]
fn the_death_of_the_guard_is_noticed_where_requests_to_end_are_ignored() {
    let job = Job::new();
    let mut command = job.marked("sh");
    let run = "trap '' TERM; exec \"$PHALANX\" run --nproc-per-node 2 sh -c \"$0\"";
    command.args(["-c", run, FAMILY]);
    let mut running = job.spawn(command);
    running.lines(2);
    kill(running.guard(), Signal::KILL);
    running.child.wait().unwrap();
    running.job.assert_nothing_left();
}

#[test]
fn killing_the_launcher_ends_everything_and_is_told() {
    let running = family();
    kill(running.launcher(), Signal::KILL);
    let (job, ended) = running.end();
    assert_eq!(ended.code, Some(137));
    assert!(ended.verdict().starts_with("phalanx: the launcher was killed by SIGKILL; "), "{}", ended.stderr);
    // The guard ends only after what it has adopted.
    assert_eq!(job.census(), []);
    job.assert_nothing_left();
}

#[test]
fn killing_the_group_of_the_guard_ends_everything() {
    let mut running = family();
    kill(-running.guard(), Signal::KILL);
    running.child.wait().unwrap();
    running.job.assert_nothing_left();
}

#[test]
fn what_ranks_leave_behind_is_ended_with_them() {
    let job = Job::new();
    // The daemon keeps the pipe open and would keep the launcher waiting.
    let ended = job.script(2, &[], "setsid sh -c 'echo daemon; sleep 1000 & exec sleep 1000' & exit 0");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(job.census(), []);
    job.assert_nothing_left();
}

#[test]
fn what_goes_on_without_its_first_thread_is_ended_too() {
    if Command::new("python3").arg("--version").output().is_err() {
        writeln!(io::stderr(), "skipped: no python3 to end the first thread of").unwrap();
        return;
    }
    let job = Job::new();
    let script = r#"setsid python3 -c '
import ctypes, threading, time
threading.Thread(target=time.sleep, args=[1000]).start()
ctypes.CDLL(None).pthread_exit(None)' &
        until grep -q "^State:.Z" /proc/$!/status; do sleep 0.01; done; echo $!"#;
    let ended = job.script(1, &[], script);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let left = ended.stdout.trim_end().strip_prefix("[0] ").unwrap();
    assert!(!Path::new("/proc").join(left).exists());
    job.assert_nothing_left();
}

#[test]
fn a_failed_rank_takes_all_families_with_it() {
    let job = Job::new();
    let script = "setsid sleep 1000 & [ $RANK = 0 ] && exit 3; sh -c 'trap \"\" TERM; exec sleep 1000' & wait";
    let ended = job.script(3, &[], script);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert_eq!(job.census(), []);
    job.assert_nothing_left();
}

#[test]
fn orphans_of_running_ranks_are_reaped() {
    let job = Job::new();
    // The orphan's new parent is the launcher, which must take note of its end: a zombie would keep its number.
    let script = "sh -c 'sh -c \"exit 0\" & echo $! > $TMPDIR/orphan.$RANK'
        while [ -e /proc/$(cat $TMPDIR/orphan.$RANK) ]; do sleep 0.01; done; rm $TMPDIR/orphan.$RANK";
    let ended = job.script(2, &[], script);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    job.assert_nothing_left();
}
