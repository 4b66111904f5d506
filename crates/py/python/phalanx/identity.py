"""What a process group is, apart from its operations: its name, its memory, how long it waits, and its end."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from . import _native
from .shared import Pool
from .works import IS_BEFORE_2_7, milliseconds


class Identity(dist.ProcessGroup):
    """A place among the ranks of a native group."""

    def __init__(self, group: _native.Group, store: dist.Store | None = None) -> None:
        super().__init__(group.rank, group.size)
        self._group = group
        # PyTorch keeps the C++ half of a store alone, which can do nothing once the Python half is gone.
        self._store = store
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
        return torch.frombuffer(self._pool.take(size * dtype.itemsize), dtype=dtype)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return torch.device(device).type == "cpu"

    def _get_backend(self, device: torch.device) -> dist.ProcessGroup:
        """Whoever serves a device is asked for memory, by FSDP2."""
        return self if torch.device(device).type == "cpu" else super()._get_backend(device)

    # Asked of whoever serves a device.
    supports_shrinking = supports_splitting = supports_time_estimate = False
