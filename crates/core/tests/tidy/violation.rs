//! One broken rule at one place, printed so that an editor can jump there.

use std::fmt;

/// A rule that a line breaks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// The file, relative to the workspace.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The rule's name, as an exception cites it.
    pub(crate) rule: &'static str,
    /// What is wrong there.
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, path: &str, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.what)
    }
}

/// All of them, one to a line, by place.
pub(crate) fn list(violations: &[Violation]) -> String {
    let mut sorted = violations.to_vec();
    sorted.sort();
    sorted.iter().map(|violation| format!("  {violation}\n")).collect()
}

#[test]
fn printed_by_place() {
    let late = Violation::new("names", "b.rs", 2, "late");
    let early = Violation::new("names", "a.rs", 10, "early");
    assert_eq!(list(&[late, early]), "  a.rs:10: [names] early\n  b.rs:2: [names] late\n");
}
