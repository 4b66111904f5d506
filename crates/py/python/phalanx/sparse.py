"""Sparse tensors: those of all ranks are gathered and added up, as PyTorch's own CPU backend does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .reductions import SUM, reduction
from .tensors import DTYPES, dtype_number

if TYPE_CHECKING:
    from .backend import ProcessGroup


def all_reduce(group: ProcessGroup, tensor: Tensor, opts: Any) -> None:
    """Replaces a sparse tensor by the sum of all ranks' tensors, with each index once. Ends before it returns."""
    if reduction(opts)[0] != SUM:
        raise ValueError("phalanx: all_reduce: op is not SUM, the one that sparse tensors have")
    if tensor.layout is not torch.sparse_coo:
        raise ValueError(f"phalanx: all_reduce: tensor has layout {tensor.layout}, must be dense or torch.sparse_coo")
    with torch.no_grad():
        mine = tensor.detach().coalesce()
        entries = _check_alike(group, mine)
        indices = _gather(group, mine.indices().t().contiguous(), entries)
        values = _gather(group, mine.values().contiguous(), entries)
        # What others say is looked at: an index beyond the shape would be written where nothing is.
        added = torch.sparse_coo_tensor(indices.t(), values, tensor.shape, device="cpu", check_invariants=True)
        tensor.copy_(added.coalesce())


def _check_alike(group: ProcessGroup, mine: Tensor) -> list[int]:
    """That all ranks have tensors of one type and shape, with the same dimensions sparse; how many entries each rank has."""
    kinds = _exchanged(group, [dtype_number("all_reduce", mine), mine.sparse_dim(), mine.dense_dim(), mine._nnz()])
    _check_same(group, "dtype, sparse_dim and dense_dim", [(_DTYPES[number], *dims) for number, *dims, _ in kinds])
    _check_same(group, "shape", [tuple(shape) for shape in _exchanged(group, mine.shape)])
    return [count for *_, count in kinds]


def _check_same(group: ProcessGroup, what: str, said: list[tuple]) -> None:
    """All ranks look at the same, so that all raise or none."""
    for rank, one in enumerate(said):
        if one != said[0]:
            members = group._members
            raise ValueError(
                f"phalanx: all_reduce: {what} of the sparse tensor is {said[0]} on rank {members[0]}, {one} on rank {members[rank]}, must be the same on all"
            )


def _exchanged(group: ProcessGroup, numbers: Sequence[int]) -> list[list[int]]:
    """The numbers of all ranks, which say as many."""
    return _gather(group, torch.tensor([list(numbers)], dtype=torch.int64, device="cpu"), [1] * group.size()).tolist()


def _gather(group: ProcessGroup, rows: Tensor, entries: list[int]) -> Tensor:
    """The rows of all ranks, of which rank `i` has `entries[i]`."""
    parts = [rows.new_empty(count, *rows.shape[1:]) for count in entries]
    group.allgather([parts], [rows]).wait()
    return torch.cat(parts)


_DTYPES = {number: dtype for dtype, number in DTYPES.items()}
