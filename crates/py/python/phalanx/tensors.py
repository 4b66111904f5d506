"""Tensors as memory: their element types by number, and contiguous memory for those that have none. No communication."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

# The numbers of the element types, by which the native half knows them.
DTYPES = {
    torch.float64: 1,
    torch.float32: 2,
    torch.float16: 3,
    torch.bfloat16: 4,
    torch.float8_e4m3fn: 5,
    torch.float8_e5m2: 6,
    torch.float8_e4m3fnuz: 7,
    torch.float8_e5m2fnuz: 8,
    torch.int8: 9,
    torch.uint8: 10,
    torch.int16: 11,
    torch.uint16: 12,
    torch.int32: 13,
    torch.uint32: 14,
    torch.int64: 15,
    torch.uint64: 16,
    torch.bool: 17,
    torch.complex64: 18,
    torch.complex128: 19,
}


def dtype_number(call: str, tensor: Tensor) -> int:
    """The number of a tensor's element type."""
    number = DTYPES.get(tensor.dtype)
    if number is None:
        raise TypeError(
            f"phalanx: {call}: tensor has dtype {tensor.dtype}, which is not supported; view it as one that is"
        )
    return number


def is_plain(tensor: Tensor) -> bool:
    """Whether the elements are real numbers that lie in order in host memory, as they are."""
    return (
        type(tensor) in _PLAIN
        and tensor.is_cpu
        and tensor.layout is _DENSE
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_complex()
    )


def contiguous(call: str, tensor: Tensor) -> Tensor:
    """The tensor itself where its elements lie in order in host memory, else a copy of it that does.

    Whoever writes into what this returns copies it back with `copy_into` when it is not the tensor itself.
    """
    if type(tensor) not in _PLAIN:
        tensor = _held(call, tensor)
    if not tensor.is_cpu:
        raise ValueError(
            f"phalanx: {call}: tensor is on {tensor.device}, must be on the cpu: "
            'this backend has no devices; give those to another one, as in init_process_group("nccl")'
        )
    if tensor.layout is not _DENSE:
        raise ValueError(f"phalanx: {call}: tensor has layout {tensor.layout}, must be dense")
    if tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj():
        return tensor
    with torch.no_grad():
        return tensor.detach().resolve_neg().resolve_conj().contiguous()


def _held(call: str, tensor: Tensor) -> Tensor:
    """The tensor whose memory this one stands for: the result of a functional collective, once that has ended."""
    if isinstance(tensor, AsyncCollectiveTensor):
        return tensor.trigger_wait()
    if is_traceable_wrapper_subclass(tensor):
        raise TypeError(
            f"phalanx: {call}: tensor is a {type(tensor).__name__}, which has no memory of its own, must be a plain tensor, as to_local() of a DTensor"
        )
    return tensor


def check_apart(target: Tensor) -> None:
    """That each element has a place of its own, where results are to be written."""
    if torch._debug_has_internal_overlap(target) == _OVERLAPS:
        raise ValueError(
            "phalanx: output has elements that share a place, as after expand(): give it a clone() of them"
        )


def copy_into(target: Tensor, source: Tensor) -> None:
    """Writes into a tensor of a program, whatever autograd thinks of it."""
    with torch.inference_mode(target.is_inference()), torch.no_grad():
        target.copy_(source)


def apart(source: Tensor, flat: Tensor) -> Tensor:
    """The input, copied where it shares memory with the output."""
    start, end = source.data_ptr(), source.data_ptr() + source.nbytes
    if start < flat.data_ptr() + flat.nbytes and flat.data_ptr() < end:
        return source.detach().clone()
    return source


def room_for(call: str, parts: Sequence[Tensor]) -> Tensor:
    """One piece of memory for all parts: theirs where they follow each other in it, else new."""
    together = adjacent(call, parts)
    if together is not None:
        return together
    for part in parts:
        check_apart(part)
    with torch.inference_mode(False):
        # Said in full, because a program may have another device as its default one.
        return torch.empty(sum(part.numel() for part in parts), dtype=parts[0].dtype, device="cpu")


def joined(call: str, parts: Sequence[Tensor]) -> Tensor:
    """The elements of all parts after each other: where they are, if that is how they lie, else in a copy."""
    together = adjacent(call, parts)
    if together is not None:
        return together
    with torch.no_grad():
        return torch.cat([contiguous(call, part).detach().reshape(-1) for part in parts])


def part_into(targets: Sequence[Tensor], source: Tensor) -> None:
    """Hands the elements of `source` out to the targets in their order, unless they are there already."""
    start = 0
    for target in targets:
        count = target.numel()
        part = source[start : start + count]
        if count and part.data_ptr() != target.data_ptr():
            copy_into(target, part.view(target.shape))
        start += count


def adjacent(call: str, parts: Sequence[Tensor]) -> Tensor | None:
    """One flat tensor over all parts, where they lie after each other in one storage."""
    first = parts[0]
    # Only what is memory has a storage: the others are refused here.
    if contiguous(call, first) is not first:
        return None
    storage, end = first.untyped_storage().data_ptr(), first.data_ptr()
    for part in parts:
        if contiguous(call, part) is not part or part.data_ptr() != end or part.untyped_storage().data_ptr() != storage:
            return None
        end += part.nbytes
    count = sum(part.numel() for part in parts)
    with torch.no_grad():
        return first.detach().as_strided((count,), (1,), first.storage_offset())


_PLAIN = (Tensor, torch.nn.Parameter)
_DENSE = torch.strided
_OVERLAPS = 1
