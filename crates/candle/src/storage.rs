//! The memory behind a variable: taken away and given back while the graph of a forward pass still holds the variable. Every tensor
//! that shares it sees the change.

use std::cell::RefCell;
use std::collections::HashMap;

use candle_core::{CpuStorage, DType, Error, InplaceOp1, Layout, Result, Var};
use half::bf16;

/// Takes the memory of a variable, which must not be used until it gets some again.
pub(crate) fn take(var: &Var) -> Result<CpuStorage> {
    let empty = match var.dtype() {
        DType::F32 => CpuStorage::F32(vec![]),
        DType::BF16 => CpuStorage::BF16(vec![]),
        other => return Err(Error::Msg(format!("a parameter of {other:?}: must be f32 or bf16"))),
    };
    swap(var, empty)
}

/// Gives a variable memory, which must be of its type and length; what it had before.
pub(crate) fn swap(var: &Var, storage: CpuStorage) -> Result<CpuStorage> {
    let exchange = Exchange(RefCell::new(storage));
    var.inplace_op1(&exchange)?;
    Ok(exchange.0.into_inner())
}

/// Memory that was taken away, kept for the next variable of the same type and length.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    kept: HashMap<(DType, usize), Vec<CpuStorage>>,
}

impl Spare {
    /// Memory for a variable, with anything in it.
    pub(crate) fn take(&mut self, var: &Var) -> CpuStorage {
        let (dtype, len) = (var.dtype(), var.elem_count());
        let kept = self.kept.get_mut(&(dtype, len)).and_then(Vec::pop);
        kept.unwrap_or_else(|| match dtype {
            DType::BF16 => CpuStorage::BF16(vec![bf16::ZERO; len]),
            _ => CpuStorage::F32(vec![0.0; len]),
        })
    }

    /// Keeps memory that nobody uses any more.
    pub(crate) fn keep(&mut self, var: &Var, storage: CpuStorage) {
        self.kept.entry((var.dtype(), var.elem_count())).or_default().push(storage);
    }
}

struct Exchange(RefCell<CpuStorage>);

impl InplaceOp1 for Exchange {
    fn name(&self) -> &'static str {
        "exchange"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _layout: &Layout) -> Result<()> {
        std::mem::swap(storage, &mut self.0.borrow_mut());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::*;

    #[test]
    fn a_graph_sees_what_its_variable_gets_back() {
        let var = Var::new(&[[1.0_f32, 2.0], [3.0, 4.0]], &Device::Cpu).expect("a variable");
        let x = Var::new(&[[1.0_f32, 1.0]], &Device::Cpu).expect("a variable");
        let output = x.matmul(&var.t().expect("a view")).and_then(|y| y.sum_all()).expect("forward");
        let taken = take(&var).expect("its memory");
        assert!(var.storage_and_layout().0.device().is_cpu());
        let mut spare = Spare::default();
        spare.keep(&var, taken);
        let CpuStorage::F32(mut values) = spare.take(&var) else { panic!("of another type") };
        values.iter_mut().for_each(|value| *value *= 10.0);
        swap(&var, CpuStorage::F32(values)).expect("memory");
        let grads = output.backward().expect("backward");
        let of_x: Vec<Vec<f32>> = grads.get(&x).and_then(|of_x: &Tensor| of_x.to_vec2().ok()).expect("a gradient");
        assert_eq!(of_x, [[40.0, 60.0]]);
    }
}
