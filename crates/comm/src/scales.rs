//! Scales: what is faster between ranks of a host depends on the processor, on the system and on where the ranks run, so it is weighed while
//! they work, by each rank for itself.

mod order;
mod rate;
mod trials;
mod way;

pub(crate) use order::OrderScale;
use way::WayScale;
pub(crate) use way::{Move, Way};

/// Whether what lies in ordinary memory is better copied or fetched, weighed apart where copies stay in the caches and where they go past
/// them, which those of the system do not: each way leaves the caches in a state that is bad for the other, so one scale would not see which
/// is better in the end.
#[derive(Debug)]
pub(crate) struct WayScales {
    both: [WayScale; 2],
    /// Whether copies of the current operation go past the caches.
    is_past_caches: bool,
}

impl WayScales {
    /// Of a rank with so many peers.
    pub(crate) fn new(peers: usize) -> WayScales {
        WayScales { both: [Way::Fetch, Way::Copy].map(|better| WayScale::new(peers, better)), is_past_caches: false }
    }

    /// An operation begins whose copies go past the caches, or do not.
    pub(crate) fn begin(&mut self, past_caches: bool) {
        self.is_past_caches = past_caches;
    }

    /// The one for the current operation.
    pub(crate) fn now(&self) -> &WayScale {
        &self.both[usize::from(self.is_past_caches)]
    }

    pub(crate) fn now_mut(&mut self) -> &mut WayScale {
        &mut self.both[usize::from(self.is_past_caches)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_go_past_the_caches_are_weighed_apart() {
        let mut scales = WayScales::new(1);
        let mut offered = |past_caches, offers| -> Vec<Way> {
            scales.begin(past_caches);
            (0..offers).map(|_| (scales.now_mut().choose(), scales.now_mut().count()).0).collect()
        };
        assert_eq!(offered(false, 2), [Way::Fetch; 2]);
        assert!(offered(true, 30).ends_with(&[Way::Fetch; 10]), "a trial");
        assert_eq!(offered(false, 10), [Way::Fetch; 10], "no trial yet");
    }
}
