//! One Rust file as the rules see it: its place, text, tokens, functions, and which of its lines are tests.

use std::ops::RangeInclusive;

use proc_macro2::TokenTree;

use crate::token::{self, Function, Token};
use crate::violation::Violation;

pub(crate) struct Source {
    /// Where it is, relative to the workspace, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) trees: Vec<TokenTree>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) functions: Vec<Function>,
    tests: Vec<RangeInclusive<usize>>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Result<Source, Violation> {
        let trees = token::trees(text).map_err(|error| Violation::new("readable", path, 1, error))?;
        Ok(Source {
            path: path.to_owned(),
            text: text.to_owned(),
            tokens: token::flatten(&trees),
            functions: token::functions(&trees),
            tests: token::test_spans(&trees),
            trees,
        })
    }

    /// The crate's directory name under `crates/`.
    pub(crate) fn krate(&self) -> &str {
        self.parts().nth(1).unwrap_or_default()
    }

    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether the file belongs to the library or binary itself.
    pub(crate) fn in_src(&self) -> bool {
        self.parts().nth(2) == Some("src")
    }

    /// Whether the whole file is a test, a bench or an example.
    pub(crate) fn is_test(&self) -> bool {
        let beside_src = self.parts().nth(2).is_some_and(|room| ["tests", "benches", "examples"].contains(&room));
        beside_src || self.file_name() == "tests.rs" || self.parts().skip(2).any(|part| part == "tests")
    }

    /// Whether this line is compiled for tests only.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.is_test() || self.tests.iter().any(|span| span.contains(&line))
    }

    /// How many lines are outside tests.
    pub(crate) fn line_count(&self) -> usize {
        let lines = self.text.lines().count();
        (1..=lines).filter(|&line| !self.is_test_line(line)).count()
    }

    pub(crate) fn violation(&self, rule: &'static str, line: usize, what: impl Into<String>) -> Violation {
        Violation::new(rule, &self.path, line, what)
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.path.split('/')
    }
}

/// A file with a planted text, for the tests of the rules.
#[cfg(test)]
pub(crate) fn planted(path: &str, text: &str) -> Source {
    Source::new(path, text).unwrap_or_else(|violation| panic!("{violation}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart() {
        let source = planted("crates/core/src/ring.rs", "");
        assert_eq!((source.krate(), source.file_name()), ("core", "ring.rs"));
        assert!(source.in_src() && !source.is_test());
        assert!(planted("crates/core/src/ring/tests.rs", "").is_test());
        assert!(!planted("crates/cli/src/benches/table.rs", "").is_test());
        assert!(planted("crates/core/tests/tidy/main.rs", "").is_test());
        assert!(planted("crates/core/benches/reduce.rs", "").is_test());
    }

    #[test]
    fn lines_after_a_test_module_count_again() {
        let source = planted("crates/core/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests {\n}\nfn a() {}\n");
        assert_eq!(source.line_count(), 2);
        assert!(source.is_test_line(3) && !source.is_test_line(5));
    }

    #[test]
    fn what_does_not_lex_is_reported() {
        let violation = Source::new("crates/core/src/a.rs", "fn a( {").err().expect("a violation");
        assert_eq!(violation.rule, "readable");
    }
}
