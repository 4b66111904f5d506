//! Text that the model goes on with.

use candle_core::{Device, Tensor};
use phalanx_candle::ops::softmax;

use super::trainer::Trainer;

/// As many characters as asked for. All ranks call this: they draw what the first one draws.
pub(super) fn sample(trainer: &mut Trainer<'_>, len: usize, seed: u64) -> phalanx_candle::Result<String> {
    let mut draw = fastrand::Rng::with_seed(seed);
    let context = trainer.sizes().context;
    let mut ids = vec![trainer.corpus().first()];
    for _ in 0..len {
        let seen = &ids[ids.len().saturating_sub(context)..];
        let seen = Tensor::new(seen, &Device::Cpu)?.unsqueeze(0)?;
        let logits = trainer.model().predict(&seen)?.get(0)?;
        let last = logits.get(logits.dim(0)? - 1)?.to_dtype(candle_core::DType::F32)?;
        let mut next = [drawn(&softmax(&(last / WARMTH)?)?.to_vec1()?, draw.f32())];
        trainer.group().broadcast(&mut next, 0)?;
        ids.push(next[0]);
    }
    Ok(ids[1..].iter().map(|id| trainer.corpus().letter(*id)).collect())
}

/// The first number up to which the shares add up to more than the draw.
fn drawn(shares: &[f32], draw: f32) -> u32 {
    let mut sum = 0.0;
    let reached = shares.iter().position(|share| {
        sum += share;
        sum > draw
    });
    reached.unwrap_or(shares.len().saturating_sub(1)) as u32
}

/// Below 1, likely characters become more so.
const WARMTH: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_share_of_draws() {
        let at = |draw| drawn(&[0.25, 0.0, 0.5, 0.25], draw);
        assert_eq!([0.0, 0.24, 0.25, 0.74, 0.75, 0.999, 1.0].map(at), [0, 0, 2, 2, 3, 3, 3]);
    }
}
