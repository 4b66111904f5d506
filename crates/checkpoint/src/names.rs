//! How files and directories of checkpoints are called.

use std::path::{Path, PathBuf};

/// The directory of a step's checkpoint.
pub(crate) fn directory(root: &Path, step: u64) -> PathBuf {
    root.join(format!("{STEP}{step:012}"))
}

/// The step of a directory's name.
pub(crate) fn step(name: &str) -> Option<u64> {
    let step = name.strip_prefix(STEP)?.parse().ok()?;
    // Another spelling of the number is somebody else's directory.
    directory(Path::new(""), step).to_str().is_some_and(|own| own == name).then_some(step)
}

/// The file of a rank; `again` tells those of one save of a step from those of another.
pub(crate) fn file(rank: usize, world: usize, again: usize) -> String {
    match again {
        0 => format!("rank-{rank}-of-{world}.safetensors"),
        _ => format!("rank-{rank}-of-{world}-again-{again}.safetensors"),
    }
}

/// The name under which a file is written until it is whole.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

pub(crate) const INDEX: &str = "index.json";

const STEP: &str = "step-";
