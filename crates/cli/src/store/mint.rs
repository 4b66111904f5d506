//! `phalanx store mint-key`: a job key in a file, for a job of several nodes or a store served by itself.

use std::path::PathBuf;

use clap::Args;
use phalanx_comm::secure::JobKey;

use crate::failure::Failure;

/// Make a new job key and write it to a file that only its owner may read
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// The file, which must not be there yet
    path: PathBuf,
}

/// Mints a key.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let key = JobKey::mint().map_err(|error| Failure::Stopped(format!("job key: {error}")))?;
    Ok(key.write_file(&options.path)?)
}

const EXAMPLES: &str = "\
Examples:
  phalanx store mint-key job.key
  phalanx run --nnodes 2 --node-rank 0 --rdzv-endpoint 10.0.0.1:29400 --key-file job.key -- ./train";
