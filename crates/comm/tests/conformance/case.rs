//! One operation of a test: its numbers, what each rank gives, and what each must get, said as plainly as possible.

use half::bf16;
use phalanx_core::Element;

/// The numbers that all ranks of one operation share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Decides every element, root and table.
    pub(crate) seed: u64,
    /// How many ranks there are.
    pub(crate) size: usize,
    /// Elements of a rank's part; in uneven operations, the most of a part.
    pub(crate) len: usize,
    /// The rank that gives or gets alone.
    pub(crate) root: usize,
}

/// An element type whose sums are exact in any order, so that there is one right answer.
pub(crate) trait Sample: Element {
    /// Some element.
    fn sample(hash: u64) -> Self;

    /// The sum.
    fn plus(self, other: Self) -> Self;
}

impl Case {
    pub(crate) fn new(seed: u64, size: usize, len: usize) -> Case {
        let root = (hash(seed) % size as u64) as usize;
        Case { seed, size, len, root }
    }

    /// `len` elements that `rank` gives, different from those for another `part`.
    pub(crate) fn given<T: Sample>(&self, rank: usize, part: usize, len: usize) -> Vec<T> {
        let stem = hash(hash(self.seed ^ (rank as u64) << 32) ^ part as u64);
        (0..len as u64).map(|at| T::sample(hash(stem ^ at))).collect()
    }

    /// Something for every element of a buffer that must be overwritten.
    pub(crate) fn stale<T: Sample>(&self, len: usize) -> Vec<T> {
        vec![T::sample(self.seed | 1); len]
    }

    /// The sum of what all ranks give in this part.
    pub(crate) fn sum<T: Sample>(&self, part: usize, len: usize) -> Vec<T> {
        let inputs: Vec<Vec<T>> = (0..self.size).map(|rank| self.given(rank, part, len)).collect();
        let join = |at: usize| inputs.iter().map(|input| input[at]).reduce(T::plus).expect("a rank");
        (0..len).map(join).collect()
    }

    /// Elements of each rank's part, even.
    pub(crate) fn even(&self) -> Vec<usize> {
        vec![self.len; self.size]
    }

    /// Elements of each rank's part, uneven, with zeros among them.
    pub(crate) fn uneven(&self) -> Vec<usize> {
        (0..self.size).map(|rank| self.uneven_part(rank, 0)).collect()
    }

    /// Elements that each rank gives to each, by giver and taker.
    pub(crate) fn uneven_table(&self) -> Vec<Vec<usize>> {
        let row = |from| (0..self.size).map(|to| self.uneven_part(from, to + 1)).collect();
        (0..self.size).map(row).collect()
    }

    fn uneven_part(&self, rank: usize, salt: usize) -> usize {
        let hash = hash(self.seed ^ (rank as u64) << 20 ^ (salt as u64) << 40);
        if hash & 7 == 0 { 0 } else { (hash >> 3) as usize % (self.len + 1) }
    }
}

/// A number that looks like any other: splitmix64.
pub(crate) fn hash(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Sample for $integer {
            fn sample(hash: u64) -> $integer {
                hash as $integer
            }

            fn plus(self, other: $integer) -> $integer {
                self.wrapping_add(other)
            }
        }
    )*};
}

integers!(u8, i16, u32, i64);

/// Whole numbers so small that sums of nine are exact.
macro_rules! floats {
    ($($float:ty: $small:expr),*) => {$(
        impl Sample for $float {
            fn sample(hash: u64) -> $float {
                $small((hash % 27) as f32 - 13.0)
            }

            fn plus(self, other: $float) -> $float {
                self + other
            }
        }
    )*};
}

floats!(f32: std::convert::identity, f64: f64::from, bf16: bf16::from_f32);
