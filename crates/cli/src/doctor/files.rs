//! How many files a process may have open: over TCP each other rank takes three.

use rustix::process::{Resource, Rlimit, getrlimit};

use super::finding::Finding;
use crate::counted::counted;

/// The limits now, and as far as they can be raised; none where there is no limit.
pub(super) fn read() -> Rlimit {
    getrlimit(Resource::Nofile)
}

pub(super) fn judge(limit: &Rlimit) -> Finding {
    let Some(current) = limit.current else {
        return Finding::ok(CHECK, "no limit");
    };
    let ranks = current.saturating_sub(OTHERS) / EACH + 1;
    let found = format!("{current}, enough for {} over TCP", counted(ranks, "rank"));
    if ranks >= ENOUGH {
        return Finding::ok(CHECK, found);
    }
    let need = OTHERS + EACH * (ENOUGH - 1);
    let how = match limit.maximum {
        Some(maximum) if maximum < need => format!("raise the hard limit, {maximum}, for this user or container"),
        _ => format!("ulimit -n {}", need.next_power_of_two()),
    };
    Finding::wrong(CHECK, found, "a rank over TCP has three connections to each other rank", &how)
}

const CHECK: &str = "open files";
/// Connections between two ranks: for collectives, for messages, and between their keepers.
const EACH: u64 = 3;
/// What a rank and its program have open besides, generously.
const OTHERS: u64 = 64;
/// A world that nobody should have to think about limits for.
const ENOUGH: u64 = 64;

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn judged(current: u64, maximum: u64) -> Finding {
        judge(&Rlimit { current: Some(current), maximum: Some(maximum) })
    }

    #[test]
    fn the_usual_limit_is_enough_and_no_limit_too() {
        assert_eq!(judged(1024, 4096), Finding::ok(CHECK, "1024, enough for 321 ranks over TCP"));
        assert_eq!(judge(&Rlimit { current: None, maximum: None }), Finding::ok(CHECK, "no limit"));
    }

    #[test]
    fn what_to_do_depends_on_who_set_the_limit() {
        let how = |finding: Finding| finding.advice.expect("advice").how;
        assert_eq!(judged(64, 4096).level, Level::Wrong);
        assert_eq!(judged(30, 4096).found, "30, enough for 1 rank over TCP");
        assert_eq!(how(judged(64, 4096)), "ulimit -n 256");
        assert_eq!(how(judged(64, 128)), "raise the hard limit, 128, for this user or container");
    }
}
