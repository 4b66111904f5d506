//! What a rank itself said about its end: in the file that torchrun reads too, and in one of ours.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

/// A rank's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// What went wrong, in a line.
    pub(crate) message: String,
    /// Ranks that it waited for in vain.
    pub(crate) missing: Vec<usize>,
}

/// That a group of a rank has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accusation {
    /// How, in a line.
    pub(crate) failure: String,
    /// Because of which ranks.
    pub(crate) ranks: Vec<usize>,
    /// Whether they are said to have ended or left, rather than not to come or not to answer.
    pub(crate) gone: bool,
}

/// What there is in the file of torchrun's shape and in ours, as far as it can be understood. Only ours has an accusation.
pub(crate) fn read_reports(common: &Path, own: &Path) -> (Option<Report>, Option<Accusation>) {
    let own = contents(own).unwrap_or_default();
    let report = contents(common).and_then(|value| Report::of(&value)).or_else(|| Report::of(&own));
    (report, Accusation::of(&own))
}

impl Report {
    fn of(value: &Value) -> Option<Report> {
        let message = &value["message"];
        let message = headline(message.as_str().or_else(|| message["message"].as_str())?);
        Some(Report { message, missing: numbers(&value["missing"]) })
    }
}

impl Accusation {
    /// The accusation in a value, if it is one.
    pub(crate) fn of(value: &Value) -> Option<Accusation> {
        let failure = headline(value["failure"].as_str()?);
        Some(Accusation { failure, ranks: numbers(&value["accused"]), gone: value["gone"] == true })
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({"failure": self.failure, "accused": self.ranks, "gone": self.gone})
    }
}

/// The first line, which is all that a verdict has room for. A longer one is cut: what is known of all ranks of a node travels as one value,
/// and a program may well put the data it stumbled over into its error.
fn headline(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    match line.len() > MOST_BYTES {
        true => format!("{}{CUT}", &line[..line.floor_char_boundary(MOST_BYTES - CUT.len())]),
        false => line.to_owned(),
    }
}

fn contents(path: &Path) -> Option<Value> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn numbers(list: &Value) -> Vec<usize> {
    let numbers = list.as_array().into_iter().flatten().filter_map(Value::as_u64);
    numbers.filter_map(|rank| usize::try_from(rank).ok()).collect()
}

const LONGEST: u64 = 1 << 20;

/// How long a line may be. With what is cut off it is no longer than that: nodes read again what another has read.
const MOST_BYTES: usize = 2 << 10;
const CUT: &str = " ...";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, Vec<usize>)> {
        let report = serde_json::from_str(text).ok().and_then(|value| Report::of(&value))?;
        Some((report.message, report.missing))
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
    fn of_a_long_message_the_beginning_of_its_first_line_is_kept() {
        let text = |message: &str| parsed(&json!({"message": {"message": message}}).to_string()).unwrap().0;
        assert_eq!(text("\nValueError: no\n  second line"), "ValueError: no");
        assert_eq!(text(" \n"), "");
        let long = format!("bad input: {}", "\u{e9}".repeat(450_000));
        let kept = text(&long);
        let told = kept.strip_suffix(CUT).unwrap();
        assert!(long.starts_with(told) && (MOST_BYTES - 2..=MOST_BYTES).contains(&kept.len()), "{}", kept.len());
        let accusation = Accusation::of(&json!({"failure": long, "accused": [1]})).unwrap();
        assert_eq!(accusation.failure, kept);
        assert_eq!(Accusation::of(&accusation.to_value()), Some(accusation));
    }

    #[test]
    fn accusations_come_back_as_they_were() {
        for gone in [false, true] {
            let accusation = Accusation { failure: "rank 2 is \"dead\"".to_owned(), ranks: vec![2], gone };
            assert_eq!(Accusation::of(&accusation.to_value()), Some(accusation));
        }
        let unsaid = Accusation::of(&json!({"failure": "m", "accused": [1]}));
        assert_eq!(unsaid.map(|accusation| accusation.gone), Some(false));
        assert_eq!(Accusation::of(&json!({"message": "m"})), None);
    }

    #[test]
    fn anything_else_is_no_report() {
        let accusation = r#"{"failure": "m", "accused": [1]}"#;
        for text in [accusation, "", "{}", "[1]", "{\"message\": 3}", "{\"message\": {\"message\": []}}", "\u{0}"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
