//! Views: elements with a shape and strides, as tensor libraries have them. Operations take slices, so a view says whether it
//! is one, and by name why not. No element is moved here.

use std::fmt;
use std::ops::RangeInclusive;

use num_complex::Complex;
use smallvec::SmallVec;

use crate::{Element, Error, OpKind, ReduceOp, Result};

/// Elements that are only read, in a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct View<'a, T> {
    data: &'a [T],
    form: Form,
}

/// Elements that may be written, in a shape.
#[derive(Debug, PartialEq)]
pub struct ViewMut<'a, T> {
    data: &'a mut [T],
    form: Form,
}

/// How many elements there are along each dimension, and how far apart they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    shape: Lens,
    strides: Strides,
    /// Elements in all; a product that fits, as the view was found to lie within its slice.
    len: usize,
}

type Lens = SmallVec<[usize; 6]>;
type Strides = SmallVec<[isize; 6]>;

/// A shape and strides that do not lie within their slice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a view of shape {shape:?} with strides {strides:?} {why}")]
pub struct BadView {
    shape: Vec<usize>,
    strides: Vec<isize>,
    why: String,
}

impl<'a, T> View<'a, T> {
    /// A view of this shape, whose elements lie `strides` apart, in elements; the first is the slice's first.
    ///
    /// # Errors
    ///
    /// [`BadView`] where there is not one stride for each dimension, or an element would lie outside the slice.
    pub fn new(data: &'a [T], shape: &[usize], strides: &[isize]) -> Result<View<'a, T>, BadView> {
        Ok(View { form: Form::within(data.len(), shape, strides)?, data })
    }

    /// A view of this shape whose elements lie one behind the other, the last dimension first.
    ///
    /// # Errors
    ///
    /// [`BadView`] where the slice has fewer elements.
    pub fn contiguous(data: &'a [T], shape: &[usize]) -> Result<View<'a, T>, BadView> {
        View::new(data, shape, &row_major(shape))
    }

    /// The elements as the slice that an operation takes as `argument`.
    ///
    /// # Errors
    ///
    /// [`Usage`](Error::Usage), which names the argument, when they do not lie one behind the other.
    pub fn elements(&self, op: OpKind, argument: &'static str) -> Result<&'a [T]> {
        self.form.check_contiguous(op, argument)?;
        Ok(&self.data[..self.form.len])
    }
}

impl<'a, T> ViewMut<'a, T> {
    /// A view of this shape, whose elements lie `strides` apart, in elements; the first is the slice's first.
    ///
    /// # Errors
    ///
    /// [`BadView`] where there is not one stride for each dimension, or an element would lie outside the slice.
    pub fn new(data: &'a mut [T], shape: &[usize], strides: &[isize]) -> Result<ViewMut<'a, T>, BadView> {
        Ok(ViewMut { form: Form::within(data.len(), shape, strides)?, data })
    }

    /// A view of this shape whose elements lie one behind the other, the last dimension first.
    ///
    /// # Errors
    ///
    /// [`BadView`] where the slice has fewer elements.
    pub fn contiguous(data: &'a mut [T], shape: &[usize]) -> Result<ViewMut<'a, T>, BadView> {
        ViewMut::new(data, shape, &row_major(shape))
    }

    /// The elements as the slice that an operation takes as `argument`.
    ///
    /// # Errors
    ///
    /// As [`View::elements`].
    pub fn elements(self, op: OpKind, argument: &'static str) -> Result<&'a mut [T]> {
        self.form.check_contiguous(op, argument)?;
        Ok(&mut self.data[..self.form.len])
    }
}

/// What both kinds of view say of themselves.
macro_rules! readings {
    ($($view:ident),*) => {$(
        impl<T> $view<'_, T> {
            /// Elements along each dimension.
            pub fn shape(&self) -> &[usize] {
                &self.form.shape
            }

            /// How far apart the elements of each dimension lie, in elements.
            pub fn strides(&self) -> &[isize] {
                &self.form.strides
            }

            /// Elements in all.
            pub fn len(&self) -> usize {
                self.form.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.form.len == 0
            }

            /// Whether the elements lie one behind the other, the last dimension first.
            pub fn is_contiguous(&self) -> bool {
                self.form.is_contiguous()
            }
        }
    )*};
}

readings!(View, ViewMut);

/// The parts of complex numbers as twice as many real ones, for an operation that is the same on both.
///
/// # Errors
///
/// [`Usage`](Error::Usage) for a reduction that takes a complex number for more than its parts.
pub fn reals<T>(op: OpKind, reduce: ReduceOp, data: &mut [Complex<T>]) -> Result<&mut [T]>
where
    T: Element,
    Complex<T>: Element,
{
    match reduce {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => Ok(bytemuck::cast_slice_mut(data)),
        other => {
            let dtype = <Complex<T> as Element>::DTYPE;
            let expected = format!("which is not the same on {dtype} and its parts: sum, avg and premul_sum are");
            Err(Error::usage(op, "op", other, expected))
        }
    }
}

impl Form {
    /// A form whose every element lies within `available`.
    fn within(available: usize, shape: &[usize], strides: &[isize]) -> Result<Form, BadView> {
        let bad = |why: String| BadView { shape: shape.to_vec(), strides: strides.to_vec(), why };
        if shape.len() != strides.len() {
            return Err(bad("must have a stride for each dimension".to_owned()));
        }
        let (shape, strides) = (Lens::from_slice(shape), Strides::from_slice(strides));
        if shape.contains(&0) {
            return Ok(Form { shape, strides, len: 0 });
        }
        let reach = reach(&shape, &strides).ok_or_else(|| bad("reaches beyond memory".to_owned()))?;
        if *reach.start() < 0 || usize::try_from(*reach.end()).is_ok_and(|last| last >= available) {
            let (first, last) = (reach.start(), reach.end());
            return Err(bad(format!("reaches from {first} to {last}, must lie within {available} elements")));
        }
        let len = shape.iter().try_fold(1_usize, |len, dimension| len.checked_mul(*dimension));
        let len = len.ok_or_else(|| bad("has more elements than memory".to_owned()))?;
        Ok(Form { shape, strides, len })
    }

    /// Along a dimension of one element no stride is ever taken.
    fn is_contiguous(&self) -> bool {
        let due = row_major(&self.shape);
        let dimensions = self.shape.iter().zip(&self.strides).zip(&due);
        self.len == 0 || dimensions.into_iter().all(|((len, stride), due)| *len == 1 || stride == due)
    }

    fn check_contiguous(&self, op: OpKind, argument: &'static str) -> Result<()> {
        if self.is_contiguous() {
            return Ok(());
        }
        let expected = format!("must be contiguous, with strides {:?}", row_major(&self.shape).as_slice());
        Err(Error::usage(op, argument, self, expected))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of shape {:?} with strides {:?}", self.shape.as_slice(), self.strides.as_slice())
    }
}

/// The places of the lowest and the highest element, from that of the first one; none beyond what can be counted.
fn reach(shape: &[usize], strides: &[isize]) -> Option<RangeInclusive<isize>> {
    shape.iter().zip(strides).try_fold(0..=0_isize, |reach, (len, stride)| {
        let last = isize::try_from(len - 1).ok()?.checked_mul(*stride)?;
        let (start, end) = (reach.start().checked_add(last.min(0))?, reach.end().checked_add(last.max(0))?);
        Some(start..=end)
    })
}

/// The strides of elements that lie one behind the other, the last dimension first. They saturate for shapes that fit no
/// slice, which are refused by their reach.
fn row_major(shape: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(1, shape.len());
    for at in (1..shape.len()).rev() {
        let len = isize::try_from(shape[at].max(1)).unwrap_or(isize::MAX);
        strides[at - 1] = strides[at].saturating_mul(len);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contiguous(len: usize, shape: &[usize], strides: &[isize]) -> Result<bool, String> {
        let data = vec![0_u8; len];
        View::new(&data, shape, strides).map(|view| view.is_contiguous()).map_err(|bad| bad.to_string())
    }

    #[test]
    fn what_lies_one_behind_the_other_is_a_slice() {
        let data: Vec<u32> = (0..24).collect();
        let view = View::contiguous(&data, &[2, 3, 4]).unwrap();
        assert_eq!((view.shape(), view.strides(), view.len()), (&[2, 3, 4][..], &[12, 4, 1][..], 24));
        assert_eq!(view.elements(OpKind::AllReduce, "data"), Ok(&data[..]));
        let first = View::new(&data, &[2, 4], &[4, 1]).unwrap();
        assert_eq!(first.elements(OpKind::AllReduce, "data"), Ok(&data[..8]));
        // One element, or none, is never apart.
        assert_eq!(contiguous(4, &[1, 4, 1], &[99, 1, -7]), Ok(true));
        assert_eq!(contiguous(0, &[5, 0], &[isize::MAX, isize::MIN]), Ok(true));
        assert_eq!(contiguous(1, &[], &[]), Ok(true));
        let mut data = data;
        let view = ViewMut::contiguous(&mut data, &[24]).unwrap();
        view.elements(OpKind::Broadcast, "data").unwrap()[23] = 7;
        assert_eq!(data[23], 7);
    }

    #[test]
    fn what_does_not_is_refused_by_name() {
        let (mut data, refused) =
            ([0_f32; 12], "of shape [3, 4] with strides [1, 3], must be contiguous, with strides [4, 1]");
        let view = View::new(&data, &[3, 4], &[1, 3]).unwrap();
        let error = view.elements(OpKind::AllGather, "input").unwrap_err();
        assert_eq!(error.to_string(), format!("all_gather: input is {refused}"));
        let view = ViewMut::new(&mut data, &[3, 4], &[1, 3]).unwrap();
        let error = view.elements(OpKind::AllGather, "output").unwrap_err();
        assert_eq!(error.to_string(), format!("all_gather: output is {refused}"));
        assert_eq!(contiguous(9, &[3, 3], &[0, 1]), Ok(false));
        assert_eq!(contiguous(9, &[4], &[2]), Ok(false));
    }

    #[test]
    fn no_view_reaches_beyond_its_slice() {
        let bad = |len, shape: &[usize], strides: &[isize], why: &str| {
            let expected = format!("a view of shape {shape:?} with strides {strides:?} {why}");
            assert_eq!(contiguous(len, shape, strides), Err(expected));
        };
        bad(11, &[3, 4], &[4, 1], "reaches from 0 to 11, must lie within 11 elements");
        bad(0, &[], &[], "reaches from 0 to 0, must lie within 0 elements");
        bad(9, &[3], &[-1], "reaches from -2 to 0, must lie within 9 elements");
        bad(9, &[3], &[], "must have a stride for each dimension");
        bad(9, &[usize::MAX], &[1], "reaches beyond memory");
        bad(9, &[1 << 62, 3], &[2, 1], "reaches beyond memory");
        bad(
            9,
            &[1 << 40, 1 << 40],
            &[1, 0],
            &format!("reaches from 0 to {}, must lie within 9 elements", (1_u64 << 40) - 1),
        );
        bad(9, &[usize::MAX / 2, 4], &[0, 0], "has more elements than memory");
        assert!(View::contiguous(&[0_u8; 4], &[1 << 40, 1 << 40]).is_err());
    }

    #[test]
    fn complex_numbers_are_real_ones_where_that_is_the_same() {
        let mut data = [Complex::new(1_f32, 2.0), Complex::new(3.0, 4.0)];
        for reduce in ReduceOp::ALL {
            let same = matches!(reduce, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum);
            match reals(OpKind::AllReduce, reduce, &mut data) {
                Ok(parts) => assert!(same && *parts == [1.0, 2.0, 3.0, 4.0]),
                Err(error) => assert!(!same && error.to_string().starts_with(&format!("all_reduce: op is {reduce}, "))),
            }
        }
    }
}
