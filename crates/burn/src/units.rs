//! A model as units: modules whose parameters are gathered together, each known by a handle.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::module::Module;
use phalanx_core::DType;
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

/// What a unit says for itself, in place of what the policy says of all.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct UnitOptions {
    pub(crate) reshard: Option<Reshard>,
    pub(crate) compute: Option<DType>,
    pub(crate) reduce: Option<DType>,
}

impl UnitOptions {
    /// Whether its full parameters are kept or freed after forward. Where they are freed, backward runs it once more, and running averages count
    /// what they see twice.
    pub fn reshard_after_forward(mut self, reshard: Reshard) -> UnitOptions {
        self.reshard = Some(reshard);
        self
    }

    /// The type in which its parameters are gathered and computed with: a norm in `f32`, say, where the rest is in `bf16`. Its function casts what
    /// it is given.
    pub fn compute(mut self, dtype: DType) -> UnitOptions {
        self.compute = Some(dtype);
        self
    }

    /// The type in which its gradients are reduced.
    pub fn reduce(mut self, dtype: DType) -> UnitOptions {
        self.reduce = Some(dtype);
        self
    }
}

impl From<Reshard> for UnitOptions {
    fn from(reshard: Reshard) -> UnitOptions {
        UnitOptions::default().reshard_after_forward(reshard)
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
        self.hold(Typed::new(name.into(), module, UnitOptions::default()))
    }

    /// The same for a unit that says something for itself, whatever the policy says: [options](UnitOptions), or a [`Reshard`] alone.
    pub fn add_with<M: Module + 'static>(
        &mut self,
        name: impl Into<String>,
        module: M,
        options: impl Into<UnitOptions>,
    ) -> Unit<M> {
        self.hold(Typed::new(name.into(), module, options.into()))
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
