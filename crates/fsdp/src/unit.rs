//! One unit on this rank: its shards and gradients, and whatever of it is in the air. What comes next is the machine's to say.

use std::fmt;

use phalanx_core::{Element, Error, Result};
use phalanx_mem::Buffer;

use crate::arena::Arena;
use crate::cast::{slice, slice_mut};
use crate::flight::Flight;
use crate::hooks::Wire;
use crate::layout::{Row, UnitLayout};
use crate::memory::Class;
use crate::reduce;
use crate::spec::{ParamSpec, Role, UnitSpec};

/// A unit and everything this rank has of it.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) spec: UnitSpec,
    pub(crate) layout: UnitLayout,
    params: Vec<Stored>,
    pub(crate) full: Full,
    /// This rank's row in the smaller group.
    pub(crate) narrow: Option<Buffer>,
    pub(crate) reducing: Reducing,
    /// Whether those that are being reduced are dropped once they are.
    pub(crate) is_given_up: bool,
    /// Whether what is done with reduced gradients waits for more of them.
    pub(crate) is_behind: bool,
    /// The reduced row that replicas have not joined.
    pub(crate) partial: Option<Buffer>,
    /// Rows of gradients that were not reduced.
    pub(crate) accumulated: Option<Buffer>,
    /// Whether gradients are reduced as they come.
    pub(crate) syncs: bool,
}

/// What becomes of a gradient after something was done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It stays, and the next is added to it.
    Keep,
    /// It is freed.
    Free,
}

/// What is done with a shard and its gradient, as bytes.
type Done = Box<dyn FnMut(&mut [u8], &mut [u8]) -> Then + Send>;

/// What a rank keeps of one parameter; nothing where another one owns it.
#[derive(Default)]
struct Stored {
    shard: Option<Buffer>,
    gradient: Option<Buffer>,
    /// Whether a gradient came since the last step.
    is_used: bool,
    after_accumulate: Vec<Done>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("shard", &self.shard).field("gradient", &self.gradient).finish_non_exhaustive()
    }
}

/// The full parameters.
#[derive(Debug, Default)]
pub(crate) enum Full {
    #[default]
    Absent,
    Coming {
        flight: Flight,
        is_narrow: bool,
    },
    Here {
        buffer: Buffer,
        is_narrow: bool,
    },
}

/// Gradients on their way.
#[derive(Debug, Default)]
pub(crate) enum Reducing {
    #[default]
    Nothing,
    Scattering(Flight),
    /// What a hook made of them, and what it said that is.
    Packed(Flight, Wire),
    /// This rank's row is reduced, and begins at this byte of the buffer.
    Scattered(Buffer, usize),
    /// This rank's row between the buffers around it.
    Joining(Buffer, Flight, Buffer),
}

impl Unit {
    pub(crate) fn new(spec: UnitSpec, layout: UnitLayout, rank: usize, arena: &mut Arena) -> Result<Unit> {
        let store = |index: usize| {
            let mut stored = Stored::default();
            if layout.owners[index] == Some(index) {
                let byte_len = layout.divisions[index].elements(rank).len() * spec.params[index].dtype.byte_len();
                stored.shard = Some(arena.take_own(Class::Sharded, byte_len)?);
            }
            Ok(stored)
        };
        let params = (0..spec.params.len()).map(store).collect::<Result<_>>()?;
        Ok(Unit {
            spec,
            layout,
            params,
            full: Full::Absent,
            narrow: None,
            reducing: Reducing::Nothing,
            is_given_up: false,
            is_behind: false,
            partial: None,
            accumulated: None,
            syncs: true,
        })
    }

    /// That how its gradients are joined and divided may change.
    pub(crate) fn check_still(&self, call: &'static str) -> Result<()> {
        let waits = [!matches!(self.reducing, Reducing::Nothing), self.partial.is_some()];
        reduce::check_still(call, &self.spec, waits)
    }

    /// A parameter by number, and the one that owns its memory.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where there is none, or it is ignored.
    pub(crate) fn owner(&self, call: &'static str, index: usize) -> Result<(&ParamSpec, usize)> {
        self.layout.owner(&self.spec, call, index)
    }

    /// The same, and that its elements are of type `T`.
    pub(crate) fn owner_of<T: Element>(&self, call: &'static str, index: usize) -> Result<usize> {
        let (spec, owner) = self.owner(call, index)?;
        if spec.dtype == T::DTYPE {
            return Ok(owner);
        }
        let expected = format!("must be {}, that of {:?}", spec.dtype, spec.name);
        Err(Error::usage(call, "dtype", T::DTYPE, expected))
    }

    pub(crate) fn is_trained(&self, owner: usize) -> bool {
        self.spec.params[owner].role == Role::Trained
    }

    /// The bytes of a shard; its owner's number is asked for.
    pub(crate) fn shard(&self, owner: usize) -> &[u8] {
        self.params[owner].shard.as_ref().map_or(&[], Buffer::as_bytes)
    }

    pub(crate) fn shard_mut(&mut self, owner: usize) -> &mut [u8] {
        self.params[owner].shard.as_mut().map_or(&mut [], Buffer::as_bytes_mut)
    }

    pub(crate) fn gradient(&self, owner: usize) -> Option<&[u8]> {
        self.params[owner].gradient.as_ref().map(Buffer::as_bytes)
    }

    pub(crate) fn gradient_mut(&mut self, owner: usize) -> Option<&mut [u8]> {
        self.params[owner].gradient.as_mut().map(Buffer::as_bytes_mut)
    }

    /// A shard to write and its gradient to read.
    pub(crate) fn update<T: Element>(&mut self, owner: usize) -> (&mut [T], Option<&[T]>) {
        let Stored { shard, gradient, .. } = &mut self.params[owner];
        let shard = shard.as_mut().map_or(&mut [][..], |shard| slice_mut(shard.as_bytes_mut()));
        (shard, gradient.as_ref().map(|gradient| slice(gradient.as_bytes())))
    }

    pub(crate) fn put_gradient(&mut self, owner: usize, gradient: Buffer) {
        self.params[owner].gradient = Some(gradient);
    }

    pub(crate) fn take_gradient(&mut self, owner: usize) -> Option<Buffer> {
        self.params[owner].is_used = false;
        self.params[owner].gradient.take()
    }

    /// Has `done` run whenever a gradient was reduced.
    pub(crate) fn after_accumulate(&mut self, owner: usize, done: Done) {
        self.params[owner].after_accumulate.push(done);
    }

    /// Whether anything was done with gradients that have just come, which may have written shards.
    pub(crate) fn writes_shards(&self) -> bool {
        !self.is_behind && self.params.iter().any(|param| !param.after_accumulate.is_empty())
    }

    /// Runs what is to be done with a new gradient, unless that waits; gives it back where it is not needed any more.
    pub(crate) fn accumulated(&mut self, owner: usize) -> Option<Buffer> {
        if self.is_behind {
            return None;
        }
        let Stored { shard: Some(shard), gradient, after_accumulate, .. } = &mut self.params[owner] else {
            return None;
        };
        let bytes = gradient.as_mut()?.as_bytes_mut();
        let mut then = Then::Keep;
        for done in after_accumulate {
            if done(shard.as_bytes_mut(), bytes) == Then::Free {
                then = Then::Free;
            }
        }
        gradient.take_if(|_| then == Then::Free)
    }

    /// That a gradient of this parameter came.
    pub(crate) fn note_used(&mut self, owner: usize) {
        self.params[owner].is_used = true;
    }

    /// Trained parameters of which no gradient came.
    pub(crate) fn unused(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.params.len()).filter(|index| self.is_trained(*index) && !self.params[*index].is_used)
    }

    /// The full parameters, and how they lie.
    pub(crate) fn full(&self) -> Option<(&Row, &[u8])> {
        let Full::Here { buffer, is_narrow } = &self.full else { return None };
        Some((self.layout.gathered(*is_narrow), buffer.as_bytes()))
    }
}
