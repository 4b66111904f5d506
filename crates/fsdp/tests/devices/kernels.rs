//! The model's computation as kernels: the functions of the tests on the host, over memory of the device.

use half::{bf16, f16};
use phalanx_core::DType;
use phalanx_nccl::api::KernelId;
use phalanx_nccl::sim::Operand::{self, Number, Read, Real, Write};
use phalanx_nccl::sim::Simulation;

use crate::model::{Block, loss};
use crate::train::descend;

/// A block's outputs: its number, the type of its parameters, they themselves, inputs, outputs.
pub(crate) const FORWARD: KernelId = KernelId(0x1000);
/// Its gradients: the same up to the inputs, the slope of the outputs, that of the inputs, then of each gradient its number and its memory.
pub(crate) const BACKWARD: KernelId = KernelId(0x1001);
/// The loss: outputs, targets, their slope, its value, what the slope is multiplied by.
pub(crate) const LOSS: KernelId = KernelId(0x1002);
/// A step of the optimizer: a shard, its gradient, its speed.
pub(crate) const DESCEND: KernelId = KernelId(0x1003);

/// Devices that know them, for a model of these blocks.
pub(crate) fn known(simulation: Simulation, blocks: &[Block]) -> Simulation {
    let (forward, backward) = (blocks.to_vec(), blocks.to_vec());
    simulation
        .kernel(FORWARD, "forward", move |operands| run_forward(&forward, operands))
        .kernel(BACKWARD, "backward", move |operands| run_backward(&backward, operands))
        .kernel(LOSS, "loss", run_loss)
        .kernel(DESCEND, "descend", run_descend)
}

pub(crate) fn bytes_of(values: &[f64], dtype: DType) -> Vec<u8> {
    values.iter().flat_map(|value| narrow(*value, dtype)).collect()
}

pub(crate) fn values_of(bytes: &[u8], dtype: DType) -> Vec<f64> {
    bytes.chunks_exact(dtype.byte_len()).map(|element| widen(element, dtype)).collect()
}

/// A type as a number that kernels take.
pub(crate) fn code(dtype: DType) -> u64 {
    TYPES.iter().position(|other| *other == dtype).expect("a type of the model") as u64
}

const TYPES: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

fn widen(bytes: &[u8], dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::from_ne_bytes(bytes.try_into().expect("8 bytes")),
        DType::F16 => f16::from_ne_bytes(bytes.try_into().expect("2 bytes")).to_f64(),
        DType::BF16 => bf16::from_ne_bytes(bytes.try_into().expect("2 bytes")).to_f64(),
        _ => f64::from(f32::from_ne_bytes(bytes.try_into().expect("4 bytes"))),
    }
}

fn narrow(value: f64, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F64 => value.to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f32(value as f32).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value as f32).to_ne_bytes().to_vec(),
        _ => (value as f32).to_ne_bytes().to_vec(),
    }
}

fn run_forward(blocks: &[Block], operands: &mut [Operand]) -> bool {
    let [Number(block), Number(dtype), Read(weight), Read(bias), Read(gain), Read(x), Write(y)] = operands else {
        return false;
    };
    let dtype = TYPES[*dtype as usize];
    let params: Vec<_> = [weight, bias, gain].iter().map(|bytes| values_of(bytes, dtype)).collect();
    let (outputs, _) = blocks[*block as usize].forward(&params, values_of(x, DType::F64));
    *y = bytes_of(&outputs, DType::F64);
    true
}

fn run_backward(blocks: &[Block], operands: &mut [Operand]) -> bool {
    let (fixed, own) = operands.split_at_mut(8);
    let [Number(block), Number(dtype), Read(weight), Read(bias), Read(gain), Read(x), Read(slope), Write(before)] =
        fixed
    else {
        return false;
    };
    let (block, dtype) = (&blocks[*block as usize], TYPES[*dtype as usize]);
    let params: Vec<_> = [weight, bias, gain].iter().map(|bytes| values_of(bytes, dtype)).collect();
    let (_, saved) = block.forward(&params, values_of(x, DType::F64));
    let (inputs, gradients) = block.backward(&params, &saved, values_of(slope, DType::F64));
    *before = bytes_of(&inputs, DType::F64);
    own.chunks_exact_mut(2).all(|pair| {
        let [Number(index), Write(gradient)] = pair else { return false };
        let found = gradients.iter().find(|(other, _)| *other as u64 == *index);
        found.is_some_and(|(_, values)| {
            *gradient = bytes_of(values, dtype);
            true
        })
    })
}

fn run_loss(operands: &mut [Operand]) -> bool {
    let [Read(y), Read(targets), Write(slope), Write(value), Real(factor)] = operands else { return false };
    let (lost, mut slopes) = loss(&values_of(y, DType::F64), &values_of(targets, DType::F64));
    slopes.iter_mut().for_each(|d| *d *= f64::from(*factor));
    (*slope, *value) = (bytes_of(&slopes, DType::F64), bytes_of(&[lost], DType::F64));
    true
}

fn run_descend(operands: &mut [Operand]) -> bool {
    let [Write(shard), Read(gradient), Write(speed)] = operands else { return false };
    let floats = |bytes: &[u8]| values_of(bytes, DType::F32).iter().map(|x| *x as f32).collect::<Vec<f32>>();
    let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
    let (mut values, slopes, mut speeds) = (floats(shard), floats(gradient), floats(speed));
    descend(&mut values, &slopes, &mut speeds);
    (*shard, *speed) = (bytes(&values), bytes(&speeds));
    true
}
