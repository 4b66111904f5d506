"""What a process group is, apart from its operations: its name, its memory, how long it waits, its parts, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

import torch
import torch.distributed as dist
from torch import Tensor

from . import _native
from .eager import eager
from .failures import translated
from .joining import Options, given_or, meet, underneath
from .presence import shown
from .shared import Pool
from .works import IS_BEFORE_2_7, milliseconds


@eager
class Identity(dist.ProcessGroup):
    """A place among the ranks of a native group."""

    def __init__(
        self,
        group: _native.Group,
        store: dist.Store | None = None,
        options: Options | None = None,
        members: Sequence[int] = (),
    ) -> None:
        super().__init__(group.rank, group.size)
        self._group = group
        # The ranks by their numbers in the default group.
        self._members = list(members) or list(range(group.size))
        self._store, self._options = store, options or Options()
        # A prefix keeps the C++ half of a store alone, which can do nothing once the Python half is gone.
        self._underneath = underneath(store) if store is not None else None
        self._name = self._description = ""
        self._pool = Pool(group)

    def getBackendName(self) -> str:
        return "phalanx"

    def name(self) -> str:
        return "phalanx"

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    if IS_BEFORE_2_7:
        # They have no place for the name of a group whose backend is no C++.
        _set_group_name = setGroupName
        group_name = property(getGroupName)

    def _set_sequence_number_for_group(self) -> None:
        """All ranks count from 0 already."""

    def _get_sequence_number_for_group(self) -> int:
        return self._group.called

    def set_timeout(self, timeout: timedelta) -> None:
        """How long operations from now on may take that do not say it: what ``dist.set_timeout`` calls."""
        millis = milliseconds(timeout)
        if millis is None:
            raise ValueError(f"phalanx: set_timeout: timeout is {timeout}, must be above zero")
        self._group.set_timeout(millis)

    def abort(self) -> None:
        """Ends what is under way on every rank with an error."""
        self._group.abort("the program aborted the process group")
        self._group.leave()

    def shutdown(self) -> None:
        """Leaves the group; nobody is waited for."""
        self._group.leave()

    # Memory.

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor of one dimension with any content, in memory that ranks of one host read and write where it is."""
        if torch.device(device).type != "cpu":
            raise ValueError(f"phalanx: allocate_tensor: device is {device}, must be cpu")
        if size == 0:
            return torch.empty(0, dtype=dtype, device="cpu")
        try:
            room = self._pool.take(size * dtype.itemsize)
        except _native.Error as error:
            raise translated(error) from None
        return torch.frombuffer(room, dtype=dtype)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return torch.device(device).type == "cpu"

    # What PyTorch asks of whoever serves a device.

    @property
    def _device_types(self) -> list[torch.device]:
        """The devices that are served: checkpoints that are saved beside the training need the cpu among them."""
        return [torch.device("cpu")]

    def _get_backend(self, device: torch.device) -> dist.ProcessGroup:
        """Whoever serves a device is asked for memory, by FSDP2."""
        return self if torch.device(device).type == "cpu" else super()._get_backend(device)

    get_backend = _get_backend

    def get_group_store(self) -> dist.Store | None:
        return self._store

    def eager_connect_single_device(self, device: torch.device) -> None:
        """All ranks are connected already."""

    supports_splitting = True
    supports_shrinking = supports_time_estimate = False

    # Parts of the group.

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Options | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> Identity | None:
        """The group of these ranks of this one, in this order, which all call this; None where this rank is not among them.

        What ``dist.split_group`` calls. It is wired as this group is, unless `opts` say how.
        """
        ranks, size = list(ranks), self._group.size
        if not all(0 <= each < size for each in ranks):
            raise ValueError(f"phalanx: split_group: ranks are {ranks}, must be below the group size {size}")
        if len(set(ranks)) < len(ranks):
            raise ValueError(f"phalanx: split_group: ranks are {ranks}, must be different ones")
        if self._group.rank not in ranks:
            return None
        # Stores bound the length of a key, and a group may have any number of ranks.
        which = sha256(",".join(map(str, ranks)).encode()).hexdigest()[:16]
        name = group_name or f"{self._name}:split:{which}"
        rank = ranks.index(self._group.rank)
        chosen = given_or(replace(self._options, world=None), opts)
        # Parts that have no rank in common may have one name, and are made at the same time.
        store = dist.PrefixStore(f"split/{name}/{which}/", self._store)
        try:
            place = shown(rank, len(ranks), [self._members[each] for each in ranks])
            group = meet(store, rank, len(ranks), name, timeout or dist.default_pg_timeout, chosen, place)
        except _native.Error as error:
            raise translated(error) from None
        part = type(self)(group, store, chosen, place[1])
        part.setGroupName(name)
        part.setGroupDesc(group_desc or "")
        return part
