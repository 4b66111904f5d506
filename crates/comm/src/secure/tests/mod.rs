//! The whole door: both sides in memory, honest and otherwise.

pub(crate) mod counted;
mod honest;
mod pair;
mod records;
mod stranger;
