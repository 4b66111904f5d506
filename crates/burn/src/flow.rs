//! What units are given and return: tensors, and several of them. Between two units a graph is cut, and gradients are carried over.

use burn::tensor::{Bool, DType, Gradients, Int, Tensor};

/// What a unit is given or returns: a tensor, several as a tuple or a list, an optional one, or nothing.
pub trait Flow: Clone + 'static {
    /// The gradients of what is in it.
    #[doc(hidden)]
    type Gradient: Default + 'static;

    /// The same without a graph, so that none grows from it.
    #[doc(hidden)]
    fn detached(self) -> Self;

    /// The same outside all autodiff.
    #[doc(hidden)]
    fn plain(self) -> Self;

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

    /// Whether both hold the same values, but for how a device may round sums that it makes in several ways.
    #[doc(hidden)]
    fn is_same(&self, other: &Self) -> bool;
}

impl<const D: usize> Flow for Tensor<D> {
    type Gradient = Option<Tensor<D>>;

    fn detached(self) -> Self {
        self.set_require_grad(false)
    }

    fn plain(self) -> Self {
        self.without_autodiff()
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
        let gradient = gradient.filter(|_| self.is_tracked())?;
        let seed = (self * gradient).sum();
        // Seeds of several types are added.
        Some(if seed.dtype() == DType::F32 { seed } else { seed.cast(DType::F32) })
    }

    fn is_same(&self, other: &Self) -> bool {
        if self.dims() != other.dims() {
            return false;
        }
        if self.dims().contains(&0) {
            return true;
        }
        let (one, other) = (self.clone().plain(), other.clone().plain());
        // What is no number equals nothing, itself included. It and infinities are where they were, and bound no rounding.
        let are_nan = one.clone().is_nan().bool_and(other.clone().is_nan());
        let are_equal = one.clone().equal(other.clone()).bool_or(are_nan);
        let are_finite = one.clone().is_finite().bool_and(other.clone().is_finite());
        if !are_equal.bool_or(are_finite.clone()).all().into_scalar::<bool>() {
            return false;
        }
        let are_odd = are_finite.bool_not();
        let largest = |tensor: Tensor<D>| tensor.abs().mask_fill(are_odd.clone(), 0.0).max().into_scalar::<f64>();
        let rounding = if matches!(one.dtype(), DType::F64 | DType::F32) { 1e-4 } else { 1e-2 };
        largest(one.clone() - other) <= rounding * largest(one)
    }
}

/// All that is done about gradients where there are none.
macro_rules! no_gradient {
    () => {
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
    };
}

macro_rules! without_gradient {
    ($($kind:ty),*) => {$(
        impl<const D: usize> Flow for Tensor<D, $kind> {
            no_gradient!();

            fn plain(self) -> Self {
                self.without_autodiff()
            }

            fn is_same(&self, other: &Self) -> bool {
                let are_equal = || self.clone().equal(other.clone()).all().into_scalar::<bool>();
                self.dims() == other.dims() && (self.dims().contains(&0) || are_equal())
            }
        }
    )*};
}

without_gradient!(Int, Bool);

impl Flow for () {
    no_gradient!();

    fn plain(self) -> Self {}

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

            fn plain(self) -> Self {
                ($(self.$at.plain(),)*)
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

    fn plain(self) -> Self {
        self.into_iter().map(T::plain).collect()
    }

    fn cut(self) -> Self {
        self.into_iter().map(T::cut).collect()
    }

    fn is_cut(&self) -> bool {
        self.iter().all(T::is_cut)
    }

    fn collect(&self, from: &mut Gradients, into: &mut Self::Gradient) -> bool {
        into.resize_with(self.len(), T::Gradient::default);
        let mut any = false;
        for (part, into) in self.iter().zip(into) {
            any |= part.collect(from, into);
        }
        any
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

    fn plain(self) -> Self {
        self.map(T::plain)
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

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    fn is_same(one: &[f32], other: &[f32], dtype: DType) -> bool {
        let tensor = |values: &[f32]| {
            let data = TensorData::new(values.to_vec(), [values.len()]);
            Tensor::<1>::from_data(data, &Device::flex().autodiff()).cast(dtype)
        };
        tensor(one).is_same(&tensor(other))
    }

    const NAN: f32 = f32::NAN;
    const INFINITE: f32 = f32::INFINITY;

    #[test]
    fn what_differs_by_rounding_is_the_same() {
        assert!(is_same(&[100.0, 0.001], &[100.0, 0.002], DType::F32));
        assert!(!is_same(&[100.0, 0.001], &[100.0, 0.1], DType::F32));
        assert!(is_same(&[100.0, 0.001], &[100.0, 0.1], DType::BF16));
        assert!(is_same(&[0.0], &[-0.0], DType::F32));
        assert!(!is_same(&[0.0], &[1e-30], DType::F32));
        assert!(!is_same(&[1.0], &[1.0, 1.0], DType::F32));
    }

    #[test]
    fn what_has_no_elements_is_the_same() {
        let (none, ids) = (Tensor::<2>::zeros([0, 3], &Device::flex()), Tensor::<1, Int>::zeros([0], &Device::flex()));
        assert!(none.is_same(&none.clone()) && ids.is_same(&ids.clone()));
        assert!(!none.is_same(&Tensor::zeros([3, 0], &Device::flex())));
    }

    #[test]
    fn what_is_no_finite_number_stays_where_it_is_and_hides_no_difference() {
        let with = |value: f32| [NAN, INFINITE, -INFINITE, 1.0, value];
        assert!(is_same(&with(2.0), &with(2.0), DType::F32));
        assert!(is_same(&with(2.0), &with(2.00001), DType::F32));
        for other in [3.0, NAN, INFINITE, -INFINITE] {
            assert!(!is_same(&with(2.0), &with(other), DType::F32), "{other}");
            assert!(!is_same(&with(other), &with(2.0), DType::F32), "{other}");
        }
        assert!(!is_same(&with(INFINITE), &with(-INFINITE), DType::F32));
        assert!(!is_same(&with(INFINITE), &with(NAN), DType::F32));
        // Two numbers whose difference is none.
        assert!(!is_same(&[3e38], &[-3e38], DType::F32));
    }
}
