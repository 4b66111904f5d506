//! Checkpoints of a model that many ranks hold together: each rank writes its own elements to a file of its own, and one index, written
//! last, says where everything is. What the elements mean is the caller's affair.
//!
//! ```text
//! DIR/step-000000000200/rank-0-of-2-5d41402abc4b2a76.safetensors     its part of every tensor, flat; written beside, synced, renamed
//!                       rank-1-of-2-5d41402abc4b2a76.safetensors
//!                       index.json                                   names, shapes, pieces, a CRC-32C of each file; without it there is no checkpoint
//! ```
//!
//! Each save marks its files with a number of its own. One of a step that has a checkpoint writes beside that, and takes its place with the
//! index. None is made of an earlier step than one that has a checkpoint, which would stay the newest.
//!
//! All ranks see one directory. A checkpoint is [loaded](Checkpoint) by any number of ranks, each of which reads only the files that hold
//! elements of its own; and [from and to](Checkpoint::write_whole) one plain safetensors file.
//!
//! ```
//! use phalanx_checkpoint::{Checkpoint, Piece, Progress, Saver};
//!
//! # fn main() -> phalanx_checkpoint::Result<()> {
//! # let directory = std::env::temp_dir().join(format!("phalanx-checkpoint-{}", std::process::id()));
//! // This rank has two elements of the tensor, from the first on. Several ranks save with `.group(...)`, one of their saver's own.
//! let mut saver = Saver::new(&directory);
//! saver.save(200, vec![Piece::floats("weight", &[1, 2], 0, &[1.0, 2.0])], Progress::new())?;
//! saver.finish()?;
//!
//! let mut checkpoint = Checkpoint::latest(&directory)?.expect("one was saved");
//! assert_eq!(checkpoint.floats("weight", &[1, 2], 0..2)?, [1.0, 2.0]);
//! # let _ = std::fs::remove_dir_all(&directory);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod checkpoint;
mod disk;
mod error;
mod file;
#[cfg(test)]
mod hostile;
mod index;
mod latest;
mod names;
mod piece;
mod saver;
mod sweep;
mod underway;

pub use checkpoint::Checkpoint;
pub use disk::{Disk, SystemDisk};
pub use error::{Error, Result};
pub use piece::{Piece, Progress};
pub use safetensors::Dtype;
pub use saver::Saver;
