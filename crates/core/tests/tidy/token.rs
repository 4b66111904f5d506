//! Rust text as tokens: what the rules look at, so that words in comments and strings are not mistaken for code.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// One token and the line it stands on; groups are opened up into their brackets and what is between.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A function with a body.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: RangeInclusive<usize>,
}

impl Function {
    /// Lines from `fn` to the closing brace.
    pub(crate) fn line_count(&self) -> usize {
        self.lines.end() - self.lines.start() + 1
    }
}

/// The tokens of a whole file.
pub(crate) fn trees(text: &str) -> Result<Vec<TokenTree>, String> {
    let stream: TokenStream = text.parse().map_err(|error| format!("not Rust: {error}"))?;
    Ok(stream.into_iter().collect())
}

/// What is inside a group.
pub(crate) fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// The tokens in reading order.
pub(crate) fn flatten(trees: &[TokenTree]) -> Vec<Token> {
    let mut flat = Vec::new();
    trees.iter().for_each(|tree| flatten_tree(tree, &mut flat));
    flat
}

fn flatten_tree(tree: &TokenTree, flat: &mut Vec<Token>) {
    let TokenTree::Group(group) = tree else {
        flat.push(Token { text: tree.to_string(), line: first_line(tree) });
        return;
    };
    let (open, close) = brackets(group.delimiter());
    flat.push(Token { text: open.to_owned(), line: group.span_open().start().line });
    inside(group).iter().for_each(|tree| flatten_tree(tree, flat));
    flat.push(Token { text: close.to_owned(), line: last_line(tree) });
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

pub(crate) fn first_line(tree: &TokenTree) -> usize {
    tree.span().start().line
}

fn last_line(tree: &TokenTree) -> usize {
    tree.span().end().line
}

/// Every function with a body, those inside macros, modules and other functions too.
pub(crate) fn functions(trees: &[TokenTree]) -> Vec<Function> {
    let mut found = Vec::new();
    for (index, tree) in trees.iter().enumerate() {
        if word(tree) == "fn" {
            found.extend(function(&trees[index..]));
        }
        if let TokenTree::Group(group) = tree {
            found.extend(functions(&inside(group)));
        }
    }
    found
}

/// The function whose `fn` comes first in `trees`; none for a pointer type or a declaration.
fn function(trees: &[TokenTree]) -> Option<Function> {
    let name = trees.get(1).filter(|tree| !matches!(tree, TokenTree::Group(_)))?;
    let ends = |index: &usize| word(&trees[*index]) == ";" || is_body(trees, *index);
    let end = (2..trees.len()).find(ends).filter(|&index| is_body(trees, index))?;
    Some(Function { name: name.to_string(), lines: first_line(&trees[0])..=last_line(&trees[end]) })
}

/// Whether the tree at `index` is a braced block rather than the const argument of a type.
fn is_body(trees: &[TokenTree], index: usize) -> bool {
    is_braced(&trees[index]) && trees.get(index + 1).is_none_or(|next| word(next) != ">")
}

fn is_braced(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// The lines of every item that is compiled for tests only: under `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, ..))]`.
pub(crate) fn test_spans(trees: &[TokenTree]) -> Vec<RangeInclusive<usize>> {
    let mut spans = Vec::new();
    let mut index = 0;
    while index < trees.len() {
        if attribute(trees, index).is_some_and(|group| is_test_only(&inside(group))) {
            let end = item_end(trees, index);
            spans.push(first_line(&trees[index])..=last_line(&trees[end]));
            index = end;
        } else if let TokenTree::Group(group) = &trees[index] {
            spans.extend(test_spans(&inside(group)));
        }
        index += 1;
    }
    spans
}

/// The brackets of the outer attribute that starts at `index`.
pub(crate) fn attribute(trees: &[TokenTree], index: usize) -> Option<&Group> {
    match (trees.get(index)?, trees.get(index + 1)?) {
        (hash, TokenTree::Group(group)) if word(hash) == "#" && group.delimiter() == Delimiter::Bracket => Some(group),
        _ => None,
    }
}

fn is_test_only(attribute: &[TokenTree]) -> bool {
    match attribute {
        [only] => word(only) == "test",
        [cfg, TokenTree::Group(condition)] => word(cfg) == "cfg" && demands_test(&inside(condition)),
        _ => false,
    }
}

/// Whether a condition can only hold in a test build: `test` outside of `not(..)` and `any(..)`.
fn demands_test(condition: &[TokenTree]) -> bool {
    condition.iter().enumerate().any(|(index, tree)| match tree {
        TokenTree::Group(group) => word(&condition[index.saturating_sub(1)]) == "all" && demands_test(&inside(group)),
        _ => word(tree) == "test",
    })
}

/// The index of the first token of the item at `index`, after its outer attributes and its visibility.
pub(crate) fn item_start(trees: &[TokenTree], mut index: usize) -> usize {
    while attribute(trees, index).is_some() {
        index += 2;
    }
    if trees.get(index).is_some_and(|tree| word(tree) == "pub") {
        index += 1;
        index += usize::from(matches!(trees.get(index), Some(TokenTree::Group(_))));
    }
    index
}

/// The index of the last token of the item at `index`.
pub(crate) fn item_end(trees: &[TokenTree], index: usize) -> usize {
    let start = item_start(trees, index);
    let ends = |index: &usize| match kind(&trees[start..]) {
        Kind::Statement => word(&trees[*index]) == ";",
        Kind::Block => word(&trees[*index]) == ";" || is_body(trees, *index),
        Kind::Part => matches!(&*word(&trees[*index]), ";" | ",") || is_braced(&trees[*index]),
    };
    (start..trees.len()).find(ends).unwrap_or(trees.len() - 1)
}

/// What ends an item.
enum Kind {
    /// A semicolon: `use`, `static`, `type`, `const`.
    Statement,
    /// Its block, or a semicolon where it has none: `fn`, `mod`, `struct`, `impl`, ...
    Block,
    /// A comma also: a field, a variant, an arm, a macro call.
    Part,
}

fn kind(item: &[TokenTree]) -> Kind {
    let word_at = |index: usize| item.get(index).map(word).unwrap_or_default();
    match &*word_at(0) {
        "use" | "static" | "type" => Kind::Statement,
        "const" if !["fn", "unsafe", "extern", "async"].contains(&&*word_at(1)) => Kind::Statement,
        "const" | "fn" | "mod" | "struct" | "enum" | "union" | "impl" | "trait" | "macro_rules" | "extern"
        | "unsafe" | "async" => Kind::Block,
        _ => Kind::Part,
    }
}

/// The token as written; empty for a group.
pub(crate) fn word(tree: &TokenTree) -> String {
    match tree {
        TokenTree::Group(_) => String::new(),
        _ => tree.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str) -> Vec<(String, usize)> {
        let found = functions(&trees(text).unwrap());
        found.iter().map(|function| (function.name.clone(), function.line_count())).collect()
    }

    fn spans(text: &str) -> Vec<RangeInclusive<usize>> {
        test_spans(&trees(text).unwrap())
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let text = "/// Docs.\npub fn one() {}\n\nimpl A {\n    fn three(\n        self,\n    ) {}\n}\n";
        assert_eq!(lengths(text), [("one".into(), 1), ("three".into(), 3)]);
    }

    #[test]
    fn pointers_and_declarations_are_no_functions() {
        assert!(lengths("type A = fn(u8) -> u8;\ntrait B { fn declared(&self) -> u8; }").is_empty());
    }

    #[test]
    fn functions_in_macros_and_after_const_arguments_count() {
        assert_eq!(lengths("macro_rules! a { () => { fn $name() {\n} } }"), [("$".into(), 2)]);
        assert_eq!(lengths("fn a() -> B<{ 1 }> {\n\n}"), [("a".into(), 3)]);
    }

    #[test]
    fn test_items_are_found_to_their_last_line() {
        assert_eq!(spans("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}"), [2..=5]);
        assert_eq!(spans("#[cfg(all(test, loom))]\n#[allow(x)]\npub(crate) mod loom {\n}"), [1..=4]);
        assert_eq!(spans("mod a {\n#[test]\nfn b() {\n}\n}"), [2..=4]);
        assert_eq!(spans("#[cfg(test)]\nuse a::{\n  b,\n};\nfn c() {}"), [1..=4]);
        assert_eq!(spans("struct A {\n#[cfg(test)]\nb: u8,\nc: u8,\n}"), [2..=3]);
    }

    #[test]
    fn conditions_that_also_hold_outside_tests_are_none() {
        assert!(spans("#[cfg(not(test))]\nmod a {}").is_empty());
        assert!(spans("#[cfg(any(test, unix))]\nmod a {}").is_empty());
        assert!(spans("#[cfg(all(unix, not(test)))]\nmod a {}").is_empty());
        assert!(spans("#[cfg(feature = \"test\")]\nmod a {}").is_empty());
    }
}
