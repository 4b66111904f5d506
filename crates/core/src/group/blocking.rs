//! The blocking collectives, over slices of any element type. Each is played by the thread that calls it.

use super::check::equal_parts;
use super::{Group, bytes, bytes_mut};
use crate::call::Reduction;
use crate::{Counts, DType, Element, Op, OpKind, Result};

impl Group {
    /// Every rank's `data` becomes the reduction of all ranks' data.
    #[track_caller]
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: impl Into<Reduction>) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::AllReduce {
            count: data.len(),
            reduce,
        };
        self.run_bytes(op, T::DTYPE, factor, None, bytes_mut(data)).map(drop)
    }

    /// Every rank's `output` becomes the reduction of all ranks' `input`.
    #[track_caller]
    pub fn all_reduce_into<T: Element>(&self, input: &[T], output: &mut [T], op: impl Into<Reduction>) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::AllReduce {
            count: input.len(),
            reduce,
        };
        self.run_bytes(op, T::DTYPE, factor, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// `root`'s `data` becomes the reduction of all ranks' data; the others' stays as it is.
    #[track_caller]
    pub fn reduce<T: Element>(&self, data: &mut [T], op: impl Into<Reduction>, root: usize) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::Reduce {
            count: data.len(),
            reduce,
            root,
        };
        self.run_bytes(op, T::DTYPE, factor, None, bytes_mut(data)).map(drop)
    }

    /// `root`'s `output` becomes the reduction of all ranks' `input`; the others' is empty.
    #[track_caller]
    pub fn reduce_into<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: impl Into<Reduction>,
        root: usize,
    ) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::Reduce {
            count: input.len(),
            reduce,
            root,
        };
        self.run_bytes(op, T::DTYPE, factor, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// Every rank's `data` becomes `root`'s.
    #[track_caller]
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        let op = Op::Broadcast {
            count: data.len(),
            root,
        };
        self.run_bytes(op, T::DTYPE, None, None, bytes_mut(data)).map(drop)
    }

    /// Every rank's `output` becomes all ranks' `input`, in rank order; all inputs have one length.
    #[track_caller]
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let op = Op::AllGather {
            counts: Counts::Even(input.len()),
        };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// Every rank's `output` becomes all ranks' `input`, in rank order; rank `i` gives `counts[i]` elements.
    #[track_caller]
    pub fn all_gather_uneven<T: Element>(&self, input: &[T], output: &mut [T], counts: &[usize]) -> Result<()> {
        let op = Op::AllGather {
            counts: Counts::uneven(counts),
        };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// Rank `i`'s `output` becomes the `i`-th part of the reduction of all ranks' `input`; all parts have one length.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: impl Into<Reduction>) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::ReduceScatter {
            counts: Counts::Even(output.len()),
            reduce,
        };
        self.run_bytes(op, T::DTYPE, factor, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// Rank `i`'s `output` becomes the `i`-th part of the reduction of all ranks' `input`, `counts[i]` elements long.
    #[track_caller]
    pub fn reduce_scatter_uneven<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        op: impl Into<Reduction>,
    ) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::ReduceScatter {
            counts: Counts::uneven(counts),
            reduce,
        };
        self.run_bytes(op, T::DTYPE, factor, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// The `j`-th part of rank `i`'s `input` becomes the `i`-th part of rank `j`'s `output`; all parts have one length.
    #[track_caller]
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let counts = Counts::Even(equal_parts(OpKind::AllToAll, "input", input.len(), self.size())?);
        let op = Op::AllToAll {
            give: counts.clone(),
            take: counts,
        };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// Parts of any length: this rank gives `give[j]` elements to rank `j` and takes `take[j]` from it.
    #[track_caller]
    pub fn all_to_all_uneven<T: Element>(
        &self,
        input: &[T],
        give: &[usize],
        output: &mut [T],
        take: &[usize],
    ) -> Result<()> {
        let op = Op::AllToAll {
            give: Counts::uneven(give),
            take: Counts::uneven(take),
        };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// `root`'s `output` becomes all ranks' `input`, in rank order; the others' is empty.
    #[track_caller]
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        let op = Op::Gather {
            counts: Counts::Even(input.len()),
            root,
        };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// As [`gather`](Group::gather), where rank `i` gives `counts[i]` elements.
    #[track_caller]
    pub fn gather_uneven<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        let op = Op::Gather {
            counts: Counts::uneven(counts),
            root,
        };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// Rank `i`'s `output` becomes the `i`-th part of `root`'s `input`; the others' input is empty.
    #[track_caller]
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        let op = Op::Scatter {
            counts: Counts::Even(output.len()),
            root,
        };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// As [`scatter`](Group::scatter), where rank `i` gets `counts[i]` elements.
    #[track_caller]
    pub fn scatter_uneven<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        let op = Op::Scatter {
            counts: Counts::uneven(counts),
            root,
        };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(input)), bytes_mut(output))
            .map(drop)
    }

    /// Returns when every rank has called it.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.run_bytes(Op::Barrier, DType::U8, None, None, &mut []).map(drop)
    }
}
