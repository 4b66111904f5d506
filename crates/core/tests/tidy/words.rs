//! Words that must not stay behind: unfinished work, debugging, and paths of somebody's machine.

use crate::source::Source;
use crate::violation::Violation;

const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// Written in two halves, here and in the tests, so that this file passes its own rule.
const NOTES: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];
const MACHINE_ROOTS: [&str; 8] = ["home", "root", "Users", "work", "tmp", "mnt", "opt", "srv"];

/// Macros that stand for missing work, and notes that promise it.
pub(crate) fn leftovers(source: &Source) -> Vec<Violation> {
    let macros = source.tokens.windows(2).filter(|pair| MACROS.contains(&&*pair[0].text) && pair[1].text == "!");
    let macros =
        macros.map(|pair| source.violation("leftovers", pair[0].line, format!("`{}!` left behind", pair[0].text)));
    macros.chain(by_line(source, "leftovers", note)).collect()
}

/// Absolute paths that exist on one machine only; `/proc`, `/sys` and `/dev` are everywhere.
pub(crate) fn machine_paths(source: &Source) -> Vec<Violation> {
    by_line(source, "machine-paths", machine_path).collect()
}

fn by_line<'a>(
    source: &'a Source,
    rule: &'static str,
    find: fn(&str) -> Option<String>,
) -> impl Iterator<Item = Violation> + 'a {
    let lines = source.text.lines().zip(1..);
    lines.filter_map(move |(line, number)| Some(source.violation(rule, number, find(line)?)))
}

fn note(line: &str) -> Option<String> {
    let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.find(|word| NOTES.contains(word)).map(|word| format!("`{word}` left behind"))
}

fn machine_path(line: &str) -> Option<String> {
    let starts =
        |(start, _): &(usize, &str)| !line[..*start].ends_with(is_path_letter) && is_machine_path(&line[*start..]);
    let (start, _) = line.match_indices('/').find(starts)?;
    let path: String = line[start..].chars().take_while(|&letter| is_path_letter(letter)).collect();
    Some(format!("`{path}` is a path of one machine"))
}

fn is_path_letter(letter: char) -> bool {
    letter.is_alphanumeric() || "/._-*}~".contains(letter)
}

fn is_machine_path(text: &str) -> bool {
    let rest = text.strip_prefix('/').and_then(|text| text.split_once('/'));
    rest.is_some_and(|(root, _)| MACHINE_ROOTS.contains(&root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::planted;

    fn found(rule: fn(&Source) -> Vec<Violation>, text: &str) -> Vec<usize> {
        rule(&planted("crates/core/src/a.rs", text)).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn leftover_macros_are_found_in_code_only() {
        assert_eq!(found(leftovers, "fn a() {\n    todo!()\n}\nfn b() { dbg!(1); unimplemented!(); }"), [2, 4, 4]);
        assert!(found(leftovers, "// todo!()\nconst A: &str = \"dbg!(1)\"; fn todo() {}").is_empty());
    }

    #[test]
    fn notes_are_found_in_comments() {
        assert_eq!(found(leftovers, concat!("//\n// FIX", "ME: later\n/* XX", "X */")), [2, 3]);
        assert!(found(leftovers, concat!("// a-XX", "XX.tmp\n")).is_empty());
    }

    #[test]
    fn machine_paths_are_found_anywhere() {
        assert_eq!(found(machine_paths, concat!("// see /ho", "me/alice/x\n// (/tm", "p/x)")), [1, 2]);
        assert_eq!(found(machine_paths, concat!("const A: &str = \"/wo", "rk/x\";")), [1]);
    }

    #[test]
    fn other_paths_are_none() {
        assert!(
            found(machine_paths, "// https://example.org/home/x\n// ../work/x /proc/self/fd /dev/shm/x").is_empty()
        );
        assert!(found(machine_paths, "const A: u8 = 1 /tmp;").is_empty());
    }
}
