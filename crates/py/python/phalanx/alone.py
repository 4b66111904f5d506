"""Whether this backend is the only one that was asked for: PyTorch makes no other one beside a backend in Python, and says nothing."""

from __future__ import annotations

from types import FrameType

import torch.distributed as dist


def check_alone(call: str, caller: FrameType) -> None:
    """That PyTorch's function that makes a group, `caller`, is to make it of this backend alone."""
    # Nothing that PyTorch hands over tells it, and what it keeps of a group it keeps once the group is made. A version that calls it
    # otherwise drops the others as before.
    config = caller.f_locals.get("backend_config")
    if not isinstance(config, dist.distributed_c10d.BackendConfig):
        return
    others = sorted({str(each) for each in config.get_device_backend_map().values()} - {"phalanx"})
    if others:
        raise ValueError(
            f"phalanx: {call}: backend is {config}, must be phalanx alone: PyTorch would not make {' or '.join(others)} beside it, only in a group of its own"
        )
