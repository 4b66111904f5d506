"""Keeps ``torch.compile`` out of what PyTorch calls from C++ while a compiled program runs, as DDP does. Loads no compiler."""

from __future__ import annotations

from types import FunctionType

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:  # PyTorch before 2.7 has other names for it
    set_code_exec_strategy = None


def eager(kind: type) -> type:
    """The methods of this class are carried out as they are written, with all that they call."""
    if set_code_exec_strategy is not None:
        as_written = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
        for method in vars(kind).values():
            if isinstance(method, FunctionType):
                set_code_exec_strategy(method.__code__, as_written)
    return kind
