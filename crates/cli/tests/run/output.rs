//! What ranks print: whole lines with their rank, to the terminal and to files, and never lost.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::job::Job;

#[test]
fn each_line_has_its_rank_and_keeps_its_stream() {
    let job = Job::new();
    let ended = job.script(2, &[], "echo out $RANK; echo err $RANK >&2; printf unfinished");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&ended.stdout), ["[0] out 0", "[0] unfinished", "[1] out 1", "[1] unfinished"]);
    assert_eq!(sorted(&ended.stderr), ["[0] err 0", "[1] err 1"]);
}

#[test]
fn lines_of_ranks_do_not_mix_and_none_is_lost_to_a_slow_reader() {
    let job = Job::new();
    let script = "i=0; while [ $i -lt 20000 ]; do echo $RANK says that this is its line number $i; i=$((i+1)); done";
    let words = ["--nproc-per-node", "3", "sh", "-c", script];
    let mut child = job.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = [0; 3];
    for line in BufReader::with_capacity(100, child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let rank: usize = line[1..2].parse().unwrap();
        assert_eq!(line, format!("[{rank}] {rank} says that this is its line number {}", seen[rank]));
        seen[rank] += 1;
    }
    assert_eq!(seen, [20_000; 3]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_goes_away_does_not_harm_the_job() {
    let job = Job::new();
    let script = "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; echo done > $TMPDIR/done.$RANK";
    let words = ["--nproc-per-node", "2", "sh", "-c", script];
    let mut child = job.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert!(child.wait().unwrap().success());
    for rank in 0..2 {
        fs::remove_file(job.directory.join(format!("done.{rank}"))).unwrap();
    }
    job.assert_nothing_left();
}

#[test]
fn files_have_the_bytes_as_they_are_and_the_terminal_has_nothing() {
    let job = Job::new();
    let logs = job.directory.join("logs");
    // The rank that fails waits for the other, which would be stopped before it has written.
    let script = "printf 'a\\000\\377\\nhalf'; echo wrong >&2; fifo=$TMPDIR/$PHALANX_EPOCH; mkfifo $fifo 2> /dev/null
        if [ $RANK = 0 ]; then echo written > $fifo; else read line < $fifo; exit 4; fi";
    let ended = job.script(2, &["--log-dir", logs.to_str().unwrap(), "--max-restarts", "1"], script);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    let read = |path: &str| fs::read(logs.join(path)).unwrap();
    for rank in ["0/0", "0/1", "1/0", "1/1"] {
        assert_eq!(read(&format!("{rank}/stdout.log")), b"a\0\xff\nhalf");
        assert_eq!(read(&format!("{rank}/stderr.log")), b"wrong\n");
    }
    let title = format!("  rank 1 wrote last on standard error ({}):", logs.join("1/1/stderr.log").display());
    let expected: Vec<&str> = vec![&title, "    wrong"];
    assert_eq!(ended.stderr.lines().skip(2).collect::<Vec<_>>(), expected);
}

#[test]
fn a_progress_bar_is_seen_while_it_moves() {
    let job = Job::new();
    let script =
        "mkfifo $TMPDIR/seen; printf '1%%\\r'; read line < $TMPDIR/seen; rm $TMPDIR/seen; printf '2%%\\r\\nend\\n'";
    let mut child = job.command(&["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 7];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"[0] 1%\r");
    fs::write(job.directory.join("seen"), "go\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "[0] 2%\r\n[0] end\n");
    assert!(child.wait().unwrap().success());
    job.assert_nothing_left();
}

#[test]
fn output_that_cannot_be_written_is_told() {
    let job = Job::new();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let logs = job.directory.join("logs");
    fs::create_dir_all(logs.join("0/0")).unwrap();
    std::os::unix::fs::symlink("/dev/full", logs.join("0/0/stdout.log")).unwrap();
    let words = ["--log-dir", logs.to_str().unwrap(), "--tee", "sh", "-c", "echo one; echo two"];
    let output = job.command(&words).stdout(full()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let file = logs.join("0/0/stdout.log").display().to_string();
    for (place, what) in [("standard output", "what ranks print"), (&file, "output of rank 0")] {
        let told = format!("phalanx: {place}: No space left on device (os error 28): {what} ");
        assert_eq!(stderr.matches(&told).count(), 1, "{stderr}");
    }
}

#[test]
fn with_tee_it_is_in_both_places() {
    let job = Job::new();
    let logs = job.directory.join("logs");
    let ended = job.script(1, &["--log_dir", logs.to_str().unwrap(), "--tee"], "echo both");
    assert_eq!(ended.stdout, "[0] both\n");
    assert_eq!(fs::read_to_string(logs.join("0/0/stdout.log")).unwrap(), "both\n");
}
