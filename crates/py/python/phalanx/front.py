"""What a program of PyTorch calls beside ``torch.distributed`` itself, and what that calls to have a process group made."""

from __future__ import annotations

import sys
import warnings
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import _native
from .alone import check_alone
from .backend import ProcessGroup
from .failures import translated
from .joining import Options, given_or, meet, next_of
from .presence import shown
from .store import WorldStore
from .times import span
from .worlds import World


def register() -> None:
    """Makes the backend "phalanx" known to torch.distributed; a second time changes nothing."""
    if "phalanx" not in dist.Backend.backend_list:
        dist.Backend.register_backend("phalanx", create, extended_api=True, devices=["cpu"])
        # Groups have a recorder of their own; newer versions of PyTorch would attach theirs, which only knows backends in C++.
        getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add("phalanx")


def empty(*size: int, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None) -> Tensor:
    """A tensor with any content whose large collectives over `group` take a third of the time, because ranks of one host read and write it
    where it is. Keep it from one operation to the next."""
    group = group or dist.distributed_c10d._get_default_group()
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"phalanx: empty: group is a {type(group).__name__}, must be of the backend phalanx")
    dtype = dtype or torch.get_default_dtype()
    shape = torch.Size(*size) if len(size) == 1 and not isinstance(size[0], int) else torch.Size(size)
    return group.allocate_tensor(shape.numel(), dtype=dtype, device=torch.device("cpu")).view(shape)


def init_process_group(world: World, timeout: float | timedelta = timedelta(minutes=30)) -> None:
    """``dist.init_process_group`` for a world that `phalanx.init` joined: its ranks may be programs in Rust.

    The default group of PyTorch is the world's next group. Groups of some of these ranks, ``dist.new_group``, form among those that call it.
    """
    timeout = span("init_process_group", timeout)
    dist.init_process_group(
        "phalanx",
        store=WorldStore(world, timeout),
        rank=world.rank,
        world_size=world.size,
        timeout=timeout,
        pg_options=Options(world=world),
    )


def monitored_barrier(
    group: dist.ProcessGroup | None = None, timeout: float | timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """`dist.monitored_barrier` for groups of this backend, which PyTorch keeps for another one. `timeout` may be seconds too."""
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        told = f"Running monitored_barrier on global rank {dist.get_rank()} which does not belong to the given group."
        warnings.warn(told, stacklevel=2)
        return
    group = group if group is not None else dist.group.WORLD
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"phalanx: monitored_barrier: group is {group}, must be one of the backend phalanx")
    group.monitored_barrier(None if timeout is None else span("monitored_barrier", timeout), wait_all_ranks)


def create(options: Any, group_options: Options | None = None) -> ProcessGroup:
    """The process group of these ranks, which all call this and meet on the store of `options`."""
    members = options.global_ranks_in_group
    check_alone("new_group" if members else "init_process_group", sys._getframe(1))
    chosen = given_or(Options(), group_options)
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    try:
        if chosen.world is not None:
            group = next_of(chosen, rank, size, timeout)
        else:
            name = str(options.group_id) or "world"
            group = meet(options.store, rank, size, name, timeout, chosen, shown(rank, size, members))
    except _native.Error as error:
        raise translated(error) from None
    return ProcessGroup(group, options.store, chosen, members)
