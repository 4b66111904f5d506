//! The data of a case, and the answer that it must give.

use phalanx::DType;

use super::super::kind::Kind;
use super::Case;

/// Elements of a result that come from one place.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Source,
    /// The first of them in the data of the source.
    start: usize,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The data of one rank.
    Rank(usize),
    /// The reduction of all ranks' data.
    All,
}

impl Case {
    /// The wrong elements of a rank's output.
    pub(super) fn wrong(&self, rank: usize, root: usize, output: &[u8]) -> usize {
        let unit = self.dtype.byte_len();
        let mut expected = vec![0; AT_ONCE * unit];
        let (mut at, mut wrong) = (0, 0);
        for Piece { source, start, count } in self.pieces(rank, root) {
            for offset in (0..count).step_by(AT_ONCE) {
                let expected = &mut expected[..(count - offset).min(AT_ONCE) * unit];
                match source {
                    Source::Rank(from) => self.write_pattern(from, start + offset, expected),
                    Source::All => self.write_reduced(start + offset, expected),
                }
                let got = &output[at * unit..][..expected.len()];
                at += got.len() / unit;
                if got != expected {
                    wrong +=
                        got.chunks(unit).zip(expected.chunks(unit)).filter(|(got, expected)| got != expected).count();
                }
            }
        }
        wrong
    }

    /// What a rank's output must be made of; nothing where it has no result.
    fn pieces(&self, rank: usize, root: usize) -> Vec<Piece> {
        let (count, share) = (self.count, self.share());
        let one = |source, start, count| vec![Piece { source, start, count }];
        let of_each =
            |start| (0..self.np).map(|from| Piece { source: Source::Rank(from), start, count: share }).collect();
        match self.kind {
            Kind::Reduce | Kind::Gather if rank != root => vec![],
            Kind::AllReduce | Kind::Reduce => one(Source::All, 0, count),
            Kind::ReduceScatter => one(Source::All, rank * share, share),
            Kind::AllGather | Kind::Gather => of_each(0),
            Kind::Broadcast => one(Source::Rank(root), 0, count),
            Kind::Scatter => one(Source::Rank(root), rank * share, share),
            Kind::AllToAll => of_each(rank * share),
            Kind::SendRecv => one(Source::Rank(self.neighbours(rank).1), 0, count),
            Kind::PingPong => one(Source::Rank(rank & !1), 0, count),
            Kind::Barrier => vec![],
        }
    }

    /// The reduction of all ranks' data. Zeros and ones add up without rounding in every order.
    fn write_reduced(&self, start: usize, elements: &mut [u8]) {
        let pattern = |rank| {
            let mut input = vec![0; elements.len()];
            self.write_pattern(rank, start, &mut input);
            input
        };
        let inputs: Vec<Vec<u8>> = (0..self.np).map(pattern).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        // The pair was checked before anything was measured.
        let _ = phalanx::reduce::combine(self.reduce, self.dtype, elements, &inputs);
    }

    /// A rank's data from its element `start` on: zeros and ones in an order that does not repeat.
    pub(super) fn write_pattern(&self, rank: usize, start: usize, elements: &mut [u8]) {
        let one = one(self.dtype);
        let zero = vec![0; one.len()];
        for (at, element) in (start..).zip(elements.chunks_exact_mut(one.len())) {
            let mixed = (at as u64 ^ (rank as u64) << 40).wrapping_mul(MIXER);
            // Once is not enough: the highest bit of multiples is nearly periodic.
            let mixed = (mixed ^ mixed >> 32).wrapping_mul(MIXER);
            element.copy_from_slice(if mixed >> 63 == 0 || self.is_spared(rank, at) { &zero } else { &one });
        }
    }

    /// Whether a rank has no one at an element because there are others enough: of many ranks each has its turn.
    fn is_spared(&self, rank: usize, at: usize) -> bool {
        self.dtype == DType::BF16 && self.kind.reduces() && (rank + at) % self.np >= MOST_ONES
    }
}

/// The bytes of 1 in this type.
fn one(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F64 => 1_f64.to_le_bytes().to_vec(),
        DType::F32 => 1_f32.to_le_bytes().to_vec(),
        DType::F16 => 0x3C00_u16.to_le_bytes().to_vec(),
        DType::BF16 => 0x3F80_u16.to_le_bytes().to_vec(),
        DType::F8E4M3FN => vec![0x38],
        DType::F8E5M2 => vec![0x3C],
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => vec![0x40],
        DType::Complex64 => [1_f32.to_le_bytes(), [0; 4]].concat(),
        DType::Complex128 => [1_f64.to_le_bytes(), [0; 8]].concat(),
        other => {
            let mut bytes = vec![0; other.byte_len()];
            bytes[0] = 1;
            bytes
        }
    }
}

/// Elements that are checked at once, so that a check needs little memory.
const AT_ONCE: usize = 4096;
/// Ones that are added up in bf16, which has every whole number up to 256, and then only every other one.
const MOST_ONES: usize = 128;
/// Odd, and far from all simple fractions: 2^64 divided by the golden ratio.
const MIXER: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use phalanx::ReduceOp;

    use super::*;

    #[test]
    fn data_of_two_ranks_or_places_differ() {
        let case = Case::new(Kind::AllReduce, 4096, 2, DType::U8, ReduceOp::Sum);
        let pattern = |rank, start| {
            let mut elements = [0; 64];
            case.write_pattern(rank, start, &mut elements);
            elements
        };
        let all: Vec<_> = (0..4).flat_map(|rank| (0..200).map(move |start| pattern(rank, start))).collect();
        let set: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(set.len(), all.len());
    }

    #[test]
    fn many_ranks_add_up_without_rounding_in_every_order() {
        let combined = |inputs: &[Vec<u8>]| {
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let mut sums = vec![0; 128];
            phalanx::reduce::combine(ReduceOp::Sum, DType::BF16, &mut sums, &inputs).expect("a sum of bf16");
            sums
        };
        let case = Case::new(Kind::AllReduce, 4096, 600, DType::BF16, ReduceOp::Sum);
        let input = |rank| {
            let mut input = vec![0; 128];
            case.write_pattern(rank, 500, &mut input);
            input
        };
        let inputs: Vec<Vec<u8>> = (0..600).map(input).collect();
        let mut expected = vec![0; 128];
        case.write_reduced(500, &mut expected);
        let one_by_one = inputs.iter().fold(vec![0; 128], |sums, input| combined(&[sums, input.clone()]));
        let in_halves = combined(&[combined(&inputs[..300]), combined(&inputs[300..])]);
        assert_eq!((&one_by_one, &in_halves), (&expected, &expected));
        // Each rank has its part in it.
        let zeros = vec![0; 4096];
        let has_ones = |rank| {
            let mut all = vec![0; 4096];
            case.write_pattern(rank, 0, &mut all);
            all != zeros
        };
        assert!((0..600).all(has_ones));
    }
}
