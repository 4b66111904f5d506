"""What calls of PyTorch may be given, checked before anything is sent, in words that name the call and the argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def single(call: str, argument: str, tensors: Sequence[Any]) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"phalanx: {call}: {argument} are a list of {len(tensors)}, must be a single one")
    return tensors[0]


def check_some(call: str, argument: str, tensors: Sequence[Any]) -> None:
    if not tensors:
        raise ValueError(f"phalanx: {call}: {argument} are an empty list, must be one at least")


def check_pairs(call: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    if len(outputs) != len(inputs) or not outputs:
        raise ValueError(
            f"phalanx: {call}: {len(outputs)} outputs and {len(inputs)} inputs, must be as many and one at least"
        )


def check_same_dtype(call: str, tensors: Sequence[Tensor]) -> None:
    first = tensors[0].dtype
    for tensor in tensors:
        if tensor.dtype != first:
            raise TypeError(f"phalanx: {call}: tensors have dtypes {first} and {tensor.dtype}, must have one")


def check_whole(call: str, whole: str, parts: Tensor, part: str, one: Tensor, size: int) -> None:
    """That the argument named `whole` has room for what `size` ranks have as the one named `part`."""
    if parts.numel() != one.numel() * size:
        raise ValueError(
            f"phalanx: {call}: {whole} has {parts.numel()} elements, must have {size} times the {one.numel()} of the {part}"
        )


def one_for_each(call: str, argument: str, parts: Sequence[Any], size: int) -> list[Any]:
    if len(parts) != size:
        raise ValueError(
            f"phalanx: {call}: {argument} are a list of {len(parts)}, must be one for each of the {size} ranks"
        )
    return list(parts)


def split(argument: str, tensor: Tensor, sizes: Sequence[int], size: int) -> int | list[int]:
    """How many elements go to, or come from, each of so many ranks when the first dimension is split like this."""
    rows = tensor.size(0) if tensor.dim() else 0
    row = tensor.numel() // rows if rows else 0
    if not sizes:
        if rows % size:
            raise ValueError(
                f"phalanx: all_to_all_single: {argument} has {rows} rows, must be a multiple of the {size} ranks"
            )
        return tensor.numel() // size
    one_for_each("all_to_all_single", f"{argument}_split_sizes", sizes, size)
    if sum(sizes) != rows or min(sizes) < 0:
        raise ValueError(
            f"phalanx: all_to_all_single: {argument}_split_sizes are {list(sizes)}, must add up to its {rows} rows"
        )
    return [each * row for each in sizes]


def rank_number(call: str, argument: str, rank: int) -> int:
    """A rank, of which only the native half knows whether it is in the group."""
    if rank < 0:
        raise ValueError(f"phalanx: {call}: {argument} is {rank}, must be at least 0")
    return rank


def tag_number(call: str, tag: int) -> int:
    if not 0 <= tag < _OWN_TAGS:
        raise ValueError(f"phalanx: {call}: tag is {tag}, must be 0 to {_OWN_TAGS - 1}")
    return tag


def counts_of(parts: Sequence[Tensor]) -> int | list[int]:
    counts = count_of_each(parts)
    return counts[0] if counts.count(counts[0]) == len(counts) else counts


def count_of_each(parts: Sequence[Tensor]) -> list[int]:
    return [part.numel() for part in parts]


# Tags from here on are the group's own.
_OWN_TAGS = 0xFFFE_0000
