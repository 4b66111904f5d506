//! Who waits for whom. A rank that has waited for long says so in every group that it is in, so that a deadline names the rank at
//! the end of the chain, and ranks that wait for each other crosswise learn it. Who is dead or silent is not found out here.

mod chain;
mod kin;
mod wait;

pub(crate) use kin::{Kin, Kinship};
pub(crate) use wait::WORDS;
