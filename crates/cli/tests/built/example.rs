//! The examples of the front, built as they stand.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The program of this example.
pub(crate) fn example(name: &str) -> PathBuf {
    static PROGRAMS: OnceLock<HashMap<String, PathBuf>> = OnceLock::new();
    PROGRAMS.get_or_init(build)[name].clone()
}

fn build() -> HashMap<String, PathBuf> {
    // As `cargo test --workspace` has built them already.
    let build = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--workspace", "--profile", "test", "--examples", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let messages = String::from_utf8_lossy(&build.stdout);
    let built = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some((message["target"]["name"].as_str()?.to_owned(), message["executable"].as_str()?.into()))
    };
    messages.lines().filter_map(built).collect()
}
