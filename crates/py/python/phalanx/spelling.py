"""The short spelling of calls on a process group itself: one tensor for a list of it, and root, reduction and time for options. PyTorch's own
groups take both; what a call means is not decided here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor


def listed(tensors: Any) -> Sequence[Any]:
    return [tensors] if isinstance(tensors, Tensor) else tensors


def paired(outputs: Any, inputs: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Outputs and inputs of which one is a list for each tensor of the other: lists of both, also where that is a single one."""
    is_single = isinstance(outputs, Tensor) or isinstance(inputs, Tensor)
    return ([outputs], [inputs]) if is_single else (outputs, inputs)


def options(kind: type, given: Any, timeout: timedelta | None = None, **parts: Any) -> Any:
    """The options that were given, else some of this kind with these parts, of which the first may stand in the place of options."""
    if hasattr(given, "timeout"):
        return given
    if isinstance(given, timedelta):
        given, timeout = None, given
    if given is not None:
        parts[next(iter(parts))] = given
    chosen = kind()
    for name, part in {**parts, "timeout": timeout}.items():
        if part is not None:
            setattr(chosen, name, part)
    return chosen
