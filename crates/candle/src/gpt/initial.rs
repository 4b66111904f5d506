//! Initial values as a function of a seed and a parameter's name, so that they are the same in any world and in any order.

use phalanx_core::fnv;

/// The initial values of a parameter of a GPT with this many layers: ones for norms, else a normal distribution around 0, narrower
/// where the output is added to what goes on.
pub fn initial(seed: u64, name: &str, shape: &[usize], layers: usize) -> Vec<f32> {
    let len = shape.iter().product();
    if shape.len() == 1 {
        return vec![1.0; len];
    }
    let is_added = name.ends_with("proj.weight") || name.ends_with("out.weight");
    let deviation = if is_added { 0.02 / (2.0 * layers as f64).sqrt() } else { 0.02 };
    let mut draw = fastrand::Rng::with_seed(seed ^ fnv::hash64(name.bytes()));
    (0..len).map(|_| (deviation * normal(&mut draw)) as f32).collect()
}

/// A number of the normal distribution (Box and Muller).
fn normal(draw: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - draw.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * draw.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_from_seed_and_name_alone() {
        let weight = |seed, name| initial(seed, name, &[300, 100], 4);
        let once = weight(1, "head.weight");
        assert_eq!(once, weight(1, "head.weight"));
        assert_ne!(once, weight(2, "head.weight"));
        assert_ne!(once, weight(1, "tok.weight"));
        let deviation = |values: &[f32]| (values.iter().map(|value| value * value).sum::<f32>() / 30_000.0).sqrt();
        assert!((deviation(&once) - 0.02).abs() < 0.0005);
        assert!((deviation(&weight(1, "blocks.0.proj.weight")) - 0.02 / 8.0_f32.sqrt()).abs() < 0.0002);
        assert_eq!(initial(1, "ln.weight", &[3], 4), [1.0; 3]);
    }
}
