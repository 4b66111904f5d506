//! How files and directories of checkpoints are called.

use std::path::{Path, PathBuf};

/// The directory of a step's checkpoint.
pub(crate) fn directory(root: &Path, step: u64) -> PathBuf {
    root.join(called(step))
}

fn called(step: u64) -> String {
    format!("{STEP}{step:012}")
}

/// The step of a directory's name.
pub(crate) fn step(name: &str) -> Option<u64> {
    let step = name.strip_prefix(STEP)?.parse().ok()?;
    // Another spelling of the number is somebody else's directory.
    (called(step) == name).then_some(step)
}

/// The file of a rank, of the save with this mark. Once there were no marks.
pub(crate) fn file(rank: usize, world: usize, mark: u64) -> String {
    format!("{RANK}{rank}-of-{world}-{mark:016x}{TENSORS}")
}

/// Whether a rank's file may be called so, with a mark or without, or until it is whole.
pub(crate) fn is_file(name: &str) -> bool {
    name.starts_with(RANK) && name.strip_suffix(PART).unwrap_or(name).ends_with(TENSORS)
}

/// The name under which a file is written until it is whole.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PART);
    PathBuf::from(name)
}

/// The name of an index until it takes its place, of the save with this mark. Once there were no marks.
pub(crate) fn draft(mark: u64) -> String {
    format!("{DRAFT}-{mark:016x}{PART}")
}

/// Whether an index that has not taken its place may be called so.
pub(crate) fn is_draft(name: &str) -> bool {
    name.starts_with(DRAFT) && name.ends_with(PART)
}

/// The directory that has the entry of a path.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(crate) const INDEX: &str = "index.json";

const STEP: &str = "step-";
const RANK: &str = "rank-";
const DRAFT: &str = "index";
const TENSORS: &str = ".safetensors";
const PART: &str = ".part";
