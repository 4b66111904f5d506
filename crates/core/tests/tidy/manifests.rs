//! Manifests: each dependency is declared once, in the workspace and with its reason, and each crate inherits the lints.

use crate::house::House;
use crate::violation::Violation;

pub(crate) fn rules(house: &House) -> Vec<Violation> {
    let mut found = reasons("Cargo.toml", &house.manifest);
    for (path, text) in &house.crate_manifests {
        found.extend(inherits_lints(path, text));
        found.extend(declared_once(path, text));
    }
    found
}

/// Each foreign dependency of the workspace has a comment on the line above.
fn reasons(path: &str, text: &str) -> Vec<Violation> {
    let entries = entries(text).into_iter().filter(|entry| entry.section == "workspace.dependencies");
    let bare = entries.filter(|entry| !entry.line.contains("path = ") && !entry.above.starts_with("# "));
    bare.map(|entry| entry.violation("dependency-reason", path, "has no reason on the line above")).collect()
}

fn inherits_lints(path: &str, text: &str) -> Option<Violation> {
    let inherits = entries(text).iter().any(|entry| entry.section == "lints" && entry.line == "workspace = true");
    (!inherits).then(|| Violation::new("lints", path, 1, "lacks `[lints] workspace = true`"))
}

/// Each dependency of a crate comes from the workspace.
fn declared_once(path: &str, text: &str) -> Vec<Violation> {
    let entries =
        entries(text).into_iter().filter(|entry| entry.section.split('.').any(|part| part.ends_with("dependencies")));
    let own = entries.filter(|entry| !entry.line.contains("workspace = true"));
    own.map(|entry| entry.violation("dependency-once", path, "is not declared in the workspace")).collect()
}

/// One `key = value` line of a manifest.
struct Entry<'a> {
    section: &'a str,
    line: &'a str,
    /// The line before it.
    above: &'a str,
    number: usize,
}

impl Entry<'_> {
    fn violation(&self, rule: &'static str, path: &str, what: &str) -> Violation {
        let name = self.line.split(['.', ' ', '=']).next().unwrap_or_default();
        Violation::new(rule, path, self.number, format!("`{name}` {what}"))
    }
}

fn entries(text: &str) -> Vec<Entry<'_>> {
    let (mut section, mut above) = ("", "");
    let mut found = Vec::new();
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if is_entry(line) {
            found.push(Entry { section, line, above, number });
        }
        above = line;
    }
    found
}

/// Whether a line starts an entry, rather than continuing a list or being a comment.
fn is_entry(line: &str) -> bool {
    line.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_') && line.contains('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(found: impl IntoIterator<Item = Violation>) -> Vec<usize> {
        found.into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn dependencies_without_reason_are_found() {
        let text = "[workspace.dependencies]\nown = { path = \"own\" }\n\n# Why.\na = \"1\"\nb = \"1\"\n[profile.dev]\nc = 1\n";
        let found = reasons("Cargo.toml", text);
        assert_eq!(found[0].to_string(), "Cargo.toml:6: [dependency-reason] `b` has no reason on the line above");
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn crates_with_lints_of_their_own_are_found() {
        assert!(inherits_lints("a", "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n").is_none());
        assert!(inherits_lints("a", "[package]\nname = \"a\"\n[lints.rust]\nmissing_docs = \"allow\"\n").is_some());
        assert!(inherits_lints("a", "[dependencies]\nworkspace = true\n[lints]\n# workspace = true\n").is_some());
    }

    #[test]
    fn dependencies_declared_twice_are_found() {
        let text = "[dependencies]\na.workspace = true\nb = \"1\"\n[dev-dependencies]\nc = { workspace = true }\nd = \"1\"\n\
                    [target.'cfg(loom)'.dependencies]\ne = \"1\"\n[features]\nf = []\n";
        assert_eq!(lines(declared_once("a", text)), [3, 6, 8]);
    }
}
