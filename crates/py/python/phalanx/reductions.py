"""PyTorch's reductions by number, and the factor of the one that has one."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ReduceOp

SUM = 1
_PREMUL_SUM = 9
# What most calls ask for, found out by one comparison.
_SUM = ReduceOp.SUM
# The numbers of the reductions, by which the native half knows them, each at the place of PyTorch's number.
_BY_NUMBER = [0] * 16
for _number, _op in enumerate(
    (
        ReduceOp.SUM,
        ReduceOp.PRODUCT,
        ReduceOp.MIN,
        ReduceOp.MAX,
        ReduceOp.AVG,
        ReduceOp.BAND,
        ReduceOp.BOR,
        ReduceOp.BXOR,
        ReduceOp.PREMUL_SUM,
    ),
    start=SUM,
):
    _BY_NUMBER[int(_op)] = _number


def reduction(options: Any) -> tuple[int, float | tuple[float, float] | None]:
    """The number of the reduction that `options` name, the sum where they name none, and this rank's factor."""
    if options is None:
        return SUM, None
    reduce = options.reduceOp
    if reduce == _SUM:
        return SUM, None
    # By place rather than by name: each look at one of PyTorch's enumerations is a call into C++, and a dictionary takes several.
    number = _BY_NUMBER[int(reduce.op)]
    return number, None if number != _PREMUL_SUM else _factor(reduce)


def _factor(reduce: ReduceOp) -> float | tuple[float, float]:
    # The factor of such a reduction is only told by its pickled state before PyTorch 2.14.
    factor = reduce.__getstate__()[1]
    value = factor.item() if isinstance(factor, torch.Tensor) else factor
    return (value.real, value.imag) if isinstance(value, complex) else float(value)
