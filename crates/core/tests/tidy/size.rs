//! How long a file and a function may be. Tests, benches and examples may be longer.

use crate::source::Source;
use crate::token::Function;
use crate::violation::Violation;

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;
const MEDIAN_LINES: usize = 12;

pub(crate) fn file_lines(source: &Source) -> Vec<Violation> {
    let count = source.line_count();
    let what = format!("{count} lines outside tests, at most {FILE_LINES}");
    (count > FILE_LINES).then(|| source.violation("file-lines", FILE_LINES, what)).into_iter().collect()
}

pub(crate) fn function_lines(source: &Source) -> Vec<Violation> {
    let long = functions(source).filter(|function| function.line_count() > FUNCTION_LINES);
    long.map(|function| {
        let what = format!("`{}` has {} lines, at most {FUNCTION_LINES}", function.name, function.line_count());
        source.violation("function-lines", *function.lines.start(), what)
    })
    .collect()
}

/// Over the whole workspace: the function in the middle, by length.
pub(crate) fn median_function(sources: &[Source]) -> Option<Violation> {
    let mut counts: Vec<_> = sources.iter().flat_map(functions).map(Function::line_count).collect();
    counts.sort_unstable();
    let median = counts.get(counts.len() / 2).copied().unwrap_or_default();
    let what = format!("the median of {} functions has {median} lines, at most {MEDIAN_LINES}", counts.len());
    (median > MEDIAN_LINES).then(|| Violation::new("median-function", "crates", 0, what))
}

fn functions(source: &Source) -> impl Iterator<Item = &Function> {
    source.functions.iter().filter(|function| !source.is_test_line(*function.lines.start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::planted;

    /// A function of this many lines.
    fn function(lines: usize) -> String {
        format!("fn planted() {{{}}}\n", "\n".repeat(lines - 1))
    }

    fn source(text: &str) -> Source {
        planted("crates/core/src/a.rs", text)
    }

    #[test]
    fn long_files_are_found_and_long_tests_are_not() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(600));
        assert!(file_lines(&source(&(function(500) + &tests))).is_empty());
        let found = file_lines(&source(&(function(501) + &tests)));
        assert_eq!(found[0].to_string(), "crates/core/src/a.rs:500: [file-lines] 501 lines outside tests, at most 500");
        assert!(file_lines(&planted("crates/core/tests/a.rs", &function(501))).is_empty());
    }

    #[test]
    fn long_functions_are_found() {
        assert!(function_lines(&source(&function(70))).is_empty());
        let found = function_lines(&source(&format!("\n{}", function(71))));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(function_lines(&source(&format!("#[test]\n{}", function(71)))).is_empty());
    }

    #[test]
    fn a_long_median_is_found() {
        let short = source(&function(12));
        let long = source(&(function(13) + &function(14)));
        assert!(median_function(&[]).is_none());
        assert!(median_function(&[short]).is_none());
        let found = median_function(&[source(&function(1)), long]).expect("a violation");
        assert!(found.what.contains("the median of 3 functions has 13 lines"), "{found}");
    }
}
