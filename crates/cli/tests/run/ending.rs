//! How a job ends: exit codes, the verdict, the grace, restarts, signals.

use std::thread;

use nix::sys::signal::{SIGCHLD, SIGTERM, SIGUSR1, SigSet};
use rustix::process::Signal;

use crate::job::{Job, kill, until};

/// Runs a script on four ranks that is to fail, and checks that nothing is left.
fn verdict(flags: &[&str], script: &str) -> (String, String) {
    let job = Job::new();
    let ended = job.script(4, flags, script);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    job.assert_nothing_left();
    (ended.verdict().to_owned(), ended.stderr)
}

#[test]
fn ranks_that_end_well_are_a_success() {
    let job = Job::new();
    let ended = job.script(3, &[], "exit 0");
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
    job.assert_nothing_left();
}

#[test]
fn an_exit_code_is_told_with_the_last_lines() {
    let (verdict, stderr) =
        verdict(&[], "[ $RANK = 2 ] || exec sleep 1000; echo first >&2; echo last words >&2; exit 3");
    assert!(verdict.starts_with("phalanx: rank 2 failed: exit code 3 after "), "{verdict}");
    assert!(verdict.contains(", epoch 0)"), "{verdict}");
    assert!(verdict.ends_with("; 3 other ranks were stopped"), "{verdict}");
    let expected = "\n  rank 2 wrote last on standard error:\n    first\n    last words\n";
    assert!(stderr.ends_with(expected), "{stderr}");
}

#[test]
fn a_signal_is_told_by_name() {
    let (verdict, _) = verdict(&[], "[ $RANK = 1 ] || exec sleep 1000; kill -9 $$");
    assert!(verdict.starts_with("phalanx: rank 1 failed: killed by SIGKILL after "), "{verdict}");
}

#[test]
fn a_panic_is_quoted() {
    let script = "[ $RANK = 0 ] || exec sleep 1000
        echo \"thread 'main' panicked at src/train.rs:5:9:\" >&2; echo 'index out of bounds' >&2; exit 101";
    let (verdict, _) = verdict(&[], script);
    assert!(verdict.starts_with("phalanx: rank 0 failed: panicked at src/train.rs:5:9 after "), "{verdict}");
    assert!(verdict.contains(" s: index out of bounds (host "), "{verdict}");
}

#[test]
fn a_report_is_quoted() {
    let script = r#"[ $RANK = 3 ] || exec sleep 1000
        echo '{"message": {"message": "ValueError: no such file", "extraInfo": {}}}' > "$TORCHELASTIC_ERROR_FILE"; exit 1"#;
    let (verdict, _) = verdict(&[], script);
    assert!(verdict.starts_with("phalanx: rank 3 gave up after "), "{verdict}");
    assert!(verdict.contains(" s: ValueError: no such file (host "), "{verdict}");
}

#[test]
fn a_rank_that_never_joined_is_to_blame_rather_than_those_who_waited() {
    let script = r#"[ $RANK != 2 ] || exec sleep 1000
        echo '{"message": {"message": "rank 2 is missing"}, "missing": [2]}' > "$PHALANX_ERROR_FILE"; exit 1"#;
    let (verdict, stderr) = verdict(&[], script);
    assert!(verdict.starts_with("phalanx: rank 2 never joined the world within "), "{verdict}");
    assert!(verdict.contains("3 of 4 ranks came (missing: 2); rank 2 was still running"), "{verdict}");
    assert!(stderr.contains("says: rank 2 is missing"), "{stderr}");
}

/// Others hear of a panic before its process has ended, which may take longer than they need.
#[test]
fn a_rank_that_panics_is_to_blame_though_others_end_before_it() {
    let script = r#"if [ $RANK = 2 ]; then
            echo "thread 'main' panicked at src/train.rs:5:9:" >&2; echo 'index out of bounds' >&2
            : > $TMPDIR/ready
        fi
        [ $RANK = 0 ] || exec sleep 1000
        until [ -e $TMPDIR/ready ]; do sleep 0.01; done; rm $TMPDIR/ready
        echo '{"failure": "rank 2 is dead: its thread panicked", "accused": [2], "gone": true}' > "$PHALANX_ERROR_FILE"; exit 1"#;
    let (verdict, _) = verdict(&[], script);
    assert!(verdict.starts_with("phalanx: rank 2 failed: panicked at src/train.rs:5:9 after "), "{verdict}");
    assert!(verdict.contains(" s: index out of bounds (host "), "{verdict}");
    assert!(verdict.ends_with("; 2 other ranks were stopped; 1 other rank failed after it"), "{verdict}");
}

/// Groups say that a rank leaves before its process has ended, which may take longer than the others need to end because of that.
#[test]
fn a_rank_that_ends_with_an_error_is_to_blame_though_it_was_asked_to_end_meanwhile() {
    let script = r#"if [ $RANK = 2 ]; then trap 'exit 4' TERM; : > $TMPDIR/ready; sleep 1000 & wait; fi
        [ $RANK = 0 ] || exec sleep 1000
        until [ -e $TMPDIR/ready ]; do sleep 0.01; done; rm $TMPDIR/ready
        echo '{"failure": "rank 2 has left", "accused": [2], "gone": true}' > "$PHALANX_ERROR_FILE"; exit 1"#;
    let (verdict, _) = verdict(&[], script);
    assert!(verdict.starts_with("phalanx: rank 2 failed: exit code 4 after "), "{verdict}");
    assert!(verdict.ends_with("; 2 other ranks were stopped; 1 other rank failed after it"), "{verdict}");
}

/// As one does that hangs where nobody waits for it, and has a handler that ends it by a code of its own.
#[test]
fn a_rank_that_was_waited_for_is_not_to_blame_for_how_it_answers_the_request_to_end() {
    let script = r#"if [ $RANK = 2 ]; then trap 'exit 1' TERM; : > $TMPDIR/ready; sleep 1000 & wait; fi
        [ $RANK = 0 ] || exec sleep 1000
        until [ -e $TMPDIR/ready ]; do sleep 0.01; done; rm $TMPDIR/ready
        echo '{"failure": "barrier (operation 3) not finished; waiting for rank 2", "accused": [2], "gone": false}' \
            > "$PHALANX_ERROR_FILE"; exit 3"#;
    let (verdict, _) = verdict(&[], script);
    assert!(verdict.starts_with("phalanx: rank 0 failed: exit code 3 after "), "{verdict}");
    let failure = "; before, its group failed: barrier (operation 3) not finished; waiting for rank 2; 3 other ranks";
    assert!(verdict.contains(failure), "{verdict}");
}

#[test]
fn why_the_group_of_a_rank_failed_is_told_with_the_rank() {
    let script = r#"[ $RANK = 0 ] || exec sleep 1000
        echo '{"failure": "barrier (operation 3) not finished; waiting for rank 2", "accused": [2]}' > "$PHALANX_ERROR_FILE"
        exit 1"#;
    let (verdict, _) = verdict(&[], script);
    assert!(verdict.starts_with("phalanx: rank 0 failed: exit code 1 after "), "{verdict}");
    let failure = "; before, its group failed: barrier (operation 3) not finished; waiting for rank 2; 3 other ranks";
    assert!(verdict.contains(failure), "{verdict}");
}

#[test]
fn a_rank_that_a_signal_halted_is_named_and_ends_within_the_grace() {
    let script = r#"if [ $RANK = 2 ]; then echo $$ > $TMPDIR/pid; kill -STOP $$; exec sleep 1000; fi
        [ $RANK = 0 ] || exec sleep 1000
        until grep -q 'State:.*T' /proc/$(cat $TMPDIR/pid)/status; do :; done 2> /dev/null; rm $TMPDIR/pid; exit 3"#;
    let (verdict, _) = verdict(&["--grace", "600"], script);
    assert!(verdict.starts_with("phalanx: rank 2 did not go on, halted by a signal (host "), "{verdict}");
    assert!(verdict.contains("; rank 0 failed: exit code 3 after "), "{verdict}");
    assert!(verdict.ends_with("; 2 other ranks were stopped"), "{verdict}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let job = Job::new();
    let ended = job.run(&["./no-such-program"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.verdict().contains("rank 0 failed: exit code 127, as of a program that cannot be started"));
    assert!(ended.stderr.contains("cannot start ./no-such-program: No such file"), "{}", ended.stderr);
}

#[test]
fn a_limit_that_the_key_does_not_fit_into_is_named() {
    let job = Job::new();
    let ended = job.marked("sh").args(["-c", "ulimit -n 60; exec $PHALANX run true"]).output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    let expected =
        "phalanx: rank 0 could not be started: it gets the job key as descriptor 100, and open files are limited to 60";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(ended.status.code(), Some(1));
    job.assert_nothing_left();
}

#[test]
fn a_rank_that_ignores_the_request_to_end_is_killed() {
    let script = "mkfifo $TMPDIR/ready 2> $TMPDIR/twice || true
        if [ $RANK = 0 ]; then trap '' TERM; echo ready > $TMPDIR/ready; exec sleep 1000; fi
        read line < $TMPDIR/ready; rm -f $TMPDIR/ready $TMPDIR/twice; exit 3";
    let job = Job::new();
    let ended = job.script(2, &["--grace", "0.1"], script);
    assert_eq!(ended.code, Some(1));
    assert!(ended.verdict().starts_with("phalanx: rank 1 failed: exit code 3"), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn a_rank_that_crashes_when_it_is_asked_to_end_has_failed() {
    let script = "[ $RANK -lt 2 ] || exec sleep 1000
        mkfifo $TMPDIR/ready 2> $TMPDIR/twice || true
        if [ $RANK = 0 ]; then trap 'kill -SEGV $$' TERM; echo ready > $TMPDIR/ready; sleep 1000 & wait; fi
        read line < $TMPDIR/ready; rm -f $TMPDIR/ready $TMPDIR/twice; exit 3";
    let (verdict, _) = verdict(&[], script);
    assert!(verdict.starts_with("phalanx: rank 1 failed: exit code 3"), "{verdict}");
    assert!(verdict.ends_with("; 2 other ranks were stopped; 1 other rank failed after it"), "{verdict}");
}

#[test]
fn ranks_may_clean_up_within_the_grace() {
    let job = Job::new();
    let script = "trap 'echo cleaned; exit 0' TERM; echo ready; sleep 1000 & wait";
    let mut running = job.start(2, &["--grace", "60"], script);
    assert_eq!(running.lines(2), ["[0] ready", "[1] ready"]);
    kill(running.guard(), Signal::TERM);
    assert_eq!(running.lines(2), ["[0] cleaned", "[1] cleaned"]);
    let (job, ended) = running.end();
    assert_eq!(ended.code, Some(143));
    assert!(ended.verdict().starts_with("phalanx: ended by SIGTERM: 2 ranks ended, "), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn a_second_signal_kills_at_once() {
    let script = "trap 'echo told' INT TERM; echo ready; while :; do sleep 1000 & wait $!; done";
    let mut running = Job::new().start(2, &["--grace", "1000"], script);
    running.lines(2);
    kill(running.guard(), Signal::INT);
    // Signals that are on their way together come in either order.
    assert_eq!(running.lines(2), ["[0] told", "[1] told"]);
    // One that comes at once with the first does not count.
    until("the job has ended", || {
        kill(running.guard(), Signal::TERM);
        running.job.census().is_empty()
    });
    let (job, ended) = running.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(ended.verdict().contains("2 ranks were killed"), "{}", ended.stderr);
    job.assert_nothing_left();
}

/// `timeout` signals its program and then its group, systemd every process of a service.
#[test]
fn signals_that_come_at_once_leave_ranks_their_grace() {
    let script = "trap 'echo told' INT TERM; trap 'echo saved; exit 0' USR1; echo ready
        while :; do sleep 1000 & wait $!; done";
    let mut running = Job::new().start(2, &["--grace", "1000"], script);
    running.lines(2);
    // Halted, so that it finds both when it goes on.
    let launcher = running.launcher();
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        kill(launcher, signal);
    }
    assert_eq!(running.lines(2), ["[0] told", "[1] told"]);
    // By the time that this arrives, so have both.
    kill(running.guard(), Signal::USR1);
    assert_eq!(running.lines(2), ["[0] saved", "[1] saved"]);
    let (job, ended) = running.end();
    assert!(matches!(ended.code, Some(130 | 143)), "{:?} {}", ended.code, ended.stderr);
    assert!(ended.verdict().contains(": 2 ranks ended, "), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn signals_that_whoever_starts_a_job_has_blocked_reach_it() {
    let job = Job::new();
    let command = job.command(&["grep", "SigBlk", "/proc/self/status"]);
    // A process begins with what the thread that starts it has blocked.
    let blocked: SigSet = [SIGCHLD, SIGTERM, SIGUSR1].into_iter().collect();
    let start = move || {
        blocked.thread_block().unwrap();
        job.spawn(command)
    };
    let (job, ended) = thread::spawn(start).join().unwrap().end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "[0] SigBlk:\t0000000000000000\n"), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn user_signals_are_passed_on() {
    let script =
        "trap 'echo one' USR1; trap 'echo two; exit 0' USR2; echo ready; while :; do sleep 1000 & wait $!; done";
    let mut running = Job::new().start(2, &[], script);
    running.lines(2);
    kill(running.guard(), Signal::USR1);
    assert_eq!(running.lines(2), ["[0] one", "[1] one"]);
    kill(running.guard(), Signal::USR2);
    assert_eq!(running.lines(2), ["[0] two", "[1] two"]);
    let (job, ended) = running.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn a_user_signal_ends_no_rank_that_does_not_take_it() {
    let script = "[ $RANK = 1 ] || trap 'echo one' USR1; echo ready; while :; do sleep 1000 & wait $!; done";
    let mut running = Job::new().start(3, &[], script);
    running.lines(3);
    kill(running.guard(), Signal::USR1);
    assert_eq!(running.lines(2), ["[0] one", "[2] one"]);
    kill(running.guard(), Signal::TERM);
    let (job, ended) = running.end();
    assert_eq!(ended.code, Some(143), "{}", ended.stderr);
    let told = "phalanx: SIGUSR1 was not passed on to rank 1: without a handler it would end there\n";
    assert!(ended.stderr.starts_with(told), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn a_user_signal_ends_nothing_that_a_rank_has_started() {
    // The helper's end tells which signal has reached it first.
    let script = "sleep 1000 & helper=$!; trap 'kill -TERM $helper; wait $helper; echo $?; exit 0' USR1; echo ready
        while :; do sleep 1000 & wait $!; done";
    let mut running = Job::new().start(2, &[], script);
    running.lines(2);
    kill(running.guard(), Signal::USR1);
    assert_eq!(running.lines(2), ["[0] 143", "[1] 143"]);
    let (job, ended) = running.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let job = Job::new();
    let script = "trap 'echo alive' USR1; echo ready; while :; do sleep 1000 & wait $!; done";
    // As `nohup` does.
    let nohup = "trap '' HUP; exec \"$PHALANX\" run sh -c \"$0\"";
    let mut command = job.marked("sh");
    command.args(["-c", nohup, script]);
    let mut running = job.spawn(command);
    running.lines(1);
    kill(running.guard(), Signal::HUP);
    kill(running.guard(), Signal::USR1);
    assert_eq!(running.lines(1), ["[0] alive"]);
    kill(running.guard(), Signal::TERM);
    let (job, ended) = running.end();
    assert_eq!(ended.code, Some(143), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn a_failed_world_is_started_again() {
    let script = "echo epoch $PHALANX_EPOCH $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS
        [ $RANK = 1 ] || exit 0; [ $PHALANX_EPOCH = 2 ] || exit 7";
    let job = Job::new();
    let ended = job.script(2, &["--max-restarts", "3"], script);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let told: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(told.len(), 2, "{}", ended.stderr);
    assert!(told[0].contains("rank 1 failed: exit code 7") && told[0].ends_with("starting again (restart 1 of 3)"));
    assert!(told[1].contains("epoch 1)") && told[1].ends_with("starting again (restart 2 of 3)"), "{}", told[1]);
    for epoch in 0..3 {
        assert!(ended.stdout.contains(&format!("[1] epoch {epoch} {epoch} of 3\n")), "{}", ended.stdout);
    }
    job.assert_nothing_left();
}

#[test]
fn restarts_come_to_an_end() {
    let job = Job::new();
    let ended = job.script(1, &["--max-restarts", "1"], "exit 9");
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 2), "{}", ended.stderr);
    assert!(ended.stderr.lines().nth(1).unwrap().contains("epoch 1)"), "{}", ended.stderr);
}
