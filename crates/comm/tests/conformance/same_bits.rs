//! The same bits on every rank and in every run, whatever the numbers are.

use half::{bf16, f16};
use phalanx_core::{Element, Group, ReduceOp};

use crate::case::hash;
use crate::setting::{Setting, WORLDS};

pub(crate) fn floats(setting: &Setting) {
    agree(setting, |bits| f32::from_bits(bits as u32), f32::is_nan);
    agree(setting, f64::from_bits, f64::is_nan);
}

pub(crate) fn halves(setting: &Setting) {
    agree(setting, |bits| f16::from_bits(bits as u16), f16::is_nan);
    agree(setting, |bits| bf16::from_bits(bits as u16), bf16::is_nan);
}

/// Random bits: every exponent, subnormals, both infinities, and NaNs on some rank at some places.
fn agree<T: Element>(setting: &Setting, from_bits: fn(u64) -> T, is_nan: fn(T) -> bool) {
    for size in WORLDS {
        for len in [3, 5000] {
            let given = |rank: usize| -> Vec<T> {
                let bits = |at: usize| match hash((at * 64 + rank) as u64) {
                    rare if rare % 50 == 0 => u64::MAX,
                    bits => bits,
                };
                (0..len).map(|at| from_bits(bits(at))).collect()
            };
            let all: Vec<Vec<T>> = (0..size).map(given).collect();
            let once = || setting.run(size, |group| reduced(group, &all[group.rank()]));
            let (first, again) = (once(), once());
            assert_eq!(first, again, "{} in two worlds of {size}", T::DTYPE);
            assert!(first.iter().all(|bytes| *bytes == first[0]), "{} in {size}", T::DTYPE);
            let values: Vec<T> = bytes_as(&first[0]);
            for (at, _) in values.iter().enumerate().filter(|(_, value)| !is_nan(**value)) {
                assert!(!all.iter().any(|given| is_nan(given[at % len])), "a NaN was lost at {at}");
            }
        }
    }
}

/// What this rank has after a reduction of each kind, gathered where only one rank gets it.
fn reduced<T: Element>(group: &Group, given: &[T]) -> Vec<u8> {
    let mut all = Vec::new();
    for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg] {
        let mut data = given.to_vec();
        group.all_reduce(&mut data, op).unwrap();
        all.extend(bytes_of(&data));
        let mut data = given.to_vec();
        group.reduce(&mut data, op, group.size() - 1).unwrap();
        group.broadcast(&mut data, group.size() - 1).unwrap();
        all.extend(bytes_of(&data));
    }
    all
}

fn bytes_of<T: Element>(elements: &[T]) -> Vec<u8> {
    phalanx_mem::Buffer::from_vec(elements.to_vec()).as_bytes().to_vec()
}

fn bytes_as<T: Element>(bytes: &[u8]) -> Vec<T> {
    phalanx_mem::Buffer::copied_from(bytes).as_slice().expect("whole elements").to_vec()
}
