//! The kernels by number, each with its plain Rust twin: what the simulator runs, and what a device's kernel must equal.

mod carry;
pub mod nan;
mod plan;

pub use carry::{Carry, carry};
pub use plan::{Plan, Stretch};

pub(crate) use carry::pair;

use crate::api::KernelId;

/// Multiplies `f32` elements: written memory, a factor.
pub const SCALE: KernelId = KernelId(1);
/// Adds `f32` elements: written memory, read memory of the same length.
pub const ADD: KernelId = KernelId(2);

/// See [`SCALE`].
pub fn scale(data: &mut [u8], factor: f32) {
    for element in data.chunks_exact_mut(4) {
        let value = float(element) * factor;
        element.copy_from_slice(&value.to_le_bytes());
    }
}

/// See [`ADD`].
pub fn add(into: &mut [u8], from: &[u8]) {
    for (element, other) in into.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
        let value = float(element) + float(other);
        element.copy_from_slice(&value.to_le_bytes());
    }
}

fn float(bytes: &[u8]) -> f32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[..4]);
    f32::from_le_bytes(four)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn elements_are_scaled_and_added() {
        let mut data = floats(&[1.0, -2.0]);
        scale(&mut data, 0.5);
        add(&mut data, &floats(&[1.0, 1.0]));
        assert_eq!(data, floats(&[1.5, 0.0]));
    }
}
