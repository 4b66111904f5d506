//! The reductions by name, and which element types each is defined for.

use std::fmt;
use std::str::FromStr;

use super::Unsupported;
use crate::{Class, DType};

/// How the elements of several ranks become one.
///
/// The numbers are part of the wire format and never change.
///
/// | op | floats | complex | integers | bool |
/// |---|---|---|---|---|
/// | `Sum` | sum | sum | wraps | or |
/// | `Product` | product | product | wraps | and |
/// | `Min`, `Max` | NaN wins, -0 < +0 | | as ordered | and, or |
/// | `Avg` | sum ÷ ranks | sum ÷ ranks | exact sum ÷ ranks, toward zero | |
/// | `BitAnd`, `BitOr`, `BitXor` | | | bitwise | logical |
/// | `PreMulSum` | sum of scaled | sum of scaled | | |
///
/// An empty cell is refused by [`ReduceOp::supports`]; so is every op on 8-bit floats, which are moved but not reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum. Integers wrap.
    Sum = 1,
    /// The product. Integers wrap.
    Product = 2,
    /// The least. A NaN on either side is the result; -0.0 is less than +0.0.
    Min = 3,
    /// The greatest. A NaN on either side is the result; +0.0 is greater than -0.0.
    Max = 4,
    /// The sum divided by the number of operands. Integers are summed without overflow and truncated toward zero.
    Avg = 5,
    /// Bitwise and.
    BitAnd = 6,
    /// Bitwise or.
    BitOr = 7,
    /// Bitwise exclusive or.
    BitXor = 8,
    /// The sum of operands that each rank has [scaled](super::scale) beforehand.
    PreMulSum = 9,
}

impl ReduceOp {
    /// Every reduction, in wire order.
    pub const ALL: [ReduceOp; 9] = [
        ReduceOp::Sum,
        ReduceOp::Product,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Avg,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
        ReduceOp::PreMulSum,
    ];

    /// The name, as printed and parsed: `sum`, `bit_and`, `premul_sum`, ...
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Product => "product",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
            ReduceOp::BitAnd => "bit_and",
            ReduceOp::BitOr => "bit_or",
            ReduceOp::BitXor => "bit_xor",
            ReduceOp::PreMulSum => "premul_sum",
        }
    }

    /// The reduction with this wire number, if there is one.
    pub fn from_wire(number: u8) -> Option<ReduceOp> {
        ReduceOp::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Whether this reduction is defined for elements of `dtype`, at least with [every operand at hand](super::combine).
    ///
    /// # Errors
    ///
    /// [`Unsupported`] where it is not, with the rule that forbids it.
    pub fn supports(self, dtype: DType) -> Result<(), Unsupported> {
        self.refusal(dtype).map_or(Ok(()), |why| Err(self.refused(dtype, why)))
    }

    /// Whether this reduction can also be [folded](super::fold) two operands at a time: all but the integer average.
    ///
    /// # Errors
    ///
    /// As [`supports`](ReduceOp::supports).
    pub fn supports_fold(self, dtype: DType) -> Result<(), Unsupported> {
        self.supports(dtype)?;
        match (self, dtype.class()) {
            (ReduceOp::Avg, Class::Integer) => {
                Err(self.refused(dtype, "an integer average needs every operand at hand"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn refused(self, dtype: DType, why: &'static str) -> Unsupported {
        Unsupported { reduce: self, dtype, why }
    }

    fn refusal(self, dtype: DType) -> Option<&'static str> {
        use ReduceOp::{Avg, BitAnd, BitOr, BitXor, Max, Min, PreMulSum};
        match (dtype.class(), self) {
            (Class::Float8, _) => Some("8-bit floats are moved but not reduced"),
            (Class::Float | Class::Complex, BitAnd | BitOr | BitXor) => Some("bit operations need integers or bool"),
            (Class::Complex, Min | Max) => Some("complex numbers have no order"),
            (Class::Bool, Avg) => Some("flags have no average"),
            (Class::Bool | Class::Integer, PreMulSum) => Some("a factor needs floats or complex numbers"),
            _ => None,
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = String;

    fn from_str(text: &str) -> Result<ReduceOp, String> {
        ReduceOp::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
            let names = ReduceOp::ALL.map(ReduceOp::name).join(", ");
            format!("unknown reduction '{text}'; one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_numbers_and_names_round_trip() {
        for (index, op) in ReduceOp::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, index + 1);
            assert_eq!(ReduceOp::from_wire(op as u8), Some(op));
            assert_eq!(op.name().parse(), Ok(op));
        }
        assert_eq!(ReduceOp::from_wire(0), None);
        assert_eq!(ReduceOp::from_wire(10), None);
        assert!("mean".parse::<ReduceOp>().unwrap_err().contains("'mean'"));
    }

    #[test]
    fn a_refusal_names_the_op_the_dtype_and_the_reason() {
        let refusal = ReduceOp::BitAnd.supports(DType::F32).unwrap_err();
        assert_eq!(refusal.to_string(), "bit_and is not defined for f32: bit operations need integers or bool");
    }

    #[test]
    fn only_the_integer_average_needs_every_operand() {
        for (op, dtype) in ReduceOp::ALL.iter().flat_map(|op| DType::ALL.map(|dtype| (*op, dtype))) {
            let integer_average = op == ReduceOp::Avg && dtype.class() == Class::Integer;
            let folds = op.supports(dtype).is_ok() && !integer_average;
            assert_eq!(op.supports_fold(dtype).is_ok(), folds, "{op} {dtype}");
        }
    }
}
