//! `phalanx train`: a small GPT on a text, by ranks that hold it together.
//!
//! The command is started by the user and only shows what happens. It starts `phalanx run`, which starts the ranks, watches over them and
//! starts them again; the first of them says how it goes, one JSON object a line.

mod corpus;
mod hold;
mod laps;
mod options;
mod plot;
mod rank;
mod sample;
mod saving;
mod show;
mod start;
mod trainer;

pub(crate) use options::{Options, RankStep};
pub(crate) use rank::rank;
pub(crate) use start::run;
