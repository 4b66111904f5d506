"""How PyTorch's ranks are seen from outside: ``phalanx top`` and ``phalanx trace collect`` find them as those of any other program."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch.distributed as dist

from . import _native


def shown(rank: int, size: int, members: Sequence[int] = ()) -> tuple[_native.Presence, list[int]]:
    """Where the group with this place is shown, and which ranks of the default group are its members: all, where none are said."""
    # The first group is the default one, which PyTorch does not know yet.
    place = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (rank, size)
    return _presence(*place), list(members) or list(range(size))


def _presence(rank: int, size: int) -> _native.Presence:
    """The process's own for this place in its job; one that was forked has none of its parent's."""
    place = (os.getpid(), rank, size)
    if place not in _PRESENCES:
        job = os.environ.get("TORCHELASTIC_RUN_ID") or "torch"
        local = os.environ.get("LOCAL_RANK", "")
        _PRESENCES.clear()
        _PRESENCES[place] = _native.Presence(job, rank, size, int(local) if local.isdigit() else rank)
    return _PRESENCES[place]


_PRESENCES: dict[tuple[int, int, int], _native.Presence] = {}
