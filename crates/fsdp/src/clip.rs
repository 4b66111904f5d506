//! What is asked of all gradients at once: their norm, whether they are numbers at all. Each is one small reduction over the shards. How far
//! gradients are scaled down is for adapters to use, whose gradients may lie elsewhere.

use phalanx_core::{DType, Error, Result};

use crate::cast::{Real, slice, slice_mut, with_real};
use crate::sharded::Sharded;

impl Sharded {
    /// The `p`-norm of all gradients as one vector, `p` from 1 to 8 or infinite; the same on every rank. A tied parameter counts once.
    /// All ranks of the shard group call this; replicas have the same gradients and need not be asked.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for another `p`, and those of the reduction.
    pub fn gradient_norm(&mut self, p: f64) -> Result<f64> {
        check_norm("gradient_norm", p)?;
        let own = power(self.gradient_parts(), p);
        Ok(root(joined(self.brought(own)?, p), p))
    }

    /// Scales all gradients down so that their `p`-norm is at most `max_norm`, unless it is already. Returns the norm before.
    ///
    /// # Errors
    ///
    /// As [`gradient_norm`](Sharded::gradient_norm), and for a `max_norm` that is not positive.
    pub fn clip_gradients(&mut self, max_norm: f64, p: f64) -> Result<f64> {
        check_most(max_norm)?;
        check_norm("clip_gradients", p)?;
        let norm = self.gradient_norm(p)?;
        if let Some(factor) = factor(norm, max_norm) {
            self.scale_gradients(factor);
        }
        Ok(norm)
    }

    /// Multiplies every gradient on this rank. A loss that was scaled up is undone by this.
    pub fn scale_gradients(&mut self, factor: f64) {
        for param in self.trained().collect::<Vec<_>>() {
            let unit = &mut self.units[param.unit];
            let dtype = unit.spec.params[param.index].dtype;
            if let Some(bytes) = unit.gradient_mut(param.index) {
                scale(bytes, dtype, factor);
            }
        }
    }

    /// Whether any gradient of any rank is infinite or no number, so that the step should be left out. All ranks of the shard group
    /// call this.
    ///
    /// # Errors
    ///
    /// Those of the reduction.
    pub fn gradients_overflowed(&mut self) -> Result<bool> {
        let is_odd = self
            .gradient_parts()
            .any(|(bytes, dtype)| with_real!(dtype, T => slice::<T>(bytes).iter().any(|x| !x.widen().is_finite())));
        Ok(self.brought(if is_odd { 1.0 } else { 0.0 })?.contains(&1.0))
    }

    /// The gradients of this rank's shards, each once.
    fn gradient_parts(&self) -> impl Iterator<Item = (&[u8], DType)> {
        self.trained().filter_map(|param| {
            let unit = &self.units[param.unit];
            Some((unit.gradient(param.index)?, unit.spec.params[param.index].dtype))
        })
    }

    /// What each rank of the shard group brings, in their order: a sum of theirs would depend on how the group lies on its hosts, and
    /// replicas, whose groups may lie otherwise, are not to differ by a bit.
    fn brought(&mut self, own: f64) -> Result<Vec<f64>> {
        self.check_failed()?;
        let group = &self.groups.shard;
        let mut all = vec![0.0; group.size()];
        let ended = self.trace.wait(|| group.all_gather(&[own], &mut all));
        ended.inspect_err(|error| self.failed = Some(error.clone()))?;
        Ok(all)
    }
}

/// That a norm may be bounded by this.
///
/// # Errors
///
/// [`Usage`](phalanx_core::ErrorKind::Usage) for what is not above zero.
pub fn check_most(max_norm: f64) -> Result<()> {
    if max_norm.is_nan() || max_norm <= 0.0 {
        return Err(Error::usage("clip_gradients", "max_norm", max_norm, "must be above zero"));
    }
    Ok(())
}

/// What gradients of this norm are multiplied by so that it is at most `most`; nothing where it is already, and where it is no number.
pub fn factor(norm: f64, most: f64) -> Option<f64> {
    let factor = most / (norm + LEAST);
    (factor < 1.0).then_some(factor)
}

/// That there is a norm of this kind. Beyond the eighth, powers of large `f32` are infinite as `f64` and those of small ones zero, and with
/// them the norm would be.
pub(crate) fn check_norm(call: &'static str, p: f64) -> Result<()> {
    if (1.0..=MOST_P).contains(&p) || p == f64::INFINITY {
        return Ok(());
    }
    Err(Error::usage(call, "p", p, format!("must be from 1 to {MOST_P}, or infinite")))
}

/// What a rank brings to a norm: the sum of the powers of all elements, or the largest.
pub(crate) fn power<'a>(parts: impl Iterator<Item = (&'a [u8], DType)>, p: f64) -> f64 {
    let powers = parts
        .map(|(bytes, dtype)| with_real!(dtype, T => powers(slice::<T>(bytes).iter().map(|x| x.widen().abs()), p)));
    if p.is_infinite() { powers.fold(0.0, largest) } else { powers.sum() }
}

/// What all ranks brought to a norm, in their order, as one.
pub(crate) fn joined(all: Vec<f64>, p: f64) -> f64 {
    if p.is_infinite() { all.into_iter().fold(0.0, largest) } else { all.into_iter().sum() }
}

/// The norm, from what all ranks brought to it.
pub(crate) fn root(joined: f64, p: f64) -> f64 {
    match p {
        _ if p.is_infinite() => joined,
        1.0 => joined,
        2.0 => joined.sqrt(),
        _ => joined.powf(p.recip()),
    }
}

/// Multiplies every element.
pub(crate) fn scale(bytes: &mut [u8], dtype: DType, factor: f64) {
    with_real!(dtype, T => {
        slice_mut::<T>(bytes).iter_mut().for_each(|x| *x = <T as Real>::narrow(x.widen() * factor));
    });
}

fn powers(values: impl Iterator<Item = f64>, p: f64) -> f64 {
    match p {
        1.0 => values.sum(),
        2.0 => values.map(|x| x * x).sum(),
        _ if p.is_infinite() => values.fold(0.0, largest),
        _ => values.map(|x| x.powf(p)).sum(),
    }
}

/// The larger of two; what is no number stays.
pub(crate) fn largest(most: f64, one: f64) -> f64 {
    if one > most || one.is_nan() { one } else { most }
}

/// Keeps the factor finite where all gradients are zero.
const LEAST: f64 = 1e-6;
/// The largest finite `p` of a norm.
const MOST_P: f64 = 8.0;
