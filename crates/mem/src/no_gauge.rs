//! Model checkers know no distance.

use crate::region::Region;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distance {
    Near,
    #[expect(dead_code, reason = "known where there is a gauge")]
    Far,
}

pub(crate) struct Gauge;

pub(crate) struct Echo;

impl Gauge {
    pub(crate) const BYTE_LEN: usize = 0;

    pub(crate) fn new(_: usize) -> Gauge {
        Gauge
    }

    pub(crate) fn distance(&self, _: usize) -> Distance {
        Distance::Near
    }

    pub(crate) fn is_near(&self) -> bool {
        true
    }

    pub(crate) fn passed(&mut self, _: usize, _: &Region) {}
}

impl Echo {
    pub(crate) fn new(_: usize) -> Echo {
        Echo
    }

    pub(crate) fn answer(&mut self, _: &Region) {}
}
