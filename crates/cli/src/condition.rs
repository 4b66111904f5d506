//! What the kernel says of a process that does not speak for itself.

use std::fs;

/// How a process stands, in a word; none where there is no such process any more.
pub(crate) fn state(pid: u32) -> Option<&'static str> {
    word(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The word for a process that a signal has halted, which answers nobody until another one lets it go on.
pub(crate) const STOPPED: &str = "stopped";

fn word(status: &str) -> Option<&'static str> {
    let letter = status.lines().find_map(|line| line.strip_prefix("State:"))?.trim_start().chars().next()?;
    Some(match letter {
        'T' => STOPPED,
        't' => "stopped by a debugger",
        'Z' | 'X' => "dead",
        'D' => "waiting for a device",
        'R' => "running",
        _ => "sleeping",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_words() {
        for (status, expected) in [
            ("Name:\tx\nState:\tT (stopped)\nPid:\t1\n", Some("stopped")),
            ("State:\tt (tracing stop)\n", Some("stopped by a debugger")),
            ("State:\tZ (zombie)\n", Some("dead")),
            ("State:\tS (sleeping)\n", Some("sleeping")),
            ("Name:\tx\n", None),
        ] {
            assert_eq!(word(status), expected);
        }
        assert_eq!(state(std::process::id()).map(|state| ["running", "sleeping"].contains(&state)), Some(true));
    }
}
