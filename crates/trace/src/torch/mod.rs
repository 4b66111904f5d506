//! Dumps in PyTorch's words: the pickles that its flight recorder writes and its analyser reads.
//!
//! What is written carries the dump itself as JSON besides, under a key that PyTorch passes over, so that reading it again
//! gives it back whole.

mod read;
#[cfg(test)]
mod tests;
mod words;
mod write;

pub use read::decode;
pub use write::{Messages, encode};
