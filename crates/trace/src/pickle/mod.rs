//! Pickles as data: plain values are written and read, and nothing that a pickle says is ever carried out.
//!
//! Python's own reader runs whatever a pickle names. This one knows the opcodes of plain data alone, refuses every other by
//! name and place, and bounds what it keeps before it keeps it.

mod error;
mod limits;
mod machine;
mod opcode;
mod scan;
#[cfg(test)]
mod tests;
mod tree;
mod value;
mod write;

pub use error::{Error, Limit};
pub use limits::Limits;
pub use machine::read;
pub use tree::{Node, Tree, View};
pub use value::Value;
pub use write::write;
