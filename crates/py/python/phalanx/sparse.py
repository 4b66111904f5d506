"""Sparse tensors: those of all ranks are gathered and added up, as PyTorch's own CPU backend does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .reductions import SUM, reduction

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
        entries = [
            int(count) for count in _gather(group, torch.tensor([mine._nnz()], device="cpu"), [1] * group.size())
        ]
        indices = _gather(group, mine.indices().t().contiguous(), entries)
        values = _gather(group, mine.values().contiguous(), entries)
        added = torch.sparse_coo_tensor(indices.t(), values, tensor.shape, device="cpu").coalesce()
        tensor.copy_(added)


def _gather(group: ProcessGroup, rows: Tensor, entries: list[int]) -> Tensor:
    """The rows of all ranks, of which rank `i` has `entries[i]`."""
    parts = [rows.new_empty(count, *rows.shape[1:]) for count in entries]
    group.allgather([parts], [rows]).wait()
    return torch.cat(parts)
