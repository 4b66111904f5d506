//! What the seed decides: a temper for the whole run, and then every choice in it.

use fastrand::Rng;

/// The choices of one run.
#[derive(Debug)]
pub(super) struct Draw {
    rng: Rng,
    /// In so many of 32 calls another thread may go first.
    switches: u32,
    /// How eager streams are beside threads; at 0 they run only when no thread can.
    streams: u32,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Draw {
        let mut rng = Rng::with_seed(seed ^ SALT);
        let switches = [1, 8, 32][rng.usize(..3)];
        let streams = [0, 0, 1, 8][rng.usize(..4)];
        Draw { rng, switches, streams }
    }

    /// Whether another may go first at this call.
    pub(super) fn switches(&mut self) -> bool {
        self.rng.u32(..32) < self.switches
    }

    /// How much a new thread or stream presses forward; a few are held back as long as can be.
    pub(super) fn weight(&mut self) -> u32 {
        [1, 16, 16, 64][self.rng.usize(..4)]
    }

    /// How much a stream presses beside threads.
    pub(super) fn eagerness(&self) -> u32 {
        self.streams
    }

    /// One of them, by their weights; none where all are 0.
    pub(super) fn choose<T: Copy>(&mut self, weighed: &[(T, u32)]) -> Option<T> {
        let total: u32 = weighed.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return None;
        }
        let mut at = self.rng.u32(..total);
        let chosen = weighed.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        chosen.map(|(one, _)| *one)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        self.rng.u32(..end)
    }
}

/// So that seed 0 is not the generator's own.
const SALT: u64 = 0x6e63_636c_7369_6d00;
