//! How much memory a process may keep from being swapped: a job key is kept so.

use rustix::process::{Resource, getrlimit};

use super::finding::{Finding, amount};

/// The limit in bytes; none where there is none.
pub(super) fn read() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

pub(super) fn judge(limit: &Option<u64>) -> Finding {
    let Some(limit) = *limit else {
        return Finding::ok(CHECK, "no limit");
    };
    if limit < LEAST {
        let why = "the job key may be written to the disk when memory is short";
        return Finding::wrong(CHECK, format!("at most {}", amount(limit)), why, "ulimit -l 64");
    }
    Finding::ok(CHECK, format!("at most {}, enough for keys", amount(limit)))
}

const CHECK: &str = "locked memory";
/// A page for each key of a process that has a few.
const LEAST: u64 = 32 << 10;

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_few_pages_are_enough_for_keys() {
        assert_eq!(judge(&None), Finding::ok(CHECK, "no limit"));
        assert_eq!(judge(&Some(64 << 10)), Finding::ok(CHECK, "at most 64 KiB, enough for keys"));
        assert_eq!(judge(&Some(0)).level, Level::Wrong);
    }
}
