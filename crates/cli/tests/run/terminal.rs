//! A job on a terminal of its own.

use std::fs::{File, OpenOptions};
use std::io::Read;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::job::Job;

/// Reads until this is shown.
fn until(terminal: &mut File, text: &str) {
    let (patience, mut seen) = (Timespec { tv_sec: 60, tv_nsec: 0 }, String::new());
    while !seen.contains(text) {
        let shown = poll(&mut [PollFd::new(&*terminal, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(shown, 1, "{text:?} is not shown: {seen}");
        let mut bytes = [0; 1024];
        let count = terminal.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

/// The launcher is in a group of its own, behind that of the guard, and writes all that its ranks say.
#[test]
fn a_terminal_that_stops_who_writes_from_behind_does_not_stop_a_job() {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).and_then(|()| unlockpt(&near)).unwrap();
    let name = ptsname(&near, Vec::new()).unwrap().into_string().unwrap();
    let far = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let job = Job::new();
    let script = "stty tostop; exec \"$PHALANX\" run --nproc-per-node 1 grep SigBlk /proc/self/status";
    let mut command = job.marked("setsid");
    command.args(["--ctty", "--wait", "sh", "-c", script]);
    let same = || far.try_clone().unwrap();
    let mut session = command.stdin(same()).stdout(same()).stderr(same()).spawn().unwrap();
    // Ranks have no part in that.
    let mut near = File::from(near);
    until(&mut near, "SigBlk:\t0000000000000000");
    assert!(session.wait().unwrap().success());
    job.assert_nothing_left();
}
