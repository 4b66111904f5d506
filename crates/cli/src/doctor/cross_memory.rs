//! Whether a process may read the memory of another one beside it, and what forbids it: how ranks of one host
//! fetch what others have in ordinary memory.

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
    Finding::slow(CHECK, format!("not permitted ({refused}{reasons})"), WHY, how(reading))
}

/// What would permit it, as far as that is known.
fn how(reading: &Reading) -> &'static str {
    match (reading.yama, reading.filtered) {
        (Some(1..), _) => "sysctl -w kernel.yama.ptrace_scope=0",
        (_, true) => "allow process_vm_readv in the container's seccomp profile",
        _ => "run the ranks as one user, in one namespace of processes",
    }
}

fn is_filtered(status: &str) -> bool {
    status.lines().filter_map(|line| line.strip_prefix("Seccomp:")).any(|mode| mode.trim() != "0")
}

const CHECK: &str = "cross-memory reads";
const WHY: &str =
    "ranks of one host copy large all-gathers and all-to-alls twice where the kernel's one copy may be faster";

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn what_forbids_them_is_named() {
        let refused = || Err("operation not permitted".to_owned());
        let permitted = judge(&Reading { tried: Ok(()), yama: Some(1), filtered: true });
        assert_eq!(permitted, Finding::ok(CHECK, "permitted between processes of one user"));
        for (yama, filtered, reasons, how) in [
            (1, true, ": kernel.yama.ptrace_scope is 1, system calls are filtered (seccomp)", "ptrace_scope=0"),
            (0, true, ": system calls are filtered (seccomp)", "process_vm_readv"),
            (0, false, "", "one user"),
        ] {
            let finding = judge(&Reading { tried: refused(), yama: Some(yama), filtered });
            assert_eq!(finding.found, format!("not permitted (operation not permitted{reasons})"));
            assert_eq!(finding.level, Level::Slow);
            assert!(finding.advice.is_some_and(|advice| advice.how.contains(how)), "{how}");
        }
    }

    #[test]
    fn filters_are_read_from_the_status_of_a_process() {
        assert!(is_filtered("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!is_filtered("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
    }
}
