//! A model as units: modules whose parameters are gathered together, each known by a handle.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::module::Module;
use phalanx_fsdp::Reshard;

use crate::held::{Held, Typed};

/// A module that was added to [`Units`]: by this it is [run](crate::FullyShard::run).
pub struct Unit<M> {
    pub(crate) at: usize,
    /// The number of the model.
    pub(crate) of: u64,
    module: PhantomData<fn() -> M>,
}

impl<M> Clone for Unit<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Unit<M> {}

impl<M> fmt::Debug for Unit<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Unit").field(&self.at).finish()
    }
}

/// The modules that a model consists of, in the order in which its forward mostly comes to them.
pub struct Units {
    pub(crate) held: Vec<Box<dyn Held>>,
    /// By which units of one model are told from another's.
    pub(crate) number: u64,
}

impl Default for Units {
    fn default() -> Units {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Units { held: vec![], number: MADE.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Units {
    /// None yet.
    pub fn new() -> Units {
        Units::default()
    }

    /// Adds a module under a name that no other unit has, which the names of its parameters begin with. It must be on a device with
    /// autodiff. Its parameters are sharded, trained and frozen ones, and get ids that follow from their names; running averages and packed
    /// weights each rank keeps whole. One with running averages keeps its full parameters after forward, whatever the policy says.
    pub fn add<M: Module + 'static>(&mut self, name: impl Into<String>, module: M) -> Unit<M> {
        self.hold(Typed::new(name.into(), module, None))
    }

    /// The same where this unit's full parameters are kept or freed after forward whatever the policy says. Where they are freed, backward runs it
    /// once more, and running averages count what they see twice.
    pub fn add_with<M: Module + 'static>(
        &mut self,
        name: impl Into<String>,
        module: M,
        reshard_after_forward: Reshard,
    ) -> Unit<M> {
        self.hold(Typed::new(name.into(), module, Some(reshard_after_forward)))
    }

    fn hold<M: Module + 'static>(&mut self, typed: Typed<M>) -> Unit<M> {
        self.held.push(Box::new(typed));
        Unit { at: self.held.len() - 1, of: self.number, module: PhantomData }
    }
}

impl fmt::Debug for Units {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.held.iter().map(|held| held.name())).finish()
    }
}
