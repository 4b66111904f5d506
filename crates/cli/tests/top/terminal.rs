//! The live view on a terminal, which it leaves as it was.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, tcgetattr};

/// A terminal with the live view on it.
struct Terminal {
    keys: File,
    screen: File,
    view: Child,
    before: Termios,
    seen: String,
}

impl Terminal {
    fn open() -> Terminal {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keys).and_then(|()| unlockpt(&keys)).expect("a terminal");
        let name = ptsname(&keys, Vec::new()).expect("a name").into_string().expect("plain letters");
        let screen = OpenOptions::new().read(true).write(true).open(name).expect("its other side");
        let before = tcgetattr(&screen).expect("a terminal");
        let same = || screen.try_clone().expect("a descriptor");
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        command.args(["top", "--interval", "3600", "--job-id", "nobody-has-this-name"]);
        let view = command.stdin(same()).stdout(same()).stderr(same()).spawn().expect("phalanx runs");
        Terminal { keys: File::from(keys), screen, view, before, seen: String::new() }
    }

    /// Reads until this is shown.
    fn until(&mut self, text: &str) {
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        while !self.seen.contains(text) {
            let shown = poll(&mut [PollFd::new(&self.keys, PollFlags::IN)], Some(&patience)).expect("a terminal");
            assert_eq!(shown, 1, "{text:?} is not shown: {}", self.seen);
            let mut bytes = [0; 1024];
            let count = self.keys.read(&mut bytes).expect("the view lives");
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    /// Whether the view ends well and leaves everything as it was.
    fn assert_left(mut self) {
        assert!(self.view.wait().expect("our own child").success(), "{}", self.seen);
        self.until("\x1b[?25h\x1b[?1049l");
        let after = tcgetattr(&self.screen).expect("a terminal");
        assert_eq!(after.local_modes, self.before.local_modes);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.view.kill();
        let _ = self.view.wait();
    }
}

#[test]
fn a_key_ends_the_view() {
    for key in [b"q", b"\x03"] {
        let mut terminal = Terminal::open();
        terminal.until("no ranks of job nobody-has-this-name of this user on this host");
        assert!(terminal.seen.starts_with("\x1b[?1049h\x1b[?25l"));
        assert_ne!(tcgetattr(&terminal.screen).expect("a terminal").local_modes, terminal.before.local_modes);
        terminal.keys.write_all(key).expect("a key");
        terminal.assert_left();
    }
}

#[test]
fn a_signal_ends_the_view() {
    let mut terminal = Terminal::open();
    terminal.until("no ranks of job nobody-has-this-name of this user on this host");
    let pid = i32::try_from(terminal.view.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::TERM).expect("our own child");
    terminal.assert_left();
}
