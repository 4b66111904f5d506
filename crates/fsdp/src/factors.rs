//! What gradients are divided by, and when: once and exactly where the type has the range for it, else in two steps.

use phalanx_core::{DType, Error, ReduceOp, Result};

/// The divisions around a sum over ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// How ranks are joined: the true average, or a sum between two divisions.
    pub op: ReduceOp,
    /// What is divided by before.
    pub before: f64,
    /// What is divided by after.
    pub after: f64,
}

impl Factors {
    /// The average over `size` ranks of gradients reduced in `dtype`, or their sum divided by `divisor`.
    ///
    /// 16-bit floats with a short exponent are divided in two steps, so that sums neither overflow nor vanish.
    pub fn of(dtype: DType, size: usize, divisor: Option<f64>) -> Factors {
        let total = divisor.unwrap_or(size as f64);
        match (dtype, divisor) {
            (DType::F16, None) => Factors::two_steps(total),
            // It need be no number of ranks, and a power of two divides exactly whatever it is.
            (DType::F16, Some(_)) => Factors::split(total, |_| true),
            _ if total == size as f64 => Factors { op: ReduceOp::Avg, before: 1.0, after: 1.0 },
            _ => Factors { op: ReduceOp::Sum, before: total, after: 1.0 },
        }
    }

    /// The first factor is the least power of two, up to which all divide `total`, that leaves no more than itself for the second: as PyTorch
    /// divides by a number of ranks.
    pub fn two_steps(total: f64) -> Factors {
        Factors::split(total, |before| total % before == 0.0)
    }

    /// The first factor is the least power of two that leaves no more than itself for the second, or beyond which none may be.
    fn split(total: f64, may_double: impl Fn(f64) -> bool) -> Factors {
        let mut before = 1.0;
        while may_double(before) && total.abs() / before > before {
            before *= 2.0;
        }
        Factors { op: ReduceOp::Sum, before, after: total / before }
    }
}

/// That gradients may be divided by this: most types are divided in `f32`.
pub(crate) fn check(divisor: Option<f64>) -> Result<()> {
    match divisor {
        Some(divisor) if !(divisor as f32).is_normal() => {
            let value = format!("{divisor:?}");
            Err(Error::usage("set_gradient_divisor", "divisor", value, "must be finite and not 0 as f32"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steps_split_about_in_the_middle() {
        let split = |total| (Factors::two_steps(total).before, Factors::two_steps(total).after);
        let sizes = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 64.0];
        let wanted = [(1.0, 1.0), (2.0, 1.0), (2.0, 1.5), (2.0, 2.0), (4.0, 1.5), (4.0, 2.0), (4.0, 4.0), (8.0, 8.0)];
        assert_eq!(sizes.map(split), wanted);
    }

    #[test]
    fn a_divisor_is_split_in_the_middle_whatever_divides_it() {
        let split = |divisor| {
            let Factors { op, before, after } = Factors::of(DType::F16, 8, Some(divisor));
            assert_eq!((op, before * after), (ReduceOp::Sum, divisor));
            before
        };
        assert_eq!([8191.0, 4.5, 7.0, -7.0, 1.0, 0.25].map(split), [128.0, 4.0, 4.0, 4.0, 1.0, 1.0]);
    }

    #[test]
    fn only_short_exponents_take_two_steps() {
        for dtype in [DType::F64, DType::F32, DType::BF16] {
            assert_eq!(Factors::of(dtype, 4, None), Factors { op: ReduceOp::Avg, before: 1.0, after: 1.0 });
            assert_eq!(Factors::of(dtype, 4, Some(4.0)).op, ReduceOp::Avg);
            assert_eq!(Factors::of(dtype, 4, Some(8.0)), Factors { op: ReduceOp::Sum, before: 8.0, after: 1.0 });
        }
        assert_eq!(Factors::of(DType::F16, 4, Some(8.0)), Factors { op: ReduceOp::Sum, before: 4.0, after: 2.0 });
    }
}
