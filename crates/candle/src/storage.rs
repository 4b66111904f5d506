//! The memory behind a variable: taken away and given back while the graph of a forward pass still holds the variable. Every tensor
//! that shares it sees the change.

use std::cell::RefCell;

use candle_core::{CpuStorage, DType, Error, InplaceOp1, Layout, Result, Storage, Tensor, Var};
use half::bf16;

/// Takes the memory of a variable, with which nothing can be computed until it gets some again: what stands in for it is of a type for which
/// candle has no operation. Of its own type, only shorter than its shape says, a matrix product would read whatever lies there.
pub(crate) fn take(var: &Var) -> Result<CpuStorage> {
    match var.dtype() {
        DType::F32 | DType::BF16 => swap(var, CpuStorage::F4(vec![])),
        other => Err(Error::Msg(format!("a parameter of {other:?}: must be f32 or bf16"))),
    }
}

/// What candle calls the type of what stands in for memory that was taken, wherever it refuses to compute with that.
pub(crate) const ABSENT: &str = "F4";

/// Whether the memory of a variable was taken.
pub(crate) fn is_taken(var: &Var) -> bool {
    var.storage_and_layout().0.dtype() != var.dtype()
}

/// Gives a variable memory, which must be of its type and length; what it had before.
pub(crate) fn swap(var: &Var, storage: CpuStorage) -> Result<CpuStorage> {
    let exchange = Exchange(RefCell::new(storage));
    var.inplace_op1(&exchange)?;
    Ok(exchange.0.into_inner())
}

/// Whether a tensor lies in the memory of a variable.
pub(crate) fn is_shared(tensor: &Tensor, var: &Var) -> bool {
    let place = |tensor: &Tensor| std::ptr::from_ref::<Storage>(&tensor.storage_and_layout().0);
    place(tensor) == place(var)
}

/// Memory that was taken away, kept for the next variable of the same type and length. With what variables have it is never more than
/// these once needed at a time.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// With the type and length of each, the longest unused first.
    kept: Vec<(DType, usize, CpuStorage)>,
    /// Bytes that are kept, that variables have, and the most that they had.
    idle: usize,
    used: usize,
    peak: usize,
}

impl Spare {
    /// Memory for a variable, with anything in it.
    pub(crate) fn take(&mut self, var: &Var) -> CpuStorage {
        let (dtype, len) = (var.dtype(), var.elem_count());
        self.used += len * dtype.size_in_bytes();
        self.peak = self.peak.max(self.used);
        if let Some(index) = self.kept.iter().rposition(|(of, long, _)| (*of, *long) == (dtype, len)) {
            return self.wake(index);
        }
        while self.used + self.idle > self.peak {
            drop(self.wake(0));
        }
        match dtype {
            DType::BF16 => CpuStorage::BF16(vec![bf16::ZERO; len]),
            _ => CpuStorage::F32(vec![0.0; len]),
        }
    }

    /// Keeps memory that nobody uses any more.
    pub(crate) fn keep(&mut self, var: &Var, storage: CpuStorage) {
        let (dtype, len) = (var.dtype(), var.elem_count());
        self.used -= len * dtype.size_in_bytes();
        self.idle += len * dtype.size_in_bytes();
        self.kept.push((dtype, len, storage));
    }

    /// The most bytes that it and the variables ever had.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }

    /// What is kept now.
    #[cfg(test)]
    pub(crate) fn idle(&self) -> impl Iterator<Item = &CpuStorage> {
        self.kept.iter().map(|(.., storage)| storage)
    }

    fn wake(&mut self, index: usize) -> CpuStorage {
        let (dtype, len, storage) = self.kept.remove(index);
        self.idle -= len * dtype.size_in_bytes();
        storage
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
    use candle_core::Device;

    use super::*;

    #[test]
    fn a_graph_sees_what_its_variable_gets_back() {
        let var = Var::new(&[[1.0_f32, 2.0], [3.0, 4.0]], &Device::Cpu).expect("a variable");
        let x = Var::new(&[[1.0_f32, 1.0]], &Device::Cpu).expect("a variable");
        let output = x.matmul(&var.t().expect("a view")).and_then(|y| y.sum_all()).expect("forward");
        drop(take(&var).expect("its memory"));
        assert!(is_taken(&var) && var.storage_and_layout().0.device().is_cpu());
        let mut spare = Spare::default();
        let CpuStorage::F32(mut values) = spare.take(&var) else { panic!("of another type") };
        values.copy_from_slice(&[10.0, 20.0, 30.0, 40.0]);
        swap(&var, CpuStorage::F32(values)).expect("memory");
        let grads = output.backward().expect("backward");
        let of_x: Vec<Vec<f32>> = grads.get(&x).and_then(|of_x: &Tensor| of_x.to_vec2().ok()).expect("a gradient");
        assert_eq!(of_x, [[40.0, 60.0]]);
    }

    #[test]
    fn nothing_is_computed_with_a_variable_whose_memory_was_taken() {
        for dtype in [DType::F32, DType::BF16] {
            let ones = || Var::ones((2, 2), dtype, &Device::Cpu).expect("a variable");
            let (var, other, x) = (ones(), ones(), ones());
            let values = [&var, &other].map(|var| take(var).expect("its memory"));
            let view = var.t().expect("a view");
            let refused = [
                x.matmul(&var),
                var.matmul(&x),
                x.matmul(&view),
                var.matmul(&other),
                x.add(&var),
                var.mul(&other),
                var.sqr(),
                view.sqr(),
                var.affine(2.0, 1.0),
                var.sum_all(),
                var.argmax(0),
                var.to_dtype(DType::F64),
                var.index_select(&Tensor::new(&[0_u32], &Device::Cpu).expect("numbers"), 0),
                view.contiguous(),
                Tensor::cat(&[x.as_tensor(), var.as_tensor()], 0),
            ];
            for (at, refused) in refused.iter().enumerate() {
                assert!(refused.is_err(), "operation {at} with {dtype:?}: {refused:?}");
            }
            assert!(var.set(&x).is_err() && x.set(&var).is_err());
            assert!(var.to_vec2::<f32>().is_err() && var.to_vec2::<bf16>().is_err());
            for (var, values) in [&var, &other].into_iter().zip(values) {
                swap(var, values).expect("memory");
            }
            assert!(!is_taken(&var) && var.sqr().is_ok());
        }
    }

    #[test]
    fn nothing_is_kept_beyond_what_was_needed_at_a_time() {
        let zeros = |len: usize| Var::zeros(len, DType::F32, &Device::Cpu).expect("a variable");
        let vars: Vec<Var> = (1..=50).map(zeros).collect();
        let (mut spare, mut random) = (Spare::default(), fastrand::Rng::with_seed(1));
        let (mut held, mut most) = (Vec::<(&Var, CpuStorage)>::new(), 0);
        for _ in 0..2000 {
            if held.len() == 3 || (random.bool() && !held.is_empty()) {
                let (var, storage) = held.swap_remove(random.usize(..held.len()));
                spare.keep(var, storage);
            } else {
                let var = &vars[random.usize(..vars.len())];
                let storage = spare.take(var);
                assert_eq!(storage.as_slice::<f32>().expect("floats").len(), var.elem_count());
                held.push((var, storage));
            }
            let bytes = |storages: &mut dyn Iterator<Item = &CpuStorage>| -> usize {
                storages.map(|storage| 4 * storage.as_slice::<f32>().expect("floats").len()).sum()
            };
            let used = bytes(&mut held.iter().map(|(_, storage)| storage));
            most = most.max(used);
            let idle = bytes(&mut spare.idle());
            assert!(used + idle <= most, "{idle} bytes beside {used}, and at most {most} were needed");
            assert_eq!((spare.used, spare.idle, spare.peak()), (used, idle, most));
        }
        let again = spare.take(&vars[0]);
        let start = again.as_slice::<f32>().expect("floats").as_ptr();
        spare.keep(&vars[0], again);
        assert_eq!(spare.take(&vars[0]).as_slice::<f32>().expect("floats").as_ptr(), start);
    }
}
