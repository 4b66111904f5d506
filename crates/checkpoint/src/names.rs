//! How files and directories of checkpoints are called.

use std::path::{Path, PathBuf};

/// The directory of a step's checkpoint.
pub(crate) fn directory(root: &Path, step: u64) -> PathBuf {
    root.join(format!("{STEP}{step:012}"))
}

/// The step of a directory's name.
pub(crate) fn step(name: &str) -> Option<u64> {
    name.strip_prefix(STEP)?.parse().ok()
}

/// The file of a rank.
pub(crate) fn file(rank: usize, world: usize) -> String {
    format!("rank-{rank}-of-{world}.safetensors")
}

/// The name under which a file is written until it is whole.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

pub(crate) const INDEX: &str = "index.json";

const STEP: &str = "step-";
