//! Element types and reductions in NCCL's numbers, and what is refused because NCCL has none.

use std::fmt;

use phalanx_core::{Class, DType, Error, OpKind, ReduceOp, Result};

use super::Version;

/// An element type by NCCL's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataType(pub i32);

impl DataType {
    /// `i8`.
    pub const I8: DataType = DataType(0);
    /// `u8`, and bytes.
    pub const U8: DataType = DataType(1);
    /// `i32`.
    pub const I32: DataType = DataType(2);
    /// `u32`.
    pub const U32: DataType = DataType(3);
    /// `i64`.
    pub const I64: DataType = DataType(4);
    /// `u64`.
    pub const U64: DataType = DataType(5);
    /// `f16`.
    pub const F16: DataType = DataType(6);
    /// `f32`.
    pub const F32: DataType = DataType(7);
    /// `f64`.
    pub const F64: DataType = DataType(8);
    /// `bf16`.
    pub const BF16: DataType = DataType(9);

    /// Bytes of one element; none for a number that is not known here.
    pub const fn byte_len(self) -> Option<usize> {
        Some(match self.0 {
            0 | 1 => 1,
            6 | 9 => 2,
            2 | 3 | 7 => 4,
            4 | 5 | 8 => 8,
            _ => return None,
        })
    }

    /// Our type for it; none for a number that is not known here.
    pub const fn element(self) -> Option<DType> {
        Some(match self {
            DataType::I8 => DType::I8,
            DataType::U8 => DType::U8,
            DataType::I32 => DType::I32,
            DataType::U32 => DType::U32,
            DataType::I64 => DType::I64,
            DataType::U64 => DType::U64,
            DataType::F16 => DType::F16,
            DataType::F32 => DType::F32,
            DataType::F64 => DType::F64,
            DataType::BF16 => DType::BF16,
            _ => return None,
        })
    }
}

/// A reduction by NCCL's number: one of its own, or one that a communicator created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RedOp(pub i32);

impl RedOp {
    /// The sum.
    pub const SUM: RedOp = RedOp(0);
    /// The product.
    pub const PRODUCT: RedOp = RedOp(1);
    /// The greatest.
    pub const MAX: RedOp = RedOp(2);
    /// The least.
    pub const MIN: RedOp = RedOp(3);
    /// The average. Since 2.10.
    pub const AVG: RedOp = RedOp(4);

    /// The first number of those that a communicator creates.
    pub const FIRST_CREATED: i32 = 5;

    /// Our reduction for it. What a communicator creates is a scaled sum.
    pub const fn reduce(self) -> ReduceOp {
        match self {
            RedOp::SUM => ReduceOp::Sum,
            RedOp::PRODUCT => ReduceOp::Product,
            RedOp::MAX => ReduceOp::Max,
            RedOp::MIN => ReduceOp::Min,
            RedOp::AVG => ReduceOp::Avg,
            _ => ReduceOp::PreMulSum,
        }
    }
}

impl fmt::Display for RedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reduction {}", self.0)
    }
}

/// How elements of one of our types travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// As elements of this type.
    pub dtype: DataType,
    /// So many of them for one of ours.
    pub per_element: usize,
}

impl Encoding {
    /// How elements travel that are only moved. Every type can be: one that NCCL does not have goes as its bytes.
    pub fn moved(dtype: DType) -> Encoding {
        let one = |dtype| Encoding { dtype, per_element: 1 };
        match dtype {
            DType::F64 => one(DataType::F64),
            DType::F32 => one(DataType::F32),
            DType::F16 => one(DataType::F16),
            DType::BF16 => one(DataType::BF16),
            DType::I8 => one(DataType::I8),
            DType::U8 | DType::Bool => one(DataType::U8),
            DType::I32 => one(DataType::I32),
            DType::U32 => one(DataType::U32),
            DType::I64 => one(DataType::I64),
            DType::U64 => one(DataType::U64),
            DType::Complex64 => Encoding { dtype: DataType::F32, per_element: 2 },
            DType::Complex128 => Encoding { dtype: DataType::F64, per_element: 2 },
            _ => Encoding { dtype: DataType::U8, per_element: dtype.byte_len() },
        }
    }

    /// How many of NCCL's elements so many of ours are; none where that is more than an address space holds.
    pub fn count(self, elements: usize) -> Option<usize> {
        let count = elements.checked_mul(self.per_element)?;
        let byte_len = count.checked_mul(self.dtype.byte_len()?)?;
        (byte_len <= isize::MAX as usize).then_some(count)
    }
}

/// A reduction as NCCL is asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reducer {
    /// One of its own.
    Own(RedOp),
    /// The sum of scaled elements, which a communicator creates for each factor.
    Scaled,
}

impl Reducer {
    /// How NCCL of this version reduces elements of a type.
    ///
    /// Flags are bytes of 0 and 1, whose sum is their greatest and whose product is their least. Complex numbers are pairs, which may be
    /// summed, averaged and scaled by a real number.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage), naming the reduction and the type, for what NCCL cannot.
    pub fn of(call: OpKind, op: ReduceOp, dtype: DType, version: Version) -> Result<Reducer> {
        let refuse = |why: &str| Err(Error::usage(call, "op", op, format!("which NCCL has not for {dtype}: {why}")));
        match (dtype, dtype.class(), op) {
            (_, _, ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor) => refuse("it has no bit operations"),
            (_, Class::Float8, _) => refuse("8-bit floats are moved but not reduced"),
            (DType::I16 | DType::U16, _, _) => refuse("it has no 16-bit integers, which are moved but not reduced"),
            (_, Class::Bool, ReduceOp::Sum | ReduceOp::Max) => Ok(Reducer::Own(RedOp::MAX)),
            (_, Class::Bool, ReduceOp::Product | ReduceOp::Min) => Ok(Reducer::Own(RedOp::MIN)),
            (_, Class::Bool, _) => refuse("flags have no average and no factor"),
            (_, Class::Complex, ReduceOp::Product | ReduceOp::Min | ReduceOp::Max) => {
                refuse("complex numbers are pairs to it")
            }
            (_, _, ReduceOp::Avg) if version < Version::new(2, 10, 0) => refuse("it averages since 2.10"),
            (_, _, ReduceOp::PreMulSum) if version < Version::new(2, 11, 0) => refuse("it scales since 2.11"),
            (_, Class::Integer, ReduceOp::PreMulSum) => refuse("a factor needs floats"),
            (_, _, ReduceOp::PreMulSum) => Ok(Reducer::Scaled),
            (_, _, ReduceOp::Sum) => Ok(Reducer::Own(RedOp::SUM)),
            (_, _, ReduceOp::Product) => Ok(Reducer::Own(RedOp::PRODUCT)),
            (_, _, ReduceOp::Max) => Ok(Reducer::Own(RedOp::MAX)),
            (_, _, ReduceOp::Min) => Ok(Reducer::Own(RedOp::MIN)),
            (_, _, ReduceOp::Avg) => Ok(Reducer::Own(RedOp::AVG)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Version = Version::new(2, 28, 9);

    fn told(op: ReduceOp, dtype: DType, version: Version) -> String {
        Reducer::of(OpKind::AllReduce, op, dtype, version)
            .map_or_else(|error| error.to_string(), |way| format!("{way:?}"))
    }

    #[test]
    fn every_type_can_be_moved_byte_for_byte() {
        for dtype in DType::ALL {
            let Encoding { dtype: as_type, per_element } = Encoding::moved(dtype);
            assert_eq!(as_type.byte_len().map(|len| len * per_element), Some(dtype.byte_len()), "{dtype}");
        }
        assert_eq!(Encoding::moved(DType::Complex128).count(3), Some(6));
        assert_eq!(Encoding::moved(DType::F64).count(usize::MAX / 8), None);
    }

    #[test]
    fn what_nccl_cannot_is_refused_by_name() {
        let bits = "all_reduce: op is bit_or, which NCCL has not for bool: it has no bit operations";
        assert_eq!(told(ReduceOp::BitOr, DType::Bool, NEW), bits);
        let float8 = "all_reduce: op is sum, which NCCL has not for f8e5m2: 8-bit floats are moved but not reduced";
        assert_eq!(told(ReduceOp::Sum, DType::F8E5M2, NEW), float8);
        assert!(told(ReduceOp::Max, DType::U16, NEW).ends_with("moved but not reduced"));
        assert!(told(ReduceOp::Product, DType::Complex64, NEW).ends_with("complex numbers are pairs to it"));
        assert!(told(ReduceOp::Avg, DType::F32, Version::new(2, 9, 6)).ends_with("it averages since 2.10"));
        assert!(told(ReduceOp::PreMulSum, DType::I32, NEW).ends_with("a factor needs floats"));
    }

    #[test]
    fn flags_are_bytes_that_are_compared() {
        assert_eq!(told(ReduceOp::Sum, DType::Bool, NEW), "Own(RedOp(2))");
        assert_eq!(told(ReduceOp::Product, DType::Bool, NEW), "Own(RedOp(3))");
        assert_eq!(told(ReduceOp::PreMulSum, DType::BF16, NEW), "Scaled");
        assert_eq!(told(ReduceOp::Avg, DType::I64, NEW), "Own(RedOp(4))");
    }
}
