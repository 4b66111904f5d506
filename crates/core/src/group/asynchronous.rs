//! The asynchronous collectives: they take their buffers by value and give them back when they end well.

use phalanx_mem::Buffer;

use super::Group;
use super::check::equal_parts;
use crate::backend::{Buffers, Finished};
use crate::call::Reduction;
use crate::reduce::Factor;
use crate::work::Work;
use crate::{Counts, DType, Element, Op, OpKind, Result, Site};

impl Group {
    /// As [`all_reduce`](Group::all_reduce).
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn all_reduce_async<T: Element>(&self, data: Vec<T>, op: impl Into<Reduction>) -> Result<Work<Vec<T>>> {
        let Reduction { op: reduce, factor } = op.into();
        self.in_place(Op::AllReduce { count: data.len(), reduce }, factor, data)
    }

    /// As [`all_reduce_into`](Group::all_reduce_into); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn all_reduce_into_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        op: impl Into<Reduction>,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        let Reduction { op: reduce, factor } = op.into();
        self.apart(Op::AllReduce { count: input.len(), reduce }, factor, input, output)
    }

    /// As [`reduce`](Group::reduce).
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn reduce_async<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Into<Reduction>,
        root: usize,
    ) -> Result<Work<Vec<T>>> {
        let Reduction { op: reduce, factor } = op.into();
        self.in_place(Op::Reduce { count: data.len(), reduce, root }, factor, data)
    }

    /// As [`reduce_into`](Group::reduce_into); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn reduce_into_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        op: impl Into<Reduction>,
        root: usize,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        let Reduction { op: reduce, factor } = op.into();
        self.apart(Op::Reduce { count: input.len(), reduce, root }, factor, input, output)
    }

    /// As [`broadcast`](Group::broadcast).
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn broadcast_async<T: Element>(&self, data: Vec<T>, root: usize) -> Result<Work<Vec<T>>> {
        self.in_place(Op::Broadcast { count: data.len(), root }, None, data)
    }

    /// As [`all_gather`](Group::all_gather); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn all_gather_async<T: Element>(&self, input: Vec<T>, output: Vec<T>) -> Result<Work<(Vec<T>, Vec<T>)>> {
        self.apart(Op::AllGather { counts: Counts::Even(input.len()) }, None, input, output)
    }

    /// As [`all_gather_in_place`](Group::all_gather_in_place).
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn all_gather_in_place_async<T: Element>(&self, data: Vec<T>) -> Result<Work<Vec<T>>> {
        let count = equal_parts(OpKind::AllGather, "data", data.len(), self.size())?;
        self.in_place(Op::AllGather { counts: Counts::Even(count) }, None, data)
    }

    /// As [`all_gather_uneven`](Group::all_gather_uneven); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn all_gather_uneven_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        counts: &[usize],
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        self.apart(Op::AllGather { counts: Counts::uneven(counts) }, None, input, output)
    }

    /// As [`reduce_scatter`](Group::reduce_scatter); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn reduce_scatter_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        op: impl Into<Reduction>,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        let Reduction { op: reduce, factor } = op.into();
        self.apart(Op::ReduceScatter { counts: Counts::Even(output.len()), reduce }, factor, input, output)
    }

    /// As [`reduce_scatter_in_place`](Group::reduce_scatter_in_place).
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn reduce_scatter_in_place_async<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Into<Reduction>,
    ) -> Result<Work<Vec<T>>> {
        let count = equal_parts(OpKind::ReduceScatter, "data", data.len(), self.size())?;
        let Reduction { op: reduce, factor } = op.into();
        self.in_place(Op::ReduceScatter { counts: Counts::Even(count), reduce }, factor, data)
    }

    /// As [`reduce_scatter_uneven`](Group::reduce_scatter_uneven); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn reduce_scatter_uneven_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        counts: &[usize],
        op: impl Into<Reduction>,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        let Reduction { op: reduce, factor } = op.into();
        self.apart(Op::ReduceScatter { counts: Counts::uneven(counts), reduce }, factor, input, output)
    }

    /// As [`all_to_all`](Group::all_to_all); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn all_to_all_async<T: Element>(&self, input: Vec<T>, output: Vec<T>) -> Result<Work<(Vec<T>, Vec<T>)>> {
        let counts = Counts::Even(equal_parts(OpKind::AllToAll, "input", input.len(), self.size())?);
        self.apart(Op::AllToAll { give: counts.clone(), take: counts }, None, input, output)
    }

    /// As [`all_to_all_uneven`](Group::all_to_all_uneven); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn all_to_all_uneven_async<T: Element>(
        &self,
        input: Vec<T>,
        give: &[usize],
        output: Vec<T>,
        take: &[usize],
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        let op = Op::AllToAll { give: Counts::uneven(give), take: Counts::uneven(take) };
        self.apart(op, None, input, output)
    }

    /// As [`gather`](Group::gather); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn gather_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        root: usize,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        self.apart(Op::Gather { counts: Counts::Even(input.len()), root }, None, input, output)
    }

    /// As [`gather_uneven`](Group::gather_uneven); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn gather_uneven_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        counts: &[usize],
        root: usize,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        self.apart(Op::Gather { counts: Counts::uneven(counts), root }, None, input, output)
    }

    /// As [`scatter`](Group::scatter); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn scatter_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        root: usize,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        self.apart(Op::Scatter { counts: Counts::Even(output.len()), root }, None, input, output)
    }

    /// As [`scatter_uneven`](Group::scatter_uneven); gives the input and the output back.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as there.
    #[track_caller]
    pub fn scatter_uneven_async<T: Element>(
        &self,
        input: Vec<T>,
        output: Vec<T>,
        counts: &[usize],
        root: usize,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        self.apart(Op::Scatter { counts: Counts::uneven(counts), root }, None, input, output)
    }

    /// As [`barrier`](Group::barrier).
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors).
    #[track_caller]
    pub fn barrier_async(&self) -> Result<Work<()>> {
        let pending = self.submit_from(Op::Barrier, DType::U8, None, Buffers::default(), Site::caller())?;
        Ok(Work::new(OpKind::Barrier, pending, |_| ()))
    }

    #[track_caller]
    fn in_place<T: Element>(&self, op: Op, factor: Option<Factor>, data: Vec<T>) -> Result<Work<Vec<T>>> {
        let buffers = Buffers { input: None, output: Buffer::from_vec(data) };
        let kind = op.kind();
        let pending = self.submit_from(op, T::DTYPE, factor, buffers, Site::caller())?;
        Ok(Work::new(kind, pending, |finished| elements(finished.buffers.output)))
    }

    #[track_caller]
    fn apart<T: Element>(
        &self,
        op: Op,
        factor: Option<Factor>,
        input: Vec<T>,
        output: Vec<T>,
    ) -> Result<Work<(Vec<T>, Vec<T>)>> {
        let buffers = Buffers { input: Some(Buffer::from_vec(input)), output: Buffer::from_vec(output) };
        let kind = op.kind();
        let pending = self.submit_from(op, T::DTYPE, factor, buffers, Site::caller())?;
        Ok(Work::new(kind, pending, |Finished { buffers, .. }| {
            (elements(buffers.input.unwrap_or_default()), elements(buffers.output))
        }))
    }
}

/// The vector that a buffer was made from; a copy of its elements if a backend gave back another.
pub(super) fn elements<T: Element>(buffer: Buffer) -> Vec<T> {
    buffer.into_vec().unwrap_or_else(|buffer| {
        buffer.as_bytes().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    })
}
