//! Vector clocks: what has happened before what, over all threads of the host and all streams.

/// A thread of the host or a stream, by number.
pub(super) type Actor = usize;

/// What somebody knows of: of every actor, up to which of its moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Order(Vec<u64>);

impl Order {
    /// Takes in all that another knows.
    pub(super) fn join(&mut self, other: &Order) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, &other)| *own = (*own).max(other));
    }

    /// The actor's next moment.
    pub(super) fn tick(&mut self, actor: Actor) -> u64 {
        if self.0.len() <= actor {
            self.0.resize(actor + 1, 0);
        }
        self.0[actor] += 1;
        self.0[actor]
    }

    /// The moment of an actor that is known.
    pub(super) fn moment(&self, actor: Actor) -> u64 {
        self.0.get(actor).copied().unwrap_or_default()
    }

    /// Whether a moment of an actor came before.
    pub(super) fn knows(&self, actor: Actor, moment: u64) -> bool {
        self.0.get(actor).is_some_and(|&known| known >= moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_passed_on_is_not_known() {
        let (mut one, mut other) = (Order::default(), Order::default());
        let first = one.tick(0);
        other.join(&one);
        let second = one.tick(0);
        assert!(other.knows(0, first) && !other.knows(0, second));
        other.tick(3);
        assert!(!one.knows(3, 1));
    }
}
