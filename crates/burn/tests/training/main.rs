//! Models of burn's layers, trained by one rank with burn alone and by several with this crate.

mod frozen;
mod model;
mod parity;
mod refusals;
mod replicas;
mod uses;
mod whole;
