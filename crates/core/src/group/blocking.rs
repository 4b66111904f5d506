//! The blocking collectives, over slices of any element type. Each is played by the thread that calls it.

use super::check::equal_parts;
use super::{Group, bytes, bytes_mut};
use crate::call::Reduction;
use crate::reduce::Factor;
use crate::{Counts, DType, Element, Op, OpKind, Result};

impl Group {
    /// Every rank's `data` becomes the reduction of all ranks' data.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a reduction that is [not defined](crate::ReduceOp::supports) for the elements,
    /// `PreMulSum` without a factor, and a complex factor for real elements.
    #[track_caller]
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: impl Into<Reduction>) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::AllReduce { count: data.len(), reduce };
        self.lent(op, factor, None, data)
    }

    /// Every rank's `output` becomes the reduction of all ranks' `input`.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are what [`all_reduce`](Group::all_reduce) refuses, and an `output` that is not as long as
    /// `input`.
    #[track_caller]
    pub fn all_reduce_into<T: Element>(&self, input: &[T], output: &mut [T], op: impl Into<Reduction>) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::AllReduce { count: input.len(), reduce };
        self.lent(op, factor, Some(input), output)
    }

    /// `root`'s `data` becomes the reduction of all ranks' data; the others' stays as it is.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are what [`all_reduce`](Group::all_reduce) refuses, and a `root` that is no rank of the
    /// group.
    #[track_caller]
    pub fn reduce<T: Element>(&self, data: &mut [T], op: impl Into<Reduction>, root: usize) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::Reduce { count: data.len(), reduce, root };
        self.lent(op, factor, None, data)
    }

    /// `root`'s `output` becomes the reduction of all ranks' `input`; the others' is empty.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are what [`all_reduce`](Group::all_reduce) refuses, a `root` that is no rank of the group,
    /// and an `output` that on `root` is not as long as `input`, or elsewhere not empty.
    #[track_caller]
    pub fn reduce_into<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: impl Into<Reduction>,
        root: usize,
    ) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::Reduce { count: input.len(), reduce, root };
        self.lent(op, factor, Some(input), output)
    }

    /// Every rank's `data` becomes `root`'s.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused is a `root` that is no rank of the group.
    #[track_caller]
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        let op = Op::Broadcast { count: data.len(), root };
        self.lent(op, None, None, data)
    }

    /// Every rank's `output` becomes all ranks' `input`, in rank order; all inputs have one length, and `output` that of all together.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused is an `output` that is not as long as all inputs of this one's length together.
    #[track_caller]
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let op = Op::AllGather { counts: Counts::Even(input.len()) };
        self.lent(op, None, Some(input), output)
    }

    /// Every rank's `output` becomes all ranks' `input`, in rank order; rank `i` gives `counts[i]` elements.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are `counts` that are not one for each rank or are more together than memory can hold, and
    /// buffers of other lengths than they say.
    #[track_caller]
    pub fn all_gather_uneven<T: Element>(&self, input: &[T], output: &mut [T], counts: &[usize]) -> Result<()> {
        let op = Op::AllGather { counts: Counts::uneven(counts) };
        self.lent(op, None, Some(input), output)
    }

    /// The same in one buffer: rank `i` gives the `i`-th of the equal parts of its `data`, which becomes what all give.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused is `data` that does not divide into an equal part for each rank.
    #[track_caller]
    pub fn all_gather_in_place<T: Element>(&self, data: &mut [T]) -> Result<()> {
        let count = equal_parts(OpKind::AllGather, "data", data.len(), self.size())?;
        self.lent(Op::AllGather { counts: Counts::Even(count) }, None, None, data)
    }

    /// Rank `i`'s `output` becomes the `i`-th part of the reduction of all ranks' `input`; all parts have the length of `output`.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are what [`all_reduce`](Group::all_reduce) refuses, and an `input` that is not as long as all
    /// outputs of this one's length together.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: impl Into<Reduction>) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::ReduceScatter { counts: Counts::Even(output.len()), reduce };
        self.lent(op, factor, Some(input), output)
    }

    /// The same in one buffer: the `i`-th of the equal parts of rank `i`'s `data` becomes that part of the reduction of all ranks' `data`; the
    /// other parts have no meaning any more.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are what [`all_reduce`](Group::all_reduce) refuses, and `data` that does not divide into an
    /// equal part for each rank.
    #[track_caller]
    pub fn reduce_scatter_in_place<T: Element>(&self, data: &mut [T], op: impl Into<Reduction>) -> Result<()> {
        let count = equal_parts(OpKind::ReduceScatter, "data", data.len(), self.size())?;
        let Reduction { op: reduce, factor } = op.into();
        self.lent(Op::ReduceScatter { counts: Counts::Even(count), reduce }, factor, None, data)
    }

    /// Rank `i`'s `output` becomes the `i`-th part of the reduction of all ranks' `input`, `counts[i]` elements long.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are what [`all_reduce`](Group::all_reduce) refuses, `counts` as
    /// [`all_gather_uneven`](Group::all_gather_uneven) refuses them, and buffers of other lengths than they say.
    #[track_caller]
    pub fn reduce_scatter_uneven<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        op: impl Into<Reduction>,
    ) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let op = Op::ReduceScatter { counts: Counts::uneven(counts), reduce };
        self.lent(op, factor, Some(input), output)
    }

    /// The `j`-th part of rank `i`'s `input` becomes the `i`-th part of rank `j`'s `output`; all parts have one length.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are an `input` that does not divide into an equal part for each rank, and an `output` of
    /// another length.
    #[track_caller]
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        let counts = Counts::Even(equal_parts(OpKind::AllToAll, "input", input.len(), self.size())?);
        let op = Op::AllToAll { give: counts.clone(), take: counts };
        self.lent(op, None, Some(input), output)
    }

    /// Parts of any length: this rank gives `give[j]` elements to rank `j` and takes `take[j]` from it.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are `give` and `take` as [`all_gather_uneven`](Group::all_gather_uneven) refuses `counts`,
    /// another number that this rank takes from itself than it gives itself, and buffers of other lengths than they say.
    #[track_caller]
    pub fn all_to_all_uneven<T: Element>(
        &self,
        input: &[T],
        give: &[usize],
        output: &mut [T],
        take: &[usize],
    ) -> Result<()> {
        let op = Op::AllToAll { give: Counts::uneven(give), take: Counts::uneven(take) };
        self.lent(op, None, Some(input), output)
    }

    /// `root`'s `output` becomes all ranks' `input`, in rank order; all inputs have one length, `output` that of all together, and the others'
    /// is empty.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a `root` that is no rank of the group, and an `output` that on `root` is not as long as
    /// all inputs of this length together, or elsewhere not empty.
    #[track_caller]
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        let op = Op::Gather { counts: Counts::Even(input.len()), root };
        self.lent(op, None, Some(input), output)
    }

    /// As [`gather`](Group::gather), where rank `i` gives `counts[i]` elements.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a `root` that is no rank of the group, `counts` as
    /// [`all_gather_uneven`](Group::all_gather_uneven) refuses them, and buffers of other lengths than they say.
    #[track_caller]
    pub fn gather_uneven<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        let op = Op::Gather { counts: Counts::uneven(counts), root };
        self.lent(op, None, Some(input), output)
    }

    /// Rank `i`'s `output` becomes the `i`-th part of `root`'s `input`; all parts have the length of `output`, and the others' input is empty.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a `root` that is no rank of the group, and an `input` that on `root` is not as long as
    /// all outputs of this length together, or elsewhere not empty.
    #[track_caller]
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: usize) -> Result<()> {
        let op = Op::Scatter { counts: Counts::Even(output.len()), root };
        self.lent(op, None, Some(input), output)
    }

    /// As [`scatter`](Group::scatter), where rank `i` gets `counts[i]` elements.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a `root` that is no rank of the group, `counts` as
    /// [`all_gather_uneven`](Group::all_gather_uneven) refuses them, and buffers of other lengths than they say.
    #[track_caller]
    pub fn scatter_uneven<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        root: usize,
    ) -> Result<()> {
        let op = Op::Scatter { counts: Counts::uneven(counts), root };
        self.lent(op, None, Some(input), output)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors).
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.run_bytes(Op::Barrier, DType::U8, None, None, &mut []).map(drop)
    }

    /// Runs an operation over the caller's slices.
    #[track_caller]
    pub(super) fn lent<T: Element>(
        &self,
        op: Op,
        factor: Option<Factor>,
        input: Option<&[T]>,
        output: &mut [T],
    ) -> Result<()> {
        self.run_bytes(op, T::DTYPE, factor, input.map(bytes), bytes_mut(output)).map(drop)
    }
}
