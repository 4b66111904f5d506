//! A strict reader of Prometheus's text format, version 0.0.4: whatever is not exactly as documented fails the test.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample.
pub(crate) type Labels = BTreeMap<String, String>;

/// What a page says: each sample by its name and labels.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<(String, Labels), f64>);

impl Samples {
    /// Reads a page, or panics with the line that is wrong.
    pub(crate) fn read(page: &str) -> Samples {
        assert!(page.ends_with('\n'), "the last line ends");
        let (mut samples, mut seen) = (Samples::default(), BTreeSet::new());
        let (mut family, mut kind) = (String::new(), String::new());
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and a text");
                assert!(is_name(name) && !help.is_empty() && seen.insert(name.to_owned()), "{line}");
                let type_line = lines.next().expect("a type after the help");
                kind = type_line.strip_prefix(&format!("# TYPE {name} ")).expect("the type of the same").to_owned();
                assert!(["counter", "gauge", "histogram"].contains(&&*kind), "{type_line}");
                family = name.to_owned();
            } else {
                let (name, labels, value) = sample(line);
                let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("not within its family: {line}"));
                let allowed: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                assert!(allowed.contains(&suffix), "{line}");
                assert!(kind != "counter" || (family.ends_with("_total") && value >= 0.0), "{line}");
                assert!(samples.0.insert((name, labels), value).is_none(), "twice: {line}");
            }
        }
        samples.histograms();
        samples
    }

    /// The value with these labels among others; there must be just one.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |of: &Labels| labels.iter().all(|(key, value)| of.get(*key).is_some_and(|other| other == value));
        let found: Vec<f64> =
            self.0.iter().filter(|((other, of), _)| other == name && has(of)).map(|(_, value)| *value).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0]
    }

    /// Counts of a histogram only grow, and the last is all of them.
    fn histograms(&self) {
        let mut series: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.0 {
            if let Some(family) = name.strip_suffix("_bucket") {
                let mut labels = labels.clone();
                let bound = labels.remove("le").expect("a bound");
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect("a number") };
                series.entry((family.to_owned(), labels)).or_default().push((bound, *value));
            }
        }
        for ((family, labels), mut buckets) in series {
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(buckets.is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1), "{family} {labels:?}");
            let last = buckets.last().expect("at least one");
            let of = |suffix: &str| self.0.get(&(format!("{family}{suffix}"), labels.clone())).copied();
            assert_eq!((last.0, Some(last.1)), (f64::INFINITY, of("_count")), "{family} {labels:?}");
            assert!(of("_sum").is_some_and(|sum| sum >= 0.0));
        }
    }
}

/// Name, labels and value of a line.
fn sample(line: &str) -> (String, Labels, f64) {
    let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("no labels: {line}"));
    assert!(is_name(name), "{line}");
    let (mut labels, mut rest) = (Labels::new(), rest);
    loop {
        let (key, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        assert!(is_name(key) && !key.contains(':'), "{line}");
        let (value, after) = quoted(after);
        assert!(labels.insert(key.to_owned(), value).is_none(), "a label twice: {line}");
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                let value = after.strip_prefix("} ").unwrap_or_else(|| panic!("no end: {line}"));
                return (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("no number: {line}")));
            }
        }
    }
}

/// A text up to its closing quote, and what comes after it.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, letter @ ('\\' | '"'))) => letter,
                other => panic!("no escape: {other:?}"),
            }),
            letter => value.push(letter),
        }
    }
    panic!("no closing quote: {text}")
}

fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || letter == ':';
    name.starts_with(is_letter) && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
}
