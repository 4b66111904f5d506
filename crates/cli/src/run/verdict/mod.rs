//! One verdict for an epoch: from how each rank ended to who is to blame, in words. Pure: whoever asks brings the facts.

mod facts;
mod judge;
mod report;
mod words;

pub(super) use facts::{Fact, State};
pub(super) use judge::{Verdict, judge};
pub(super) use report::{Accusation, Report, read_reports};
pub(super) use words::named;
