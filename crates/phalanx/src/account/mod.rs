//! The account of a rank: what its groups have done and what they are doing now, in numbers. Nothing is counted for it while operations
//! run but a few sums that the flight recorder keeps; all else is looked up when an account is taken.

mod exposition;
mod numbers;
mod series;
mod take;

pub(crate) use exposition::exposition;
pub(crate) use numbers::FORMAT;
pub use numbers::{Account, GroupAccount, KindAccount, Underway};
#[cfg(feature = "metrics")]
pub(crate) use series::{Family, Sample, Shape, Value, families};
pub(crate) use take::Accountant;
pub use take::account;
