//! What is done with gradients as soon as they are reduced, on the stream on which they are taken: an optimizer's step inside backward.

use phalanx_core::{Error, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process, Stream};

use super::edge::Edge;
use super::groups::Means;
use super::model::DeviceSharded;
use super::store::{Home, Update};
use super::unit::Unit;
use crate::spec::Param;
use crate::unit::Then;

/// Puts on a stream what is done with a shard and its gradient.
pub(super) type Done<C> = Box<dyn FnMut(Update<C>, Stream) -> Result<Then> + Send>;

impl<N: Nccl, C: Cuda, P: Process> DeviceSharded<N, C, P> {
    /// Has `done` run for each reduced gradient of a parameter: it puts on the stream that it is given what is done with the shard and the
    /// gradient, both to write. A step of an optimizer that needs no other gradient, say, after which this one may be freed: the memory once
    /// all of the unit are, and until then it is zero. Where forward has used the unit several times it runs once, as
    /// [on the host](crate::Sharded::after_accumulate).
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that is not trained, and where gradients live on the host.
    pub fn after_accumulate(
        &mut self,
        param: Param,
        done: impl FnMut(Update<C>, Stream) -> Result<Then> + Send + 'static,
    ) -> Result<()> {
        let unit = self.unit(CALL, param.unit)?;
        let (spec, owner) = unit.layout.owner(&unit.spec, CALL, param.index)?;
        let value = || format!("{:?}", spec.name);
        if !unit.is_trained(owner) {
            return Err(Error::usage(CALL, "param", value(), "must be a trained one"));
        }
        if matches!(unit.store.home, Home::Host(_)) {
            return Err(Error::usage(CALL, "param", value(), "must not be offloaded"));
        }
        self.units[param.unit].after.push((owner, Box::new(done)));
        Ok(())
    }
}

/// Does what is to be done with the gradients of a unit, which were just taken, unless that waits.
pub(super) fn run<N: Nccl, C: Cuda, P: Process>(unit: &mut Unit<N, C, P>, means: &mut Means<N, C, P>) -> Result<()> {
    if unit.after.is_empty() || unit.is_behind {
        return Ok(());
    }
    let Means { deck, pool, .. } = means;
    let stream = deck.take;
    deck.order(Edge::StepAfterCopyIn, stream, &unit.read)?;
    let mut freed = Vec::new();
    for (owner, done) in &mut unit.after {
        let Some(update) = unit.store.on_device(*owner)? else { continue };
        if done(update, stream)? == Then::Free {
            freed.push(*owner);
        }
    }
    unit.is_stepped = true;
    unit.store.free((deck, pool), &freed)
}

const CALL: &str = "after_accumulate";
