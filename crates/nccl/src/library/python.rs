//! Where Python keeps its packages: directories below a prefix, found by their names alone. No Python is asked.

use std::fs;
use std::path::{Path, PathBuf};

/// The package directories below a prefix, or the prefix itself where it is one; those of the newest Python first.
pub(super) fn packages_of(prefix: &Path) -> Vec<PathBuf> {
    if is_packages(prefix) {
        return vec![prefix.to_owned()];
    }
    let mut found: Vec<(u32, PathBuf)> = LIBRARIES.iter().flat_map(|library| pythons(&prefix.join(library))).collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

/// The prefixes of the system's Python, and of the program that this process runs: where that is a Python, it is the one whose
/// packages the user has installed.
pub(super) fn usual_prefixes() -> Vec<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.parent()?.to_owned()));
    let mut prefixes: Vec<PathBuf> = own.into_iter().collect();
    for usual in ["/usr/local", "/usr"] {
        if !prefixes.iter().any(|prefix| prefix == Path::new(usual)) {
            prefixes.push(usual.into());
        }
    }
    prefixes
}

fn is_packages(path: &Path) -> bool {
    path.file_name().is_some_and(|name| PACKAGES.iter().any(|packages| name == *packages))
        || path.join("nvidia").is_dir()
}

/// The package directories of every Python in a `lib`, with the second number of its version.
fn pythons(library: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(library).into_iter().flatten().flatten();
    let versions = entries.filter_map(|entry| Some((minor(entry.file_name().to_str()?)?, entry.path())));
    let places = versions.flat_map(|(minor, path)| PACKAGES.map(|packages| (minor, path.join(packages))));
    places.filter(|(_, path)| path.is_dir()).collect()
}

/// The second number of a `python3.11`, 0 for `python3`, which Debian has for packages of all versions.
fn minor(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("python3")?;
    if rest.is_empty() { Some(0) } else { rest.strip_prefix('.')?.parse().ok() }
}

const LIBRARIES: [&str; 3] = ["lib", "lib64", "local/lib"];
const PACKAGES: [&str; 2] = ["site-packages", "dist-packages"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!([minor("python3.9"), minor("python3.13"), minor("python3")], [Some(9), Some(13), Some(0)]);
        assert_eq!([minor("python2.7"), minor("python3.x"), minor("perl")], [None, None, None]);
    }
}
