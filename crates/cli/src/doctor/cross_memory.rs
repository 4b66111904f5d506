//! Whether a process may read the memory of another one beside it, and what forbids it. Nothing needs it today.

use std::fs;

use super::finding::Finding;
use super::neighbour;

/// What was tried, and what may stand in its way.
#[derive(Debug)]
pub(super) struct Reading {
    tried: Result<(), String>,
    /// The scope of Yama, where the kernel has it.
    yama: Option<u32>,
    /// Whether system calls are filtered.
    filtered: bool,
}

pub(super) fn read() -> Reading {
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let yama = yama.ok().and_then(|text| text.trim().parse().ok());
    let filtered = fs::read_to_string("/proc/self/status").is_ok_and(|status| is_filtered(&status));
    Reading { tried: neighbour::try_to_read(), yama, filtered }
}

pub(super) fn judge(reading: &Reading) -> Finding {
    let Err(refused) = &reading.tried else {
        return Finding::ok(CHECK, "permitted between processes of one user");
    };
    let yama = reading.yama.filter(|&scope| scope > 0).map(|scope| format!("kernel.yama.ptrace_scope is {scope}"));
    let filter = reading.filtered.then(|| "system calls are filtered (seccomp)".to_owned());
    let reasons: Vec<String> = yama.into_iter().chain(filter).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
    Finding::ok(CHECK, format!("not permitted ({refused}{reasons}); nothing needs them yet"))
}

fn is_filtered(status: &str) -> bool {
    status.lines().filter_map(|line| line.strip_prefix("Seccomp:")).any(|mode| mode.trim() != "0")
}

const CHECK: &str = "cross-memory reads";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forbids_them_is_named() {
        let refused = || Err("operation not permitted".to_owned());
        let found = |reading: Reading| judge(&reading).found;
        assert_eq!(
            found(Reading { tried: Ok(()), yama: Some(1), filtered: true }),
            "permitted between processes of one user"
        );
        assert_eq!(
            found(Reading { tried: refused(), yama: Some(1), filtered: true }),
            "not permitted (operation not permitted: kernel.yama.ptrace_scope is 1, system calls are filtered \
             (seccomp)); nothing needs them yet"
        );
        assert_eq!(
            found(Reading { tried: refused(), yama: Some(0), filtered: false }),
            "not permitted (operation not permitted); nothing needs them yet"
        );
    }

    #[test]
    fn filters_are_read_from_the_status_of_a_process() {
        assert!(is_filtered("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!is_filtered("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
    }
}
