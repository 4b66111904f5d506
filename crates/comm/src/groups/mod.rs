//! Groups of some of a world's ranks: which ranks work together, that all say the same of it, and how they come together.

mod divide;
mod formation;
mod ledger;
mod mesh;
mod parts;
#[cfg(test)]
mod tests;

pub use ledger::{Formed, Registry};
pub(crate) use ledger::{Ledger, Place};
pub use mesh::Mesh;
