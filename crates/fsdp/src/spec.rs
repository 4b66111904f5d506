//! What a model consists of, as its owner says it: units of parameters. Numbers follow in `layout`.

use std::ops::Range;
use std::sync::Arc;

use phalanx_core::DType;

use crate::{Extension, Reshard};

/// Parameters that are gathered together before they are used, and whose gradients are reduced together: a block of a model.
#[derive(Clone, Debug)]
#[must_use]
pub struct UnitSpec {
    pub(crate) name: String,
    pub(crate) params: Vec<ParamSpec>,
    pub(crate) reshard: Option<Reshard>,
    pub(crate) compute: Option<DType>,
    pub(crate) reduce: Option<DType>,
}

/// One parameter: its name, which no other of its unit has, and what it is.
#[derive(Clone, Debug)]
#[must_use]
pub struct ParamSpec {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    pub(crate) role: Role,
    pub(crate) extension: Option<Arc<dyn Extension>>,
}

/// What is done with a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is sharded and has a gradient.
    Trained,
    /// It is sharded and has none.
    Frozen,
    /// It is another parameter of the unit under a second name.
    Tied(String),
    /// It is the owner's own affair.
    Ignored,
}

/// A parameter of a sharded model: the number of its unit, and its own within that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Param {
    /// The unit, in the order in which they were given.
    pub unit: usize,
    /// The parameter, in the order in which the unit has them.
    pub index: usize,
}

/// Which part of which parameter this rank updates: elements of the flattened full parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The parameter's name.
    pub name: String,
    /// Its full shape.
    pub shape: Vec<usize>,
    /// This rank's elements, in order; none where it has no part.
    pub elements: Range<usize>,
    /// Whether this rank is the one that writes them down.
    pub is_first: bool,
    /// Whether it is trained.
    pub is_trained: bool,
}

impl UnitSpec {
    /// A unit of these parameters, in the order in which they lie in its buffers.
    pub fn new(name: impl Into<String>, params: Vec<ParamSpec>) -> UnitSpec {
        UnitSpec { name: name.into(), params, reshard: None, compute: None, reduce: None }
    }

    /// What becomes of this unit after its forward, in place of what the policy says: the one whose backward comes first
    /// may as well be kept.
    pub fn reshard_after_forward(mut self, reshard: Reshard) -> UnitSpec {
        self.reshard = Some(reshard);
        self
    }

    /// The type in which this unit's parameters are gathered and computed with, in place of what the policy says: a norm or the last layer in
    /// `f32`, say, where the rest is in `bf16`.
    pub fn compute(mut self, dtype: DType) -> UnitSpec {
        self.compute = Some(dtype);
        self
    }

    /// The type in which this unit's gradients are reduced, in place of what the policy says.
    pub fn reduce(mut self, dtype: DType) -> UnitSpec {
        self.reduce = Some(dtype);
        self
    }
}

impl ParamSpec {
    /// A trained parameter, which is sharded along its first dimension. A scalar has an empty shape and one owner.
    pub fn new(name: impl Into<String>, shape: &[usize], dtype: DType) -> ParamSpec {
        ParamSpec { name: name.into(), shape: shape.to_vec(), dtype, role: Role::Trained, extension: None }
    }

    /// Whether it has a gradient. A frozen one is sharded and gathered only. One that is tied or ignored stays so.
    pub fn trainable(mut self, trainable: bool) -> ParamSpec {
        if matches!(self.role, Role::Trained | Role::Frozen) {
            self.role = if trainable { Role::Trained } else { Role::Frozen };
        }
        self
    }

    /// The same parameter as `other`, which stands before it in the unit: it has no memory of its own, and its gradients
    /// are added to the other's.
    pub fn tied_to(mut self, other: impl Into<String>) -> ParamSpec {
        self.role = Role::Tied(other.into());
        self
    }

    /// Left alone: neither sharded nor gathered nor reduced.
    pub fn ignored(mut self) -> ParamSpec {
        self.role = Role::Ignored;
        self
    }

    /// Gathered in another form. It is decoded when it is copied out, and cannot be divided among a smaller group after forward.
    pub fn gathered_as(mut self, extension: Arc<dyn Extension>) -> ParamSpec {
        self.extension = Some(extension);
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The full shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The type in which its shard and its gradient are kept.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether it has a gradient under this name.
    pub fn is_trainable(&self) -> bool {
        self.role == Role::Trained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tied_or_ignored_stays_so_whether_it_is_to_be_trained_or_not() {
        let param = || ParamSpec::new("a", &[2], DType::F32);
        for trainable in [true, false] {
            assert_eq!(param().tied_to("b").trainable(trainable).role, Role::Tied("b".to_owned()));
            assert_eq!(param().ignored().trainable(trainable).role, Role::Ignored);
            assert_eq!(param().trainable(!trainable).trainable(trainable).is_trainable(), trainable);
        }
    }
}
