"""Errors as PyTorch's programs expect them: PyTorch's own types, which say everything ours says."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from ._native import Error


class Failure(Error):
    """What both kinds of failures have: a message, and the attributes of the native error that they were made of.

    ``kind`` is usage, desync, peer, timeout, aborted, device or setup; ``scope`` is what is no longer usable: call, group or process.
    ``ranks`` are the group's ranks that are dead or missing, or the two that disagree, ``epoch`` is the group's, ``sequence`` the
    operation's where the error has one, and ``after`` the seconds that were waited where the time was up.
    """

    def __init__(self, message: str, error: Error | None = None) -> None:
        super().__init__(message)
        if error is not None:
            self.__dict__.update(error.__dict__)


class BackendError(dist.DistBackendError, Failure):
    """A collective or message that failed. Both ``dist.DistBackendError`` and ``phalanx.Error``."""


class UsageError(BackendError, ValueError):
    """A call that cannot be accepted, of which nothing was sent."""


class StoreFailure(dist.DistStoreError, Failure):
    """A store that did not answer as asked: both ``dist.DistStoreError`` and ``phalanx.Error``."""


class NetworkFailure(StoreFailure, dist.DistNetworkError):
    """A store that is not reached, that was lost, or that cannot be served where it should be, as PyTorch's ``TCPStore`` calls it, too."""


def translated(error: Error) -> Failure:
    """The same error with the words that PyTorch's programs look for, where it has not got them yet."""
    if isinstance(error, Failure):
        return error
    if error.kind == "timeout":
        return BackendError(f"phalanx: Timed out waiting {error.after * 1000:.0f}ms: {error}", error)
    kind = UsageError if error.kind == "usage" else BackendError
    return kind(f"phalanx: {error}", error)


def late(scope: str, ranks: Sequence[int] = (), after: float | None = None) -> Error:
    """What a failure is made of when time was up on this side of the native half."""
    return _made("timeout", scope, ranks, after)


def unequipped(ranks: Sequence[int]) -> Error:
    """What a failure is made of when these ranks lack what their group needs."""
    return _made("setup", "process", ranks)


def _made(kind: str, scope: str, ranks: Sequence[int], after: float | None = None) -> Error:
    error = Error()
    error.kind, error.scope, error.ranks = kind, scope, list(ranks)
    error.epoch = error.sequence = None
    error.after = after
    return error
