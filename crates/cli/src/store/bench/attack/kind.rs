//! The ways in which strangers try to get in.

use std::fmt;

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// PyTorch's words, as if the store had no key.
    NoKey,
    /// A handshake with another key.
    WrongKey,
    /// The bytes of a handshake that was once let in.
    Replay,
    /// The right key, and a rank that somebody else has.
    TakenRank,
    /// The right key, and an epoch that is over.
    OldEpoch,
    /// Any bytes.
    RandomBytes,
    /// Lengths that would take all memory, in each place that has one.
    Lengths,
    /// A hello that comes a byte at a time.
    Drip,
}

impl Kind {
    pub(super) const ALL: [Kind; 8] = [
        Kind::NoKey,
        Kind::WrongKey,
        Kind::Replay,
        Kind::TakenRank,
        Kind::OldEpoch,
        Kind::RandomBytes,
        Kind::Lengths,
        Kind::Drip,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::NoKey => "no key",
            Kind::WrongKey => "wrong key",
            Kind::Replay => "replayed handshake",
            Kind::TakenRank => "claimed rank",
            Kind::OldEpoch => "old epoch",
            Kind::RandomBytes => "random bytes",
            Kind::Lengths => "length bombs",
            Kind::Drip => "slow-loris",
        }
    }

    /// Whether such a stranger has the job key, and may be told why it is sent away.
    pub(super) fn has_key(self) -> bool {
        matches!(self, Kind::TakenRank | Kind::OldEpoch)
    }

    /// How many of `tries` are of this kind: equal parts, the first ones of what does not divide.
    pub(super) fn share(self, tries: u32) -> u32 {
        let kinds = Kind::ALL.len() as u32;
        tries / kinds + u32::from((self as u32) < tries % kinds)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for tries in [1, 7, 8, 9, 100_000, u32::MAX] {
            assert_eq!(Kind::ALL.iter().map(|kind| kind.share(tries)).sum::<u32>(), tries);
        }
    }
}
