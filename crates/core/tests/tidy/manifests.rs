//! Manifests: each dependency is declared once, in the workspace and with its reason, each crate inherits the lints, and the
//! lock file of the fuzz targets, a workspace of their own, keeps up with the crates they are built from.

use crate::house::House;
use crate::violation::Violation;

pub(crate) fn rules(house: &House) -> Vec<Violation> {
    let mut found = reasons("Cargo.toml", &house.manifest);
    for (path, text) in &house.crate_manifests {
        found.extend(inherits_lints(path, text));
        found.extend(declared_once(path, text));
        found.extend(locked_for_fuzzing(path, text, &house.fuzz_lock));
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

/// Each dependency that a crate which is fuzzed always has is in that workspace's lock file, which `fuzz/run` takes as it is.
fn locked_for_fuzzing(path: &str, text: &str, lock: &str) -> Vec<Violation> {
    let crate_name = path.rsplit('/').nth(1).unwrap_or_default();
    let package = format!("name = \"phalanx-{crate_name}\"\n");
    let Some(locked) = lock.split("[[package]]\n").find(|locked| locked.starts_with(&package)) else {
        return Vec::new();
    };
    // A dependency of which several versions are locked is followed by its own.
    let knows = |name: &str| locked.contains(&format!(" \"{name}\",")) || locked.contains(&format!(" \"{name} "));
    let entries = entries(text).into_iter().filter(|entry| entry.section.rsplit('.').next() == Some("dependencies"));
    let unknown = entries.filter(|entry| !entry.line.contains("optional = true") && !knows(entry.name()));
    unknown
        .map(|entry| entry.violation("fuzz-lock", path, "is not in fuzz/Cargo.lock: build there without `--locked`"))
        .collect()
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
    fn name(&self) -> &str {
        self.line.split(['.', ' ', '=']).next().unwrap_or_default()
    }

    fn violation(&self, rule: &'static str, path: &str, what: &str) -> Violation {
        Violation::new(rule, path, self.number, format!("`{}` {what}", self.name()))
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

    #[test]
    fn dependencies_that_the_fuzz_targets_have_not_locked_are_found() {
        let lock = "[[package]]\nname = \"phalanx-a\"\ndependencies = [\n \"b\",\n \"c 0.1.2\",\n]\n\n\
                    [[package]]\nname = \"d\"\ndependencies = [\n \"e\",\n]\n";
        let text = "[dependencies]\nb.workspace = true\nc = { workspace = true }\n[target.'cfg(unix)'.dependencies]\n\
                    e.workspace = true\n[dev-dependencies]\nf.workspace = true\n";
        assert_eq!(lines(locked_for_fuzzing("crates/a/Cargo.toml", text, lock)), [5]);
        assert!(locked_for_fuzzing("crates/d/Cargo.toml", text, lock).is_empty());
    }
}
