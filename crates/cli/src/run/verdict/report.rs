//! What a rank itself said about its end, in the file that torchrun reads too.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// A rank's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// What went wrong.
    pub(crate) message: String,
    /// Ranks that it waited for in vain.
    pub(crate) missing: Vec<usize>,
}

impl Report {
    /// The report in a file, if there is one that can be understood.
    pub(crate) fn read(path: &Path) -> Option<Report> {
        let mut text = Vec::new();
        File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
        Report::parse(&text)
    }

    fn parse(text: &[u8]) -> Option<Report> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let message = &value["message"];
        let message = message.as_str().or_else(|| message["message"].as_str())?.trim().to_owned();
        let missing = value["missing"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        Some(Report { message, missing: missing.filter_map(|rank| usize::try_from(rank).ok()).collect() })
    }
}

const LONGEST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, Vec<usize>)> {
        Report::parse(text.as_bytes()).map(|report| (report.message, report.missing))
    }

    #[test]
    fn torch_and_our_shapes_are_read() {
        let torch =
            r#"{"message": {"message": "ValueError: no", "extraInfo": {"timestamp": "1", "py_callstack": ""}}}"#;
        assert_eq!(parsed(torch), Some(("ValueError: no".to_owned(), vec![])));
        assert_eq!(parsed(r#"{"message": "bad "}"#), Some(("bad".to_owned(), vec![])));
        assert_eq!(parsed(r#"{"message": "m", "missing": [2, -1, "x", 3]}"#), Some(("m".to_owned(), vec![2, 3])));
    }

    #[test]
    fn anything_else_is_no_report() {
        for text in ["", "{}", "[1]", "{\"message\": 3}", "{\"message\": {\"message\": []}}", "\u{0}"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
