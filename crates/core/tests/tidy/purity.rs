//! What a crate may reach for: `unsafe` has three homes, and the core has no I/O, clock, thread or environment.

use crate::source::Source;
use crate::token::Token;
use crate::violation::Violation;

const UNSAFE_HOMES: [&str; 3] = ["mem", "nccl", "py"];
const IMPURE_MODULES: [&str; 6] = ["env", "fs", "io", "net", "process", "thread"];
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];

/// The keyword, tests included: a test that needs it belongs in one of the homes.
pub(crate) fn unsafe_homes(source: &Source) -> Vec<Violation> {
    if UNSAFE_HOMES.contains(&source.krate()) {
        return Vec::new();
    }
    let uses = source.tokens.iter().filter(|token| token.text == "unsafe");
    uses.map(|token| source.violation("unsafe-homes", token.line, "`unsafe` outside its homes")).collect()
}

/// Every root of a library or binary outside the homes says so to the compiler.
pub(crate) fn forbid_unsafe(sources: &[Source]) -> Vec<Violation> {
    let roots = sources.iter().filter(|source| is_root(source) && !UNSAFE_HOMES.contains(&source.krate()));
    let open = roots.filter(|source| !holds(&source.tokens, &["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"]));
    open.map(|source| source.violation("forbid-unsafe", 1, "lacks `#![forbid(unsafe_code)]`")).collect()
}

/// Outside tests, the core decides from numbers alone.
pub(crate) fn core_is_pure(source: &Source) -> Vec<Violation> {
    if source.krate() != "core" || !source.in_src() {
        return Vec::new();
    }
    let starts = (0..source.tokens.len()).filter(|&index| !source.is_test_line(source.tokens[index].line));
    let uses = starts.flat_map(|index| impure(&source.tokens[index..]));
    uses.map(|token| source.violation("pure-core", token.line, format!("the core may not use `{}`", token.text)))
        .collect()
}

fn is_root(source: &Source) -> bool {
    let inside = source.path.split('/').skip(2).collect::<Vec<_>>();
    matches!(&inside[..], ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] | ["src", "bin", _, "main.rs"])
}

fn holds(tokens: &[Token], words: &[&str]) -> bool {
    tokens.windows(words.len()).any(|window| begins(window, words))
}

fn begins(tokens: &[Token], words: &[&str]) -> bool {
    tokens.len() >= words.len() && tokens.iter().zip(words).all(|(token, word)| token.text == *word)
}

/// The impure names that a path at the start of `tokens` reaches: `std::fs`, `std::{fs, io}`, `Instant::now`.
fn impure(tokens: &[Token]) -> Vec<&Token> {
    let clock = CLOCKS.iter().any(|clock| begins(tokens, &[clock, ":", ":", "now"]));
    let modules = if begins(tokens, &["std", ":", ":"]) { reached(&tokens[3..]) } else { Vec::new() };
    let impure = modules.into_iter().filter(|token| IMPURE_MODULES.contains(&&*token.text));
    impure.chain(clock.then(|| &tokens[0])).collect()
}

/// The first names of a path's rest: one, or each of a braced list.
fn reached(tokens: &[Token]) -> Vec<&Token> {
    if tokens.first().is_none_or(|token| token.text != "{") {
        return tokens.first().into_iter().collect();
    }
    let mut depth = 0_usize;
    let mut names = Vec::new();
    for pair in tokens.windows(2) {
        depth = depth + usize::from(pair[0].text == "{") - usize::from(pair[0].text == "}");
        if depth == 0 {
            break;
        }
        if depth == 1 && ["{", ","].contains(&&*pair[0].text) {
            names.push(&pair[1]);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::planted;

    fn core(text: &str) -> Vec<String> {
        let found = core_is_pure(&planted("crates/core/src/a.rs", text));
        found.into_iter().map(|violation| format!("{} {}", violation.line, violation.what)).collect()
    }

    #[test]
    fn unsafe_is_found_outside_its_homes() {
        let text = "//! unsafe\nfn a() {\n    unsafe { b() }\n}";
        assert_eq!(unsafe_homes(&planted("crates/core/src/a.rs", text))[0].line, 3);
        assert_eq!(unsafe_homes(&planted("crates/comm/tests/a.rs", text)).len(), 1);
        assert!(unsafe_homes(&planted("crates/mem/src/a.rs", text)).is_empty());
        assert!(unsafe_homes(&planted("crates/core/src/a.rs", "#![forbid(unsafe_code)] // unsafe")).is_empty());
    }

    #[test]
    fn roots_that_allow_unsafe_are_found() {
        let open = |path| forbid_unsafe(&[planted(path, "//! #![forbid(unsafe_code)]\n#![deny(unsafe_code)]")]).len();
        assert_eq!(open("crates/core/src/lib.rs"), 1);
        assert_eq!(open("crates/cli/src/main.rs"), 1);
        assert_eq!(open("crates/cli/src/bin/a.rs"), 1);
        assert_eq!(open("crates/core/src/ring.rs"), 0);
        assert_eq!(open("crates/mem/src/lib.rs"), 0);
        assert!(forbid_unsafe(&[planted("crates/core/src/lib.rs", "#![forbid(unsafe_code)]")]).is_empty());
    }

    #[test]
    fn impure_paths_are_found_in_the_core() {
        assert_eq!(core("use std::fs::File;"), ["1 the core may not use `fs`"]);
        assert_eq!(core("fn a() {\n    std::thread::yield_now()\n}"), ["2 the core may not use `thread`"]);
        assert_eq!(core("fn a() -> std::time::Instant { Instant::now() }"), ["1 the core may not use `Instant`"]);
        let found = core("use std::{\n    fmt,\n    io::{self, Read},\n    net::TcpStream,\n};");
        assert_eq!(found, ["3 the core may not use `io`", "4 the core may not use `net`"]);
    }

    #[test]
    fn pure_paths_tests_and_other_crates_are_none() {
        assert!(core("use std::{fmt, collections::{env, BTreeMap}};\nuse std::time::Duration;").is_empty());
        assert!(core("#[cfg(test)]\nmod tests {\n    use std::thread;\n}").is_empty());
        assert!(core_is_pure(&planted("crates/comm/src/a.rs", "use std::net::TcpStream;")).is_empty());
        assert!(core_is_pure(&planted("crates/core/tests/a.rs", "use std::fs;")).is_empty());
    }
}
