//! Elements that several ranks have given, joined into one: what the transport of one host reduces with.

use phalanx_core::DType;
use phalanx_core::reduce::{Factor, combine, scale};

use crate::api::{Argument, DataType, Grid, KernelId, RedOp, Scalar, Span};

/// What is joined in one launch.
#[derive(Clone, Copy, Debug)]
pub struct Join<'a> {
    /// Where it goes: so many elements.
    pub into: Span,
    /// What is joined, from the first to the last: [`MOST`](Join::MOST) at most, each as long.
    pub parts: &'a [Span],
    /// How.
    pub way: Way,
    /// How many elements.
    pub count: usize,
}

/// How elements are joined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// By one of NCCL's own reductions.
    Own(RedOp),
    /// The first, times a factor of its type.
    Scale(Scalar),
}

impl Way {
    /// What the kernel knows it by.
    pub fn number(self) -> u64 {
        match self {
            Way::Own(op) => u64::from(op.0.unsigned_abs()),
            Way::Scale(_) => SCALE,
        }
    }
}

impl Join<'_> {
    /// How many parts a launch joins at most.
    pub const MOST: usize = 8;

    /// The kernel for elements of a type; none for numbers of types that are not known.
    pub fn kernel(dtype: DataType) -> Option<KernelId> {
        dtype.element().map(|_| KernelId(FIRST | dtype.0.unsigned_abs()))
    }

    /// Every kernel that there is, with its name in the program of the device.
    pub fn kernels() -> impl Iterator<Item = (KernelId, String)> {
        Join::types().filter_map(|(dtype, element)| Some((Join::kernel(dtype)?, format!("phalanx_join_{element}"))))
    }

    /// The types that there are kernels for: all that NCCL has, each as ours.
    pub fn types() -> impl Iterator<Item = (DataType, DType)> {
        (0..).map(DataType).map_while(|dtype| Some((dtype, dtype.element()?)))
    }

    /// What the kernel is launched with.
    pub fn arguments(&self) -> Vec<Argument> {
        let part = |at: usize| Argument::Read(self.parts.get(at).copied().unwrap_or(Span::EMPTY));
        let (place, bits) = match self.way {
            Way::Scale(Scalar::Host(bytes)) => (Span::EMPTY, u64::from_le_bytes(bytes)),
            Way::Scale(Scalar::Device(place)) => (place, 0),
            _ => (Span::EMPTY, 0),
        };
        let mut arguments = vec![Argument::Write(self.into)];
        arguments.extend((0..Join::MOST).map(part));
        let numbers = [self.parts.len() as u64, self.count as u64, self.way.number()];
        arguments.extend(numbers.map(Argument::Number));
        arguments.extend([Argument::Read(place), Argument::Number(bits)]);
        arguments
    }

    /// How many threads join on a device of so many multiprocessors.
    pub fn grid(&self, multiprocessors: i32) -> Grid {
        let most = u32::try_from(multiprocessors).unwrap_or(1).max(1) * BLOCKS;
        let blocks = (self.into.byte_len() / BYTES).clamp(1, most as usize) as u32;
        Grid { blocks, threads: THREADS }
    }
}

/// The kernel's twin; false where its numbers do not fit its memory. `numbers` are those of [`Join::arguments`], in order.
pub fn join(kernel: KernelId, into: &mut [u8], parts: &[&[u8]], place: &[u8], numbers: [u64; 4]) -> bool {
    let [count, elements, way, bits] = numbers;
    let Some(dtype) = joined(kernel) else { return false };
    let Some(parts) = usize::try_from(count).ok().and_then(|count| parts.get(..count)) else { return false };
    if usize::try_from(elements).ok().and_then(|elements| elements.checked_mul(dtype.byte_len())) != Some(into.len()) {
        return false;
    }
    if way == SCALE {
        let [part] = parts else { return false };
        let bits = bits.to_le_bytes();
        let element = if place.is_empty() { bits.get(..dtype.byte_len()) } else { Some(place) };
        let factor = element.and_then(|element| Factor::from_element(dtype, element).ok());
        let (Some(factor), true) = (factor, part.len() == into.len()) else { return false };
        into.copy_from_slice(part);
        return scale(dtype, into, &factor).is_ok();
    }
    way < SCALE && combine(RedOp(way as i32).reduce(), dtype, into, parts).is_ok()
}

/// The type of a kernel that joins.
pub(crate) fn joined(kernel: KernelId) -> Option<DType> {
    DataType(i32::try_from(kernel.0.checked_sub(FIRST)?).ok()?).element()
}

const FIRST: u32 = 0x300;
const SCALE: u64 = RedOp::FIRST_CREATED as u64;
const THREADS: u32 = 256;
/// Thread blocks of a multiprocessor: enough to hide how long memory takes.
const BLOCKS: u32 = 4;
/// What one block takes at a time: 16 bytes a thread.
const BYTES: usize = 16 * THREADS as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Encoding;

    #[test]
    fn each_type_has_a_kernel_by_its_number() {
        assert_eq!(Join::types().count(), 10);
        for (_, dtype) in Join::types() {
            let kernel = Join::kernel(Encoding::moved(dtype).dtype).expect("a kernel");
            assert_eq!(joined(kernel), Some(dtype));
            assert!(Join::kernels().any(|known| known == (kernel, format!("phalanx_join_{dtype}"))));
        }
        assert_eq!(
            (Join::kernel(DataType(10)), Join::kernel(DataType(-1)), joined(KernelId(0x30a))),
            (None, None, None)
        );
    }

    #[test]
    fn parts_are_joined_and_scaled() {
        let kernel = Join::kernel(DataType::I32).expect("a kernel");
        let bytes = |values: [i32; 2]| values.map(i32::to_le_bytes).concat();
        let parts = [bytes([7, -3]), bytes([4, -4])];
        let parts = [&parts[0][..], &parts[1][..]];
        let mut into = [0; 8];
        for (way, wanted) in [(0, [11, -7]), (1, [28, 12]), (2, [7, -3]), (3, [4, -4]), (4, [5, -3])] {
            assert!(join(kernel, &mut into, &parts, &[], [2, 2, way, 0]));
            assert_eq!(into[..], bytes(wanted));
        }
        let kernel = Join::kernel(DataType::BF16).expect("a kernel");
        let half = half::bf16::from_f32(0.5).to_le_bytes();
        let six = half::bf16::from_f32(6.0).to_le_bytes();
        let mut into = [0; 2];
        assert!(join(kernel, &mut into, &[&six], &half, [1, 1, 5, 0]));
        assert_eq!(into, half::bf16::from_f32(3.0).to_le_bytes());
        let bits = u64::from(u16::from_le_bytes(half));
        assert!(join(kernel, &mut into, &[&six], &[], [1, 1, 5, bits]));
        assert_eq!(into, half::bf16::from_f32(3.0).to_le_bytes());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let kernel = Join::kernel(DataType::U8).expect("a kernel");
        let mut into = [0; 2];
        assert!(join(kernel, &mut into, &[&[1, 2]], &[], [1, 2, 0, 0]));
        assert!(!join(kernel, &mut into, &[&[1, 2]], &[], [2, 2, 0, 0]));
        assert!(!join(kernel, &mut into, &[&[1]], &[], [1, 2, 0, 0]));
        assert!(!join(kernel, &mut into, &[&[1, 2]], &[], [1, 3, 0, 0]));
        assert!(!join(kernel, &mut into, &[&[1, 2]], &[], [1, 2, 6, 0]));
        assert!(!join(kernel, &mut into, &[&[1, 2]], &[], [1, 2, 5, 0]), "whole numbers have no factor");
    }
}
