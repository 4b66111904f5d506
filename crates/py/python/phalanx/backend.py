"""The backend "phalanx" of torch.distributed: every operation of a process group, over our native group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d
from torch.autograd import _profiler_enabled
from torch.autograd.profiler import record_function

from . import _native, sparse
from ._native import Op
from .arguments import (
    check_pairs,
    check_same_dtype,
    check_some,
    check_whole,
    count_of_each,
    counts_of,
    one_for_each,
    rank_number,
    single,
    split,
    tag_number,
)
from .eager import eager
from .failures import translated
from .identity import Identity
from .reductions import reduction
from .spelling import listed, options, paired
from .tensors import (
    DTYPES,
    apart,
    check_apart,
    contiguous,
    copy_into,
    dtype_number,
    is_plain,
    joined,
    part_into,
    room_for,
)
from .works import ENDED, Work, milliseconds

Finish = Callable[[], None]


class Call(NamedTuple):
    """One operation of the native half on tensors that were checked, and what brings its result back."""

    op: Op
    output: Tensor | None = None
    source: Tensor | None = None
    finish: Finish | None = None
    factor: float | tuple[float, float] | None = None


@eager
class ProcessGroup(Identity):
    """A process group whose operations end with the right result, or with an error that says which rank is to blame.

    A call with ``async_op=False`` is played by the calling thread; any other returns a `Work` at once.
    """

    # What was begun since coalescing began.
    _begun: list[Work] | None = None

    # Collectives of every rank's data.

    def allreduce(
        self, tensors: Sequence[Tensor], opts: Any = None, timeout: timedelta | None = None, *, op: Any = None
    ) -> Work | None:
        if type(tensors) is not list:
            tensors = listed(tensors)
        if len(tensors) == 1:
            tensor = tensors[0]
            if not getattr(opts, "asyncOp", True) and is_plain(tensor) and not _profiler_enabled():
                return self._all_reduce_at_once(tensor, opts)
        opts = options(c10d.AllreduceOptions, opts, timeout, reduceOp=op)
        if len(tensors) == 1 and tensors[0].is_sparse:
            sparse.all_reduce(self, tensors[0], opts)
            return Work([], list(tensors)) if getattr(opts, "asyncOp", True) else ENDED
        reduce, factor = reduction(opts)
        calls = []
        for tensor in tensors:
            flat = contiguous("all_reduce", tensor)
            calls.append(Call(Op.all_reduce(flat.numel(), reduce), flat, None, _back(tensor, flat), factor))
        return self._called(calls, opts, tensors)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Work | None:
        check_some("all_reduce_coalesced", "tensors", tensors)
        return self.allreduce(tensors, opts)

    def reduce(
        self,
        tensors: Sequence[Tensor],
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        root: Any = None,
    ) -> Work | None:
        tensors = listed(tensors)
        opts = options(c10d.ReduceOptions, opts, timeout, rootRank=root, reduceOp=op)
        reduce, factor = reduction(opts)
        tensor, root = single("reduce", "tensors", tensors), _root("reduce", opts)
        flat = contiguous("reduce", tensor)
        back = _back(tensor, flat) if self._group.rank == root else None
        return self._called([Call(Op.reduce(flat.numel(), reduce, root), flat, None, back, factor)], opts, tensors)

    def broadcast(
        self, tensors: Sequence[Tensor], opts: Any = None, timeout: timedelta | None = None, *, root: Any = None
    ) -> Work | None:
        tensors = listed(tensors)
        opts = options(c10d.BroadcastOptions, opts, timeout, rootRank=root)
        root, calls = _root("broadcast", opts), []
        for tensor in tensors:
            flat = contiguous("broadcast", tensor)
            back = _back(tensor, flat) if self._group.rank != root else None
            calls.append(Call(Op.broadcast(flat.numel(), root), flat, None, back))
        return self._called(calls, opts, tensors)

    # Gathering and scattering.

    def allgather(
        self,
        outputs: Sequence[Sequence[Tensor]],
        inputs: Sequence[Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work | None:
        outputs, inputs = paired(outputs, inputs)
        opts = options(c10d.AllgatherOptions, opts, timeout)
        if len(outputs) != len(inputs):
            raise ValueError(
                f"phalanx: all_gather: output has {len(outputs)} lists, must have one for each of {len(inputs)} inputs"
            )
        calls = [self._gather_into("all_gather", list(parts), tensor, None) for parts, tensor in zip(outputs, inputs)]
        return self._called(calls, opts, outputs)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work | None:
        self._listed("all_gather_coalesced", "output lists", outputs)
        for parts in outputs:
            if len(parts) != len(inputs):
                raise ValueError(
                    f"phalanx: all_gather_coalesced: a list of {len(parts)} outputs, must be one for each of {len(inputs)} inputs"
                )
        parts_of = [[parts[at] for parts in outputs] for at in range(len(inputs))]
        calls = [self._gather_into("all_gather", parts, tensor, None) for parts, tensor in zip(parts_of, inputs)]
        return self._called(calls, opts, outputs)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work | None:
        return self._called([self._gather_whole(output, input)], opts, [output])

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work | None:
        check_pairs("all_gather_into_tensor", outputs, inputs)
        calls = [self._gather_whole(output, tensor) for output, tensor in zip(outputs, inputs)]
        return self._called(calls, opts, outputs)

    def gather(
        self,
        outputs: Sequence[Sequence[Tensor]],
        inputs: Sequence[Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: Any = None,
    ) -> Work | None:
        outputs, inputs = paired(outputs, inputs)
        opts = options(c10d.GatherOptions, opts, timeout, rootRank=root)
        tensor, root = single("gather", "inputs", inputs), _root("gather", opts)
        if self._group.rank == root:
            parts = self._listed("gather", "outputs", single("gather", "output lists", outputs))
            return self._called([self._gather_into("gather", parts, tensor, root)], opts, outputs)
        if outputs and outputs[0]:
            raise ValueError(
                f"phalanx: gather: outputs are a list of {len(outputs[0])}, must be empty on ranks other than root {root}"
            )
        source = contiguous("gather", tensor)
        return self._called([Call(Op.gather(source.numel(), root), None, source)], opts, outputs)

    def gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work | None:
        opts = options(c10d.GatherOptions, opts)
        source, root = contiguous("gather", input), _root("gather_single", opts)
        op = Op.gather(input.numel(), root)
        if self._group.rank != root:
            return self._called([Call(op, None, source)], opts, [output])
        check_whole("gather_single", "output", output, "input", input, self._group.size)
        check_same_dtype("gather_single", [output, input])
        flat = contiguous("gather", output)
        return self._called([Call(op, flat, apart(source, flat), _back(output, flat))], opts, [output])

    def scatter(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Sequence[Tensor]],
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: Any = None,
    ) -> Work | None:
        outputs, inputs = paired(outputs, inputs)
        opts = options(c10d.ScatterOptions, opts, timeout, rootRank=root)
        output, root = single("scatter", "outputs", outputs), _root("scatter", opts)
        flat, source = contiguous("scatter", output), None
        counts: int | list[int] = flat.numel()
        if self._group.rank == root:
            parts = self._listed("scatter", "inputs", single("scatter", "input lists", inputs))
            check_same_dtype("scatter", [output, *parts])
            counts, source = counts_of(parts), apart(joined("scatter", parts), flat)
        elif inputs and inputs[0]:
            raise ValueError(
                f"phalanx: scatter: inputs are a list of {len(inputs[0])}, must be empty on ranks other than root {root}"
            )
        source = _NOTHING if source is None else source
        return self._called([Call(Op.scatter(counts, root), flat, source, _back(output, flat))], opts, outputs)

    # Reducing and scattering.

    def reduce_scatter(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Sequence[Tensor]],
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> Work | None:
        outputs, inputs = paired(outputs, inputs)
        opts = options(c10d.ReduceScatterOptions, opts, timeout, reduceOp=op)
        if len(outputs) != len(inputs):
            raise ValueError(
                f"phalanx: reduce_scatter: inputs are {len(inputs)} lists, must be one for each of {len(outputs)} outputs"
            )
        calls = []
        for output, given in zip(outputs, inputs):
            parts = self._listed("reduce_scatter", "inputs", given)
            check_same_dtype("reduce_scatter", [output, *parts])
            calls.append(_reduce_scatter(output, joined("reduce_scatter", parts), counts_of(parts), opts))
        return self._called(calls, opts, outputs)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work | None:
        return self._called([self._reduce_scatter_whole(output, input, opts)], opts, [output])

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work | None:
        check_pairs("reduce_scatter_tensor", outputs, inputs)
        calls = [self._reduce_scatter_whole(output, tensor, opts) for output, tensor in zip(outputs, inputs)]
        return self._called(calls, opts, outputs)

    # All to all.

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Work | None:
        takers = self._listed("all_to_all", "outputs", outputs)
        givers = self._listed("all_to_all", "inputs", inputs)
        check_same_dtype("all_to_all", [*takers, *givers])
        flat = room_for("all_to_all", takers)
        source = apart(joined("all_to_all", givers), flat)
        op = Op.all_to_all(count_of_each(givers), count_of_each(takers))
        return self._called([Call(op, flat, source, lambda: part_into(takers, flat))], opts, outputs)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work | None:
        opts = options(c10d.AllToAllOptions, opts, timeout)
        give = split("input", input, input_split_sizes, self._group.size)
        take = split("output", output, output_split_sizes, self._group.size)
        flat = contiguous("all_to_all", output)
        source = apart(contiguous("all_to_all", input), flat)
        check_same_dtype("all_to_all", [output, input])
        return self._called([Call(Op.all_to_all(give, take), flat, source, _back(output, flat))], opts, [output])

    # Messages.

    def send(self, tensors: Sequence[Tensor], dst: int, tag: int = 0) -> Work | None:
        source = contiguous("send", single("send", "tensors", tensors))
        op = Op.send(source.numel(), rank_number("send", "to", dst), tag_number("send", tag))
        return self._called([Call(op, None, source)], None, tensors)

    def recv(self, tensors: Sequence[Tensor], src: int, tag: int = 0) -> Work | None:
        return self._receive(tensors, rank_number("recv", "from", src), tag)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work | None:
        return self._receive(tensors, None, tag)

    # Meeting.

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work | None:
        opts = options(c10d.BarrierOptions, opts, timeout)
        return self._called([Call(Op.barrier())], opts, [])

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Waits for every rank; on rank 0, an error names the first that did not come, or all of them."""
        try:
            self._group.monitored_barrier(wait_all_ranks, milliseconds(timeout))
        except _native.Error as error:
            raise translated(error) from None

    # Several calls as one work: what was begun in between.

    def start_coalescing(self, device: torch.device) -> None:
        self._begun = []

    def end_coalescing(self, device: torch.device) -> Work:
        begun, self._begun = self._begun or [], None
        return Work.of(begun)

    # The names that these have in other versions of PyTorch.

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    gather_into_tensor = gather_single
    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing

    # The way down.

    def _called(self, calls: Sequence[Call], opts: Any, outputs: Sequence[Any]) -> Work | None:
        """All of these operations with the outputs of them all: none is begun where one cannot be, because the peers would take what is repeated
        for the next ones."""
        if len(calls) > 1:
            for call in calls:
                self._check(call)
        return self._together([self._call(call, opts) for call in calls], outputs)

    def _check(self, call: Call) -> None:
        dtype, given, taken = _spans(call)
        try:
            self._group.check(call.op, dtype, taken, given, call.factor)
        except _native.Error as error:
            raise translated(error) from None

    def _call(self, call: Call, opts: Any) -> Work | None:
        """Carries out one operation of the native half: at once where `opts` say that the caller waits, else as a work."""
        if getattr(opts, "asyncOp", True):
            return self._begin(call, opts)
        if _profiler_enabled():
            with record_function(f"phalanx:{call.op.name}"):
                self._play(call, opts)
        else:
            self._play(call, opts)
        if call.finish is not None:
            call.finish()
        return ENDED

    def _all_reduce_at_once(self, tensor: Tensor, opts: Any) -> None:
        """The shortest way of the operation that is called most: a small one takes less time than what it passes through."""
        reduce, factor = reduction(opts)
        dtype = DTYPES.get(tensor.dtype) or dtype_number("all_reduce", tensor)
        try:
            self._group.all_reduce(dtype, reduce, tensor.data_ptr(), tensor.nbytes, milliseconds(opts.timeout), factor)
        except _native.Error as error:
            raise translated(error) from None

    def _play(self, call: Call, opts: Any) -> None:
        dtype, given, taken = _spans(call)
        try:
            self._group.run(call.op, dtype, taken, given, milliseconds(opts.timeout), call.factor)
        except _native.Error as error:
            raise translated(error) from None

    def _begin(self, call: Call, opts: Any) -> Work:
        dtype, given, taken = _spans(call)
        # A program may give a tensor other memory before the end: what is kept is not the tensor.
        owner = [tensor.untyped_storage() for tensor in (call.output, call.source) if tensor is not None]
        millis = None if opts is None else milliseconds(opts.timeout)
        event = record_function(f"phalanx:{call.op.name}") if _profiler_enabled() else nullcontext()
        try:
            with event:
                work = self._group.submit(call.op, dtype, taken, owner, given, millis, call.factor)
        except _native.Error as error:
            raise translated(error) from None
        return Work([work], [], call.finish)

    def _together(self, works: Sequence[Work | None], outputs: Sequence[Any]) -> Work | None:
        """One work of those that were called together, none where they have all ended."""
        begun = [work for work in works if work is not ENDED]
        if len(begun) < len(works):
            return ENDED
        # As Gloo has it, a single list of tensors is the result itself.
        is_list = len(outputs) == 1 and not isinstance(outputs[0], Tensor)
        work = Work.of(begun, list(outputs[0] if is_list else outputs))
        if self._begun is not None:
            self._begun.append(work)
        return work

    def _gather_into(self, call: str, parts: Sequence[Tensor], tensor: Tensor, root: int | None) -> Call:
        """Gathers every rank's tensor into these parts, on all ranks or on `root`."""
        self._listed(call, "outputs", parts)
        check_same_dtype(call, [tensor, *parts])
        flat, source = room_for(call, parts), contiguous(call, tensor)
        finish = lambda: part_into(parts, flat)
        if root is None:
            return self._gather_flat(flat, source, counts_of(parts), finish)
        return Call(Op.gather(counts_of(parts), root), flat, apart(source, flat), finish)

    def _gather_whole(self, output: Tensor, input: Tensor) -> Call:
        """Gathers every rank's tensor into this one."""
        check_whole("all_gather_into_tensor", "output", output, "input", input, self._group.size)
        check_same_dtype("all_gather_into_tensor", [output, input])
        flat, source = contiguous("all_gather", output), contiguous("all_gather", input)
        return self._gather_flat(flat, source, source.numel(), _back(output, flat))

    def _gather_flat(self, flat: Tensor, source: Tensor, counts: int | list[int], finish: Finish | None) -> Call:
        """Gathers into flat memory; where the input lies at its place in it already, it is not given."""
        rank = self._group.rank
        own, before = (counts, counts * rank) if isinstance(counts, int) else (counts[rank], sum(counts[:rank]))
        if source.data_ptr() == flat.data_ptr() + before * flat.itemsize and source.numel() == own:
            return Call(Op.all_gather(counts), flat, None, finish)
        return Call(Op.all_gather(counts), flat, apart(source, flat), finish)

    def _reduce_scatter_whole(self, output: Tensor, input: Tensor, opts: Any) -> Call:
        check_whole("reduce_scatter_tensor", "input", input, "output", output, self._group.size)
        check_same_dtype("reduce_scatter_tensor", [output, input])
        return _reduce_scatter(output, contiguous("reduce_scatter", input), output.numel(), opts)

    def _receive(self, tensors: Sequence[Tensor], src: int | None, tag: int) -> Work | None:
        tensor = single("recv", "tensors", tensors)
        flat = contiguous("recv", tensor)
        op = Op.recv(flat.numel(), src, tag_number("recv", tag))
        return self._called([Call(op, flat, _NOTHING, _back(tensor, flat))], None, tensors)

    def _listed(self, call: str, argument: str, parts: Sequence[Any]) -> list[Any]:
        return one_for_each(call, argument, parts, self._group.size)


def _reduce_scatter(output: Tensor, source: Tensor, counts: int | list[int], opts: Any) -> Call:
    reduce, factor = reduction(opts)
    flat = contiguous("reduce_scatter", output)
    return Call(Op.reduce_scatter(counts, reduce), flat, apart(source, flat), _back(output, flat), factor)


def _spans(call: Call) -> tuple[int, tuple[int, int] | None, tuple[int, int]]:
    """The dtype's number, and where input and output are; without an input the operation works in place."""
    op, output, source = call.op, call.output, call.source
    tensor = output if output is not None else source
    if tensor is None:
        return _BYTES, None, _NOWHERE
    dtype = DTYPES.get(tensor.dtype) or dtype_number(op.name, tensor)
    given = None if source is None else (source.data_ptr(), source.nbytes)
    return dtype, given, _NOWHERE if output is None else (output.data_ptr(), output.nbytes)


def _root(call: str, opts: Any) -> int:
    return rank_number(call, "root", opts.rootRank)


def _back(tensor: Tensor, flat: Tensor) -> Finish | None:
    """What brings the result back to a tensor that could not be worked on where it is."""
    if tensor is flat:
        return None
    check_apart(tensor)
    return lambda: copy_into(tensor, flat)


# The dtype of operations without data: bytes.
_BYTES = 10
_NOWHERE = (0, 0)
# The input of operations that are given none.
_NOTHING = torch.empty(0, device="cpu")
