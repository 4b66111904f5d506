//! How long the calls of one handle may take. The group itself is the same for all of them.

use std::time::Duration;

use super::Group;

impl Group {
    /// The same group through a handle whose calls may take this long, instead of what
    /// [`GroupOptions::timeout`](crate::GroupOptions::timeout) says. A call that takes longer ends the group all the same.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use phalanx_core::{Group, ReduceOp, Result};
    /// # fn step(group: &Group, loss: &mut [f32]) -> Result<()> {
    /// group.within(Duration::from_secs(5)).all_reduce(loss, ReduceOp::Avg)
    /// # }
    /// ```
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Group {
        Group { timeout, ..self.clone() }
    }

    /// How long a call of this handle may take before it ends in [`Error::Timeout`](crate::Error::Timeout).
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}
