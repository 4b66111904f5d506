//! What forward has run, unit by unit, and the way back through it. Each unit is a graph of its own on an input that is cut off from the
//! one before, so there is an exact moment before and after the backward of every unit.

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, Layout, Module, Result, Shape, Tensor, Var};

/// What one unit was given, and what it returned.
#[derive(Debug)]
pub(crate) struct Segment {
    input: Tensor,
    /// Nothing where backward is to run the unit again.
    output: Option<Tensor>,
}

/// What came of running a unit backwards.
#[derive(Debug)]
pub(crate) struct Gradients {
    /// Of the unit's input.
    pub(crate) of_input: Option<Tensor>,
    /// Of the variables, in the order in which they were given.
    pub(crate) of_vars: Vec<Option<Tensor>>,
    /// Other variables to which a gradient came that nobody takes.
    pub(crate) strays: Vec<Tensor>,
}

/// A unit's output, cut off from the unit; and what has to be kept for its backward.
pub(crate) fn forward(module: &dyn Module, input: Tensor, recomputes: bool) -> Result<(Tensor, Segment)> {
    let output = module.forward(&input)?;
    let next = leaf(&output)?;
    Ok((next, Segment { input, output: (!recomputes).then_some(output) }))
}

/// A tensor to which gradients come, and go no further. Numbers that are no floating ones have no gradient.
fn leaf(tensor: &Tensor) -> Result<Tensor> {
    match tensor.dtype().is_float() {
        true => Ok(Var::from_tensor(&tensor.detach())?.into_inner()),
        false => Ok(tensor.detach()),
    }
}

impl Segment {
    /// Runs a unit backwards from the gradient of its output: the gradient of its input, of each of these variables, and what else got one.
    pub(crate) fn backward(
        self,
        module: &dyn Module,
        gradient: Tensor,
        vars: impl Iterator<Item = Var>,
    ) -> Result<Gradients> {
        let Segment { input, output } = self;
        let output = match output {
            Some(output) => output,
            None => module.forward(&input)?,
        };
        if gradient.shape() != output.shape() {
            candle_core::bail!("backward: a gradient of {:?} for an output of {:?}", gradient.dims(), output.dims());
        }
        let scalar = output.apply_op1(Seed(gradient))?;
        let mut gradients = scalar.backward()?;
        let of_vars = vars.map(|var| gradients.remove(&var)).collect();
        let of_input = gradients.remove(&input);
        Ok(Gradients { of_input, of_vars, strays: strays(&scalar, &gradients) })
    }
}

/// The variables among which a tensor was computed whose gradients are left. candle leaves those of constants as well, so that the graph has
/// to say which are variables; and the graph has variables without a gradient, such as the numbers of rows that are chosen.
pub(crate) fn strays(computed: &Tensor, left: &GradStore) -> Vec<Tensor> {
    // Mostly there are none: no need to walk through the graph again.
    if left.get_ids().next().is_none() {
        return vec![];
    }
    let nodes = computed.sorted_nodes().into_iter();
    nodes.filter(|node| node.is_variable() && left.get(node).is_some()).cloned().collect()
}

/// A scalar whose gradient is the given one: what backward starts from, at no cost.
struct Seed(Tensor);

impl CustomOp1 for Seed {
    fn name(&self) -> &'static str {
        "seed"
    }

    fn cpu_fwd(&self, output: &CpuStorage, _layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let scalar = match output {
            CpuStorage::BF16(_) => CpuStorage::BF16(vec![half::bf16::ZERO]),
            CpuStorage::F64(_) => CpuStorage::F64(vec![0.0]),
            _ => CpuStorage::F32(vec![0.0]),
        };
        Ok((scalar, Shape::from(())))
    }

    fn bwd(&self, _output: &Tensor, _scalar: &Tensor, _one: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.0.clone()))
    }
}
