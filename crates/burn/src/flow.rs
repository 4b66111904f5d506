//! What units are given and return: tensors, and several of them. Between two units a graph is cut, and gradients are carried over.

use burn::tensor::{Bool, Gradients, Int, Tensor};

/// What a unit is given or returns: a tensor, several as a tuple or a list, an optional one, or nothing.
pub trait Flow: Clone + 'static {
    /// The gradients of what is in it.
    #[doc(hidden)]
    type Gradient: Default + 'static;

    /// The same without a graph, so that none grows from it.
    #[doc(hidden)]
    fn detached(self) -> Self;

    /// The same cut off from how it came about, as what gradients come to and go no further.
    #[doc(hidden)]
    fn cut(self) -> Self;

    /// Whether no graph leads on from it: it is what a unit has returned, or no unit had to do with it.
    #[doc(hidden)]
    fn is_cut(&self) -> bool;

    /// Adds the gradients that a backward has left for what was cut; whether there were any.
    #[doc(hidden)]
    fn collect(&self, from: &mut Gradients, into: &mut Self::Gradient) -> bool;

    /// A scalar whose gradients are the given ones: where a backward begins.
    #[doc(hidden)]
    fn seed(self, gradient: Self::Gradient) -> Option<Tensor<1>>;

    /// Whether both hold the same values.
    #[doc(hidden)]
    fn is_same(&self, other: &Self) -> bool;
}

impl<const D: usize> Flow for Tensor<D> {
    type Gradient = Option<Tensor<D>>;

    fn detached(self) -> Self {
        self.set_require_grad(false)
    }

    fn cut(self) -> Self {
        match self.is_autodiff() {
            true => self.detach().require_grad(),
            false => self,
        }
    }

    fn is_cut(&self) -> bool {
        !self.is_tracked() || self.is_require_grad()
    }

    fn collect(&self, from: &mut Gradients, into: &mut Self::Gradient) -> bool {
        let Some(gradient) = self.grad_remove(from) else { return false };
        *into = Some(match into.take() {
            Some(sum) => sum + gradient,
            None => gradient,
        });
        true
    }

    fn seed(self, gradient: Self::Gradient) -> Option<Tensor<1>> {
        gradient.filter(|_| self.is_tracked()).map(|gradient| (self * gradient).sum())
    }

    fn is_same(&self, other: &Self) -> bool {
        let plain = |tensor: &Self| tensor.clone().inner();
        let (one, other) = (plain(self), plain(other));
        // What is no number equals nothing, itself included.
        let both = one.clone().is_nan().bool_and(other.clone().is_nan());
        one.dims() == other.dims() && one.equal(other).bool_or(both).all().into_scalar::<bool>()
    }
}

macro_rules! without_gradient {
    ($($kind:ty),*) => {$(
        impl<const D: usize> Flow for Tensor<D, $kind> {
            type Gradient = ();

            fn detached(self) -> Self {
                self
            }

            fn cut(self) -> Self {
                self
            }

            fn is_cut(&self) -> bool {
                true
            }

            fn collect(&self, _from: &mut Gradients, _into: &mut ()) -> bool {
                false
            }

            fn seed(self, _gradient: ()) -> Option<Tensor<1>> {
                None
            }

            fn is_same(&self, other: &Self) -> bool {
                self.dims() == other.dims() && self.clone().equal(other.clone()).all().into_scalar::<bool>()
            }
        }
    )*};
}

without_gradient!(Int, Bool);

impl Flow for () {
    type Gradient = ();

    fn detached(self) -> Self {}

    fn cut(self) -> Self {}

    fn is_cut(&self) -> bool {
        true
    }

    fn collect(&self, _from: &mut Gradients, _into: &mut ()) -> bool {
        false
    }

    fn seed(self, _gradient: ()) -> Option<Tensor<1>> {
        None
    }

    fn is_same(&self, _other: &Self) -> bool {
        true
    }
}

macro_rules! several {
    ($($part:ident $at:tt),*) => {
        impl<$($part: Flow),*> Flow for ($($part,)*) {
            type Gradient = ($($part::Gradient,)*);

            fn detached(self) -> Self {
                ($(self.$at.detached(),)*)
            }

            fn cut(self) -> Self {
                ($(self.$at.cut(),)*)
            }

            fn is_cut(&self) -> bool {
                $(self.$at.is_cut())&&*
            }

            fn collect(&self, from: &mut Gradients, into: &mut Self::Gradient) -> bool {
                // Each of them takes what is its own.
                [$(self.$at.collect(from, &mut into.$at)),*].contains(&true)
            }

            fn seed(self, gradient: Self::Gradient) -> Option<Tensor<1>> {
                [$(self.$at.seed(gradient.$at)),*].into_iter().flatten().reduce(|sum, next| sum + next)
            }

            fn is_same(&self, other: &Self) -> bool {
                $(self.$at.is_same(&other.$at))&&*
            }
        }
    };
}

several!(A 0, B 1);
several!(A 0, B 1, C 2);
several!(A 0, B 1, C 2, D 3);

impl<T: Flow> Flow for Vec<T> {
    type Gradient = Vec<T::Gradient>;

    fn detached(self) -> Self {
        self.into_iter().map(T::detached).collect()
    }

    fn cut(self) -> Self {
        self.into_iter().map(T::cut).collect()
    }

    fn is_cut(&self) -> bool {
        self.iter().all(T::is_cut)
    }

    fn collect(&self, from: &mut Gradients, into: &mut Self::Gradient) -> bool {
        into.resize_with(self.len(), T::Gradient::default);
        self.iter().zip(into).fold(false, |any, (part, into)| part.collect(from, into) || any)
    }

    fn seed(self, gradient: Self::Gradient) -> Option<Tensor<1>> {
        let parts = self.into_iter().zip(gradient).filter_map(|(part, gradient)| part.seed(gradient));
        parts.reduce(|sum, next| sum + next)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other).all(|(one, other)| one.is_same(other))
    }
}

impl<T: Flow> Flow for Option<T> {
    type Gradient = T::Gradient;

    fn detached(self) -> Self {
        self.map(T::detached)
    }

    fn cut(self) -> Self {
        self.map(T::cut)
    }

    fn is_cut(&self) -> bool {
        self.as_ref().is_none_or(T::is_cut)
    }

    fn collect(&self, from: &mut Gradients, into: &mut Self::Gradient) -> bool {
        self.as_ref().is_some_and(|part| part.collect(from, into))
    }

    fn seed(self, gradient: Self::Gradient) -> Option<Tensor<1>> {
        self.and_then(|part| part.seed(gradient))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(one), Some(other)) => one.is_same(other),
            (None, None) => true,
            _ => false,
        }
    }
}
