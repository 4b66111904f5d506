//! The ratchet: what is allowed to break a rule, how often, and why. It only ever tightens: an exception that is no longer
//! needed fails the test as surely as a violation that is not listed.

use crate::violation::Violation;

/// Violations of one rule in one file that are there for a reason.
#[derive(Debug)]
pub(crate) struct Exception {
    /// The rule, as printed between brackets.
    pub(crate) rule: &'static str,
    /// The file, relative to the workspace.
    pub(crate) path: &'static str,
    /// How many violations of the rule the file has, exactly.
    pub(crate) count: usize,
    /// Why they stay.
    pub(crate) reason: &'static str,
}

/// Every exception of the workspace.
pub(crate) const ALLOWED: &[Exception] = &[Exception {
    rule: "unsafe-homes",
    path: "crates/comm/tests/processes/forked.rs",
    count: 1,
    reason: "there is no safe way to fork a process, and what a fork does to a group is what is tested",
}];

/// What is left of `found` once `allowed` is taken off, and a violation for each exception that does not fit what was found.
pub(crate) fn settle(found: Vec<Violation>, allowed: &[Exception]) -> Vec<Violation> {
    let counts: Vec<usize> = allowed.iter().map(|exception| count(&found, exception)).collect();
    let fits = |violation: &Violation| {
        allowed.iter().zip(&counts).any(|(exception, &count)| covers(exception, violation) && count <= exception.count)
    };
    let mut left: Vec<Violation> = found.into_iter().filter(|violation| !fits(violation)).collect();
    left.extend(allowed.iter().zip(&counts).filter_map(|(exception, &count)| misfit(exception, count)));
    left
}

fn covers(exception: &Exception, violation: &Violation) -> bool {
    exception.rule == violation.rule && exception.path == violation.path
}

fn count(found: &[Violation], exception: &Exception) -> usize {
    found.iter().filter(|violation| covers(exception, violation)).count()
}

fn misfit(exception: &Exception, count: usize) -> Option<Violation> {
    let what = if exception.reason.is_empty() {
        format!("the exception for '{}' states no reason", exception.rule)
    } else if count != exception.count {
        format!("the exception for '{}' allows {}, there are {count}", exception.rule, exception.count)
    } else {
        return None;
    };
    Some(Violation::new("exceptions", exception.path, 1, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(count: usize) -> Exception {
        Exception { rule: "names", path: "a.rs", count, reason: "older than the rule" }
    }

    fn found(count: usize) -> Vec<Violation> {
        (1..=count).map(|line| Violation::new("names", "a.rs", line, "planted")).collect()
    }

    #[test]
    fn a_fitting_exception_covers_its_violations_only() {
        let mut violations = found(2);
        violations.push(Violation::new("size", "a.rs", 1, "another rule"));
        violations.push(Violation::new("names", "b.rs", 1, "another file"));
        let left = settle(violations, &[exception(2)]);
        assert_eq!(left.iter().map(|violation| &*violation.what).collect::<Vec<_>>(), ["another rule", "another file"]);
    }

    #[test]
    fn an_exception_no_longer_needed_fails() {
        assert!(settle(found(1), &[exception(2)])[0].what.contains("allows 2, there are 1"));
        assert!(settle(found(0), &[exception(1)])[0].what.contains("there are 0"));
    }

    #[test]
    fn one_violation_too_many_shows_them_all() {
        assert_eq!(settle(found(3), &[exception(2)]).len(), 4);
    }

    #[test]
    fn an_exception_without_reason_fails() {
        let silent = Exception { reason: "", ..exception(1) };
        assert!(settle(found(1), &[silent])[0].what.contains("no reason"));
    }
}
