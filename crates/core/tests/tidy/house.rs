//! The workspace as read from disk: every Rust file of its crates, and every manifest.

use std::fs;
use std::path::{Path, PathBuf};

use crate::source::Source;
use crate::violation::Violation;

/// Where Rust files are looked for in each crate.
const ROOMS: [&str; 4] = ["src", "tests", "benches", "examples"];

pub(crate) struct House {
    pub(crate) root: PathBuf,
    pub(crate) sources: Vec<Source>,
    /// The workspace's own manifest.
    pub(crate) manifest: String,
    /// The manifest of each crate: where it is, relative to the workspace, and its text.
    pub(crate) crate_manifests: Vec<(String, String)>,
    pub(crate) fuzz_lock: String,
    /// Files that are not Rust.
    pub(crate) unreadable: Vec<Violation>,
}

impl House {
    pub(crate) fn read() -> House {
        let root = root();
        let crates = entries(&root.join("crates"));
        let mut house = House {
            manifest: text(&root.join("Cargo.toml")),
            crate_manifests: crates.iter().filter_map(|path| manifest(&root, path)).collect(),
            fuzz_lock: text(&root.join("fuzz/Cargo.lock")),
            sources: Vec::new(),
            unreadable: Vec::new(),
            root,
        };
        let rooms = crates.iter().flat_map(|path| ROOMS.map(|room| path.join(room)));
        rooms.flat_map(|room| rust_files(&room)).for_each(|path| house.add(&path));
        house
    }

    fn add(&mut self, path: &Path) {
        match Source::new(&relative(&self.root, path), &text(path)) {
            Ok(source) => self.sources.push(source),
            Err(violation) => self.unreadable.push(violation),
        }
    }
}

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("the crate is two levels below the workspace").to_owned()
}

fn manifest(root: &Path, krate: &Path) -> Option<(String, String)> {
    let path = krate.join("Cargo.toml");
    path.exists().then(|| (relative(root, &path), text(&path)))
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let (directories, files): (Vec<_>, Vec<_>) = entries(directory).into_iter().partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.chain(directories.iter().flat_map(|path| rust_files(path))).collect()
}

/// What is in a directory, by name; nothing when there is no such directory.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = listed.map(|entry| entry.expect("a readable directory").path()).collect();
    paths.sort();
    paths
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn relative(root: &Path, path: &Path) -> String {
    let parts = path.strip_prefix(root).expect("a path inside the workspace").components();
    parts.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect::<Vec<_>>().join("/")
}

#[test]
fn the_rules_see_the_files() {
    let house = House::read();
    let sees = |path: &str| house.sources.iter().any(|source| source.path == path);
    assert!(sees("crates/core/src/lib.rs") && sees("crates/core/tests/tidy/house.rs"));
    assert!(house.sources.iter().any(|source| !source.is_test() && !source.functions.is_empty()));
    assert!(house.crate_manifests.iter().any(|(path, _)| path == "crates/core/Cargo.toml"));
}
