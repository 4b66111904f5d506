"""Errors as PyTorch's programs expect them: a ``DistBackendError`` that says everything ours says."""

from __future__ import annotations

import torch.distributed as dist

from ._native import Error


class BackendError(dist.DistBackendError, Error):
    """A collective or message that failed. Both ``dist.DistBackendError`` and ``phalanx.Error``.

    ``kind`` is usage, desync, peer, timeout, aborted, device or setup; ``scope`` is what is no longer usable: call, group or process.
    ``ranks`` are the group's ranks that are dead or missing, or the two that disagree, ``epoch`` is the group's, ``sequence`` the
    operation's where the error has one, and ``after`` the seconds that were waited where the time was up.
    """

    def __init__(self, message: str, error: Error) -> None:
        super().__init__(message)
        self.__dict__.update(error.__dict__)


def translated(error: Error) -> BackendError:
    """The same error with the words that PyTorch's programs look for."""
    if error.kind == "timeout":
        return BackendError(f"phalanx: Timed out waiting {error.after * 1000:.0f}ms: {error}", error)
    return BackendError(f"phalanx: {error}", error)
