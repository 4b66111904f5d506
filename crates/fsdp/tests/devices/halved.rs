//! A training without a kernel of the program's own, over whatever libraries.

use std::time::Duration;

use phalanx_core::store::Store;
use phalanx_core::{DType, GroupOptions, Layout, Result};
use phalanx_fsdp::device::{DeviceGroups, DeviceSharded};
use phalanx_fsdp::{Param, ParamSpec, Policy, UnitSpec};
use phalanx_nccl::api::{Cuda, Nccl, Process};
use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack};

/// Rows of each unit's weight, no multiple of most worlds.
const ROWS: [usize; 3] = [7, 5, 1001];
const COLUMNS: usize = 33;
const STEPS: i32 = 4;

/// Trains `loss = |w|^2 / 2`, of which each weight is its own gradient: with a rate of a half, each step halves it. On the way gradients
/// are doubled and clipped to what they were. Full parameters in the
/// end, and what they must be.
pub(crate) fn halved<N: Nccl, C: Cuda, P: Process>(
    stack: Stack<N, C, P>,
    (rank, size): (usize, usize),
    store: &Store,
    policy: &Policy,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let options = GroupOptions::default().timeout(Duration::from_secs(20));
    let layout = Layout::one_host(rank, size)?;
    let group = DeviceGroup::new(stack.clone(), layout, store.clone(), NcclOptions::default(), options)?;
    let compute = stack.answer("create_stream", stack.cuda().create_stream(stack.device(), false))?;
    let dtype = policy.compute_dtype().unwrap_or(DType::F32);
    let unit = |(index, rows): (usize, &usize)| {
        UnitSpec::new(format!("{index}"), vec![ParamSpec::new("w", &[*rows, COLUMNS], DType::F32)])
    };
    let units = ROWS.iter().enumerate().map(unit).collect();
    let groups = DeviceGroups::new(group);
    let mut model = DeviceSharded::new(stack.clone(), compute, groups, units, policy.clone())?;
    // Few bits, so that 16 hold them too.
    let initial = |unit: usize| (0..ROWS[unit] * COLUMNS).map(|at| (at % 61) as f32 - 30.0).collect::<Vec<_>>();
    for unit in 0..ROWS.len() {
        model.load_full(Param { unit, index: 0 }, &initial(unit))?;
    }
    let length = initial(0).iter().chain(&initial(1)).chain(&initial(2)).map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    for step in 0..STEPS {
        for unit in 0..ROWS.len() {
            model.before_forward(unit)?;
            model.after_forward(unit)?;
        }
        for unit in (0..ROWS.len()).rev() {
            let full = model.before_backward(unit)?;
            let gradients = model.gradient_memory(unit, dtype)?;
            let (to, from) = (gradients[0].buffer().span(), full.param(0)?.span());
            stack.answer("copy", stack.cuda().copy(to, from, compute))?;
            model.gradients(unit, &gradients)?;
        }
        model.finish_backward()?;
        // To a little more than a half, so that the factor is one: gradients are rounded to that.
        let wanted = length * 0.5_f64.powi(step);
        model.scale_gradients(2.0)?;
        model.clip_gradients(wanted + 0.5e-6, 2.0)?;
        let told = model.clipped_norm()?.unwrap_or_default();
        assert!((told / wanted - 2.0).abs() < 1e-9, "step {step}: {told} for {wanted}");
        for param in model.trained().collect::<Vec<_>>() {
            let halve = |shard: &mut [f32], gradient: Option<&[f32]>| {
                shard.iter_mut().zip(gradient.unwrap_or_default()).for_each(|(value, slope)| *value -= 0.5 * slope);
            };
            model.update_on_host(param, halve)?;
        }
        model.zero_gradients()?;
    }
    let (mut got, mut wanted) = (Vec::new(), Vec::new());
    for unit in 0..ROWS.len() {
        let mut full = initial(unit);
        wanted.extend(full.iter().map(|value| value * 0.5_f32.powi(STEPS)));
        model.copy_full(Param { unit, index: 0 }, &mut full)?;
        got.extend(full);
    }
    // A process that ends right after must not take threads out of the libraries.
    model.leave(Duration::from_secs(20))?;
    Ok((got, wanted))
}
