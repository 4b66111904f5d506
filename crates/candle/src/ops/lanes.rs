//! Sums and largest values of slices in lanes, which become vectors; in the same order on every machine.

/// The sum of `term` over two slices of one length.
#[inline(always)]
pub(super) fn sum(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (blocks_a, rest_a) = a.as_chunks::<LANES>();
    let (blocks_b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in blocks_a.iter().zip(blocks_b) {
        (0..LANES).for_each(|lane| lanes[lane] += term(a[lane], b[lane]));
    }
    rest_a.iter().zip(rest_b).zip(&mut lanes).for_each(|((a, b), lane)| *lane += term(*a, *b));
    lanes.iter().sum()
}

/// The largest value; minus infinity of none.
#[inline(always)]
pub(super) fn largest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        (0..LANES).for_each(|lane| lanes[lane] = lanes[lane].max(block[lane]));
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |most, value| most.max(*value))
}

const LANES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_counts_once() {
        for len in [0, 1, 15, 16, 17, 100] {
            let values: Vec<f32> = (0..len).map(|at| at as f32).collect();
            assert_eq!(sum(&values, &values, |a, b| a + b), (len * len) as f32 - len as f32);
            assert_eq!(largest(&values), if len == 0 { f32::NEG_INFINITY } else { len as f32 - 1.0 });
        }
    }
}
