"""Phalanx: distributed training communication whose errors name the guilty rank.

With PyTorch this is a backend of ``torch.distributed``::

    import phalanx
    import torch.distributed as dist

    dist.init_process_group("phalanx")
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from ._native import Error, pass_over
from .worlds import Group, World, init

try:
    __version__ = version("phalanx")
except PackageNotFoundError:  # used where it lies, without having been installed
    __version__ = "0"

__all__ = ["Error", "Group", "World", "init"]

# Where a program calls is told by its own lines.
for directory in __path__:
    pass_over(f"{directory}/")

if find_spec("torch") is not None:
    # First, because at its end it may load our backend, which needs a PyTorch that is there.
    import torch  # noqa: F401

    from . import rendezvous
    from .backend import ProcessGroup
    from .failures import BackendError, StoreFailure
    from .front import empty, init_process_group, monitored_barrier, register
    from .joining import Options
    from .store import TCPStore, WorldStore

    for directory in torch.__path__:
        pass_over(f"{directory}/")
    # The modules that PyTorch writes itself.
    pass_over("<eval_with_key>")
    register()
    rendezvous.register()
    __all__ += ["BackendError", "Options", "ProcessGroup", "StoreFailure", "TCPStore", "WorldStore"]
    __all__ += ["empty", "init_process_group", "monitored_barrier"]
