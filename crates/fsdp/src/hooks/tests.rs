//! Hooks by their formulas, without anybody to talk to: packed by each rank, joined as the wire says, unpacked.

use half::{bf16, f16};

use super::*;
use crate::Factors;

fn gradients(rank: usize, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(rank as u64);
    (0..len).map(|_| (random.f32() - 0.5) * 10.0_f32.powi(random.i32(-6..3))).collect()
}

#[test]
fn half_floats_are_divided_in_their_own_type() {
    let size = Size { ranks: 6, rank: 0, len: 50, is_sharded: true };
    let (factors, gradients) = (Factors::two_steps(6.0), gradients(1, size.input_len()));
    let mut wire = vec![f16::ZERO; size.input_len()];
    F16.pack(0, size, &gradients, bytemuck::cast_slice_mut(&mut wire));
    let by = |x: f32, factor: f64| f16::from_f32(f16::from_f32(x).to_f32() / factor as f32);
    assert!(wire.iter().zip(&gradients).all(|(got, g)| got.to_bits() == by(*g, factors.before).to_bits()));
    let mut reduced = vec![0.0; size.len];
    F16.unpack(0, size, bytemuck::cast_slice(&wire[size.own()]), &mut reduced);
    let wanted = wire.iter().map(|x| by(x.to_f32(), factors.after).to_f32());
    assert!(reduced.iter().zip(wanted).all(|(got, wanted)| got.to_bits() == wanted.to_bits()));
    let mut wire = vec![bf16::ZERO; size.input_len()];
    Bf16.pack(0, size, &gradients, bytemuck::cast_slice_mut(&mut wire));
    let wanted = gradients.iter().map(|g| bf16::from_f32(bf16::from_f32(*g).to_f32() / 4.0));
    assert!(wire.iter().zip(wanted).all(|(got, wanted)| got.to_bits() == wanted.to_bits()));
}

#[test]
fn integers_are_within_half_a_scale_and_the_rest_is_kept() {
    let size = Size { ranks: 1, rank: 0, len: 1000, is_sharded: true };
    let gradients = gradients(2, size.len);
    let Wire::AllToAll(byte_len) = Int8::default().wire(size) else { panic!("another wire") };
    assert!(size.len * 4 * 2 > byte_len * 7, "{byte_len}");
    let (mut wire, mut reduced) = (vec![0; byte_len], vec![0.0; size.len]);
    let mut hook = Int8::default();
    let mut sums = vec![0.0_f64; size.len];
    for step in 1..=20 {
        hook.pack(3, size, &gradients, &mut wire);
        hook.unpack(3, size, &wire, &mut reduced);
        sums.iter_mut().zip(&reduced).for_each(|(sum, x)| *sum += f64::from(*x));
        for (block, (sums, wanted)) in sums.chunks(BLOCK).zip(gradients.chunks(BLOCK)).enumerate() {
            let largest = wanted.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let scale = f64::from(largest * 1.5 / 127.0);
            for (sum, g) in sums.iter().zip(wanted) {
                // However many steps, what is missing is what one rounding took away.
                assert!((sum - f64::from(*g) * f64::from(step)).abs() <= scale, "block {block}, step {step}");
            }
        }
    }
    let mut plain = Int8::default().feedback(false);
    let (mut first, mut second) = (wire.clone(), wire.clone());
    plain.pack(3, size, &gradients, &mut first);
    plain.pack(3, size, &gradients, &mut second);
    assert_eq!(first, second);
    hook.pack(3, size, &gradients, &mut second);
    assert_ne!(first, second);
}

#[test]
fn what_is_no_number_stays_none_and_is_forgotten() {
    let size = Size { ranks: 1, rank: 0, len: 130, is_sharded: false };
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let Wire::AllGather(byte_len) = Int8::default().wire(size) else { panic!("another wire") };
        let (mut wire, mut reduced) = (vec![0; byte_len], vec![0.0; size.len]);
        let mut hook = Int8::default();
        let mut gradients = vec![1.0; size.len];
        gradients[70] = odd;
        hook.pack(0, size, &gradients, &mut wire);
        hook.unpack(0, size, &wire, &mut reduced);
        assert!(reduced[64..128].iter().all(|x| x.is_nan()));
        assert!(reduced[..64].iter().chain(&reduced[128..]).all(|x| *x == 1.0), "{odd}");
        hook.pack(0, size, &vec![0.0; size.len], &mut wire);
        hook.unpack(0, size, &wire, &mut reduced);
        assert!(reduced.iter().all(|x| x.abs() < 1e-6));
    }
}

#[test]
fn tiny_and_empty_gradients_pass() {
    for (len, value) in [(0, 0.0), (1, 0.0), (3, f32::MIN_POSITIVE / 8.0), (65, -1e-30)] {
        let size = Size { ranks: 2, rank: 1, len, is_sharded: true };
        let Wire::AllToAll(byte_len) = Int8::default().wire(size) else { panic!("another wire") };
        let (mut wire, mut reduced) = (vec![0; byte_len * 2], vec![7.0; len]);
        let mut hook = Int8::default();
        hook.pack(0, size, &vec![value; len * 2], &mut wire);
        hook.unpack(0, size, &wire, &mut reduced);
        assert!(reduced.iter().all(|x| (x - value).abs() <= value.abs() / 127.0 + f32::MIN_POSITIVE), "{reduced:?}");
    }
}

const BLOCK: usize = 64;
