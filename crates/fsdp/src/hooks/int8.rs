//! The hook that sends a byte for each element: blocks of integers under a common scale, whose rounding errors are added to the next
//! gradients. What travels is quantised once and summed in `f32`, so that errors do not pile up with ranks.

use std::collections::HashMap;
use std::fmt;

use super::{GradientHook, Size, Wire};

/// Gradients travel as 8-bit integers, 64 of them under one scale: 3.76 times less than `f32`.
///
/// With feedback, what rounding took away is kept, as large as all gradients in full, and added the next time: that makes errors vanish
/// over steps. A block with a NaN or an infinity is NaN on all ranks, and forgets what was kept.
#[derive(Clone)]
#[must_use]
pub struct Int8 {
    has_feedback: bool,
    residuals: HashMap<usize, Vec<f32>>,
}

impl Int8 {
    /// Whether rounding errors are added to the next gradients.
    pub fn feedback(mut self, has_feedback: bool) -> Int8 {
        self.has_feedback = has_feedback;
        self
    }
}

impl Default for Int8 {
    fn default() -> Int8 {
        Int8 { has_feedback: true, residuals: HashMap::new() }
    }
}

impl fmt::Debug for Int8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Int8").field("has_feedback", &self.has_feedback).finish_non_exhaustive()
    }
}

impl GradientHook for Int8 {
    fn wire(&self, size: Size) -> Wire {
        let byte_len = row_byte_len(size.len);
        if size.is_sharded { Wire::AllToAll(byte_len) } else { Wire::AllGather(byte_len) }
    }

    fn pack(&mut self, unit: usize, size: Size, gradients: &[f32], wire: &mut [u8]) {
        let mut fresh = Vec::new();
        let residual = if self.has_feedback { self.residuals.entry(unit).or_default() } else { &mut fresh };
        residual.resize(gradients.len(), 0.0);
        let rows = gradients.chunks(size.len.max(1)).zip(residual.chunks_mut(size.len.max(1)));
        for ((gradients, residual), wire) in rows.zip(wire.chunks_mut(row_byte_len(size.len).max(1))) {
            pack_row(gradients, residual, wire);
        }
    }

    fn unpack(&mut self, _: usize, size: Size, wire: &[u8], reduced: &mut [f32]) {
        reduced.fill(0.0);
        for row in wire.chunks(row_byte_len(size.len).max(1)) {
            add_row(row, reduced);
        }
        reduced.iter_mut().for_each(|sum| *sum /= size.ranks as f32);
    }
}

/// Bytes of a row: a scale for each block, and then the integers.
fn row_byte_len(len: usize) -> usize {
    len.div_ceil(BLOCK) * SCALE + len
}

fn pack_row(gradients: &[f32], residual: &mut [f32], wire: &mut [u8]) {
    let (scales, integers) = wire.split_at_mut(gradients.len().div_ceil(BLOCK) * SCALE);
    let blocks = gradients.chunks(BLOCK).zip(residual.chunks_mut(BLOCK));
    for ((block, scale), (gradients, residual)) in integers.chunks_mut(BLOCK).zip(scales.chunks_mut(SCALE)).zip(blocks)
    {
        scale.copy_from_slice(&pack_block(gradients, residual, block).to_le_bytes());
    }
}

/// Writes the integers of one block, and keeps what they fall short of. Returns their scale.
fn pack_block(gradients: &[f32], residual: &mut [f32], integers: &mut [u8]) -> f32 {
    residual.iter_mut().zip(gradients).for_each(|(rest, gradient)| *rest += gradient);
    let largest = residual.iter().fold(0.0_f32, |most, x| if x.abs() > most || x.is_nan() { x.abs() } else { most });
    let scale = largest / LARGEST;
    if !scale.is_finite() {
        residual.fill(0.0);
        integers.fill(0);
        return f32::NAN;
    }
    // Below the smallest normal number nothing is left to scale by.
    let inverse = if scale >= f32::MIN_POSITIVE { scale.recip() } else { 0.0 };
    for (integer, rest) in integers.iter_mut().zip(residual) {
        let rounded = (*rest * inverse).round().clamp(-LARGEST, LARGEST);
        *integer = (rounded as i8).to_le_bytes()[0];
        *rest -= rounded * scale;
    }
    scale
}

/// Adds what one rank sent.
fn add_row(row: &[u8], sums: &mut [f32]) {
    let (scales, integers) = row.split_at(sums.len().div_ceil(BLOCK) * SCALE);
    for ((scale, integers), sums) in scales.chunks(SCALE).zip(integers.chunks(BLOCK)).zip(sums.chunks_mut(BLOCK)) {
        let scale = f32::from_le_bytes(scale.try_into().unwrap_or([0; SCALE]));
        for (sum, integer) in sums.iter_mut().zip(integers) {
            *sum += f32::from(i8::from_le_bytes([*integer])) * scale;
        }
    }
}

/// Elements under one scale.
const BLOCK: usize = 64;
/// Bytes of a scale.
const SCALE: usize = size_of::<f32>();
/// The largest integer; the one below its negative is not used.
const LARGEST: f32 = 127.0;
