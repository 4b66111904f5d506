//! The kernels by number, each with its plain Rust twin: what the simulator runs, and what a device's kernel must equal.

mod carry;
mod join;
mod multiply;
pub mod nan;
mod norm;
mod plan;

pub use carry::{Carry, carry};
pub use join::{Join, Way, join};
pub use multiply::{Factor, Multiply, multiply};
pub use norm::{Fold, Measure, Norm, fold, measure, norm};
pub use plan::{Plan, Stretch};

pub(crate) use carry::pair;
pub(crate) use join::joined;
pub(crate) use multiply::multiplied;
pub(crate) use norm::measured;

use crate::api::KernelId;

/// The program of devices in CUDA C++, as one text.
pub const SOURCE: &str = concat!(
    include_str!("kernels/carry.cu"),
    "\n",
    include_str!("kernels/norm.cu"),
    "\n",
    include_str!("kernels/join.cu")
);

/// Multiplies `f32` elements: written memory, a factor.
pub const SCALE: KernelId = KernelId(1);
/// Adds `f32` elements: written memory, read memory of the same length.
pub const ADD: KernelId = KernelId(2);

/// Every kernel of the [program](SOURCE), with its name there.
pub fn all() -> Vec<(KernelId, String)> {
    let mut all = Carry::kernels();
    for dtype in carry::TYPES {
        all.extend(Measure::kernel(dtype).map(|kernel| (kernel, Measure::name(dtype))));
        all.extend(Multiply::kernel(dtype).map(|kernel| (kernel, Multiply::name(dtype))));
    }
    all.extend(Join::kernels());
    all.extend([(Fold::KERNEL, Fold::NAME), (Norm::KERNEL, Norm::NAME)].map(|(kernel, name)| (kernel, name.into())));
    all
}

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
    fn kernels_have_numbers_and_names_of_their_own() {
        let all = all();
        let numbers: std::collections::BTreeSet<_> = all.iter().map(|(kernel, _)| kernel.0).collect();
        let names: std::collections::BTreeSet<_> = all.iter().map(|(_, name)| name).collect();
        assert_eq!((all.len(), numbers.len(), names.len()), (36, 36, 36));
        for (kernel, name) in &all {
            let kinds = [
                pair(*kernel).is_some(),
                measured(*kernel).is_some(),
                multiplied(*kernel).is_some(),
                joined(*kernel).is_some(),
            ];
            let wanted = ["_put_", "_add_", "_measure_", "_multiply_", "_join_"].map(|part| name.contains(part));
            assert_eq!(kinds, [wanted[0] || wanted[1], wanted[2], wanted[3], wanted[4]], "{name}");
        }
    }

    #[test]
    fn elements_are_scaled_and_added() {
        let mut data = floats(&[1.0, -2.0]);
        scale(&mut data, 0.5);
        add(&mut data, &floats(&[1.0, 1.0]));
        assert_eq!(data, floats(&[1.5, 0.0]));
    }
}
