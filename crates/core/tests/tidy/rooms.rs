//! Rooms: what a file is called, how it opens, and what may stand in `lib.rs`, the hall.

use proc_macro2::TokenTree;

use crate::source::Source;
use crate::token::{self, first_line, inside, item_end, item_start, word};
use crate::violation::Violation;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 10] =
    ["base", "common", "helper", "helpers", "impl", "impls", "manager", "managers", "util", "utils"];

pub(crate) fn names(source: &Source) -> Vec<Violation> {
    let parts = source.path.split('/').map(|part| part.trim_end_matches(".rs"));
    let empty = parts.filter(|part| EMPTY_NAMES.contains(part));
    empty.map(|part| source.violation("names", 1, format!("`{part}` does not say what is inside"))).collect()
}

pub(crate) fn opening(source: &Source) -> Vec<Violation> {
    let opens = source.text.starts_with("//!") || !source.in_src();
    let what = "does not open with `//!`: what this room is, and what it is not";
    (!opens).then(|| source.violation("opening", 1, what)).into_iter().collect()
}

/// `lib.rs` holds docs, attributes, `mod` and `pub use`.
pub(crate) fn lib_is_a_hall(source: &Source) -> Vec<Violation> {
    let stray = if source.in_src() && source.file_name() == "lib.rs" { strays(&source.trees) } else { Vec::new() };
    let what = "only docs, attributes, `mod` and `pub use` in lib.rs";
    stray.into_iter().map(|line| source.violation("lib", line, what)).collect()
}

/// The lines on which an item starts that does not belong there.
fn strays(trees: &[TokenTree]) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut index = 0;
    while index < trees.len() {
        if is_inner_attribute(&trees[index..]) {
            index += 3;
            continue;
        }
        let end = item_end(trees, index);
        let start = item_start(trees, index).min(end);
        lines.extend(strays_of_item(&trees[index..=end], start - index));
        index = end + 1;
    }
    lines
}

fn is_inner_attribute(trees: &[TokenTree]) -> bool {
    matches!(trees, [hash, bang, TokenTree::Group(_), ..] if word(hash) == "#" && word(bang) == "!")
}

/// The same for one item, whose keyword is at `start` after its attributes.
fn strays_of_item(item: &[TokenTree], start: usize) -> Vec<usize> {
    let keyword = word(&item[start]);
    let public = item[..start].iter().any(|tree| word(tree) == "pub");
    let doctest = token::flatten(&item[..start]).iter().any(|token| token.text == "doctest");
    match (&*keyword, item.last()) {
        _ if doctest => Vec::new(),
        ("use", _) if public => Vec::new(),
        ("mod", Some(TokenTree::Group(group))) => strays(&inside(group)),
        ("mod", _) => Vec::new(),
        _ => vec![first_line(&item[start])],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::planted;

    fn lib(text: &str) -> Vec<usize> {
        lib_is_a_hall(&planted("crates/core/src/lib.rs", text)).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn empty_names_are_found() {
        let found = |path| names(&planted(path, "")).len();
        assert_eq!(found("crates/core/src/utils.rs"), 1);
        assert_eq!(found("crates/core/tests/common/mod.rs"), 1);
        assert_eq!(found("crates/base/src/helpers/manager.rs"), 3);
        assert_eq!(found("crates/core/src/database.rs"), 0);
    }

    #[test]
    fn files_without_opening_are_found() {
        assert_eq!(opening(&planted("crates/core/src/a.rs", "\n//! Late.")).len(), 1);
        assert_eq!(opening(&planted("crates/core/src/a.rs", "/// Wrong.\nfn a() {}")).len(), 1);
        assert!(opening(&planted("crates/core/src/a.rs", "//! A room.")).is_empty());
    }

    #[test]
    fn a_hall_holds_doors_only() {
        let hall = "//! Docs.\n#![forbid(unsafe_code)]\n#![doc = include_str!(\"a.md\")]\n\nmod a;\npub mod b;\n\
                    #[cfg(test)]\nmod tests;\npub use a::{B, C};\n#[cfg(unix)]\npub use b::D;\n\
                    /// Names.\npub mod prelude {\n    pub use a::B;\n}\n#[cfg(doctest)]\npub struct Readme;\n";
        assert!(lib(hall).is_empty());
    }

    #[test]
    fn furniture_in_the_hall_is_found() {
        assert_eq!(lib("//! A.\nmod a;\n\n/// F.\npub fn f() {}\nmod b;\nconst C: u8 = 1;"), [5, 7]);
        assert_eq!(lib("use a::B;\nmod c {\n    fn d() {}\n}\nelements! { a }"), [1, 3, 5]);
        assert_eq!(lib("#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}"), [4]);
        assert!(lib_is_a_hall(&planted("crates/core/src/a.rs", "fn a() {}")).is_empty());
    }
}
