//! Which gradients travel together: parameters from the last to the first, as backward brings them. Numbers only, but for what a bucket
//! has in hand.

use std::collections::BTreeSet;
use std::ops::Range;

use phalanx_core::DType;
use phalanx_mem::Buffer;

use crate::flight::Flight;
use crate::hooks::Wire;

/// Gradients of one type that travel together.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) dtype: DType,
    pub(crate) len: usize,
    /// How many parameters it has.
    params: usize,
    pub(crate) rows: Option<Buffer>,
    pub(crate) flight: Option<Flight>,
    /// What travels, where a hook has made it of the rows.
    pub(crate) wire: Option<Wire>,
    /// Whether the rows are what all ranks made of them.
    pub(crate) is_averaged: bool,
    /// Parameters whose gradient this backward brought.
    pub(crate) came: BTreeSet<usize>,
    /// Parameters with a gradient that has not travelled yet.
    pub(crate) waits: BTreeSet<usize>,
}

/// Where the gradient of a parameter lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) bucket: usize,
    start: usize,
    pub(crate) len: usize,
}

impl Place {
    /// The bytes in its bucket.
    pub(crate) fn range(self, dtype: DType) -> Range<usize> {
        self.start * dtype.byte_len()..(self.start + self.len) * dtype.byte_len()
    }
}

impl Bucket {
    fn new(dtype: DType) -> Bucket {
        let (came, waits) = (BTreeSet::new(), BTreeSet::new());
        Bucket { dtype, len: 0, params: 0, rows: None, flight: None, wire: None, is_averaged: false, came, waits }
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.len * self.dtype.byte_len()
    }

    /// Drops what there is of gradients.
    pub(crate) fn forget(&mut self) {
        // What no gradient comes for must count as zero.
        self.rows.iter_mut().for_each(|rows| rows.as_bytes_mut().fill(0));
        self.is_averaged = false;
        self.wire = None;
        self.came.clear();
        self.waits.clear();
    }

    /// Whether this backward has brought nothing yet, and nothing is on its way.
    pub(crate) fn is_still(&self) -> bool {
        self.came.is_empty() && self.flight.is_none()
    }

    /// Whether this backward has brought all of its gradients.
    pub(crate) fn is_complete(&self) -> bool {
        self.came.len() == self.params
    }
}

/// Places parameters of these elements and types, the last first. A bucket ends where another type begins or it would be too long; a
/// parameter that is too long for any has one of its own.
pub(crate) fn plan(params: &[(usize, DType)], first: usize, most: usize) -> (Vec<Place>, Vec<Bucket>) {
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut places = vec![Place { bucket: 0, start: 0, len: 0 }; params.len()];
    for (param, (len, dtype)) in params.iter().enumerate().rev() {
        let limit = if buckets.len() <= 1 { first } else { most };
        let after = |bucket: &Bucket| bucket.len.checked_add(*len)?.checked_mul(dtype.byte_len());
        let fits = |bucket: &Bucket| bucket.dtype == *dtype && after(bucket).is_some_and(|byte_len| byte_len <= limit);
        if !buckets.last().is_some_and(fits) {
            buckets.push(Bucket::new(*dtype));
        }
        let at = buckets.len() - 1;
        places[param] = Place { bucket: at, start: buckets[at].len, len: *len };
        buckets[at].len += len;
        buckets[at].params += 1;
    }
    (places, buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_fill_from_the_last_parameter_on() {
        let params = [(10, DType::F32), (100, DType::F32), (10, DType::F32), (10, DType::BF16), (2, DType::F32)];
        let (places, buckets) = plan(&params, 8, 100);
        let shape: Vec<_> = buckets.iter().map(|bucket| (bucket.len, bucket.params, bucket.dtype)).collect();
        let (f32, bf16) = (DType::F32, DType::BF16);
        assert_eq!(shape, [(2, 1, f32), (10, 1, bf16), (10, 1, f32), (100, 1, f32), (10, 1, f32)]);
        assert_eq!(places.iter().map(|place| place.bucket).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        let (places, buckets) = plan(&[(3, f32), (4, f32), (5, f32)], 1000, 1000);
        assert_eq!((buckets.len(), places[0].range(f32), places[2].range(f32)), (1, 36..48, 0..20));
        assert!(plan(&[], 8, 100).1.is_empty());
    }
}
