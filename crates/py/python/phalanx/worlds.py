"""Worlds and groups without PyTorch: collectives on NumPy arrays and on anything else that shows its memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from . import _native, dlpack
from ._native import Op
from .arguments import rank_number, tag_number
from .shared import Pool
from .times import millis, seconds


def init(url: str | None = None, timeout: float | timedelta | None = None) -> World:
    """Joins the world that `url` names, or that the launcher's environment does: ours, torchrun, Slurm, MPI or Kubernetes.

    Times are seconds or a timedelta, here and in all that follows.
    """
    return World(_native.init(url, None if timeout is None else seconds("init", timeout)))


class World:
    """All ranks of a job, and this process's place among them. As a context it is left at the end."""

    def __init__(self, native: _native.World) -> None:
        self._native = native
        self.rank, self.size = native.rank, native.size
        self.local_rank, self.local_size = native.local_rank, native.local_size

    def group(self, name: str | None = None, timeout: float | timedelta | None = None) -> Group:
        """The group of all ranks. Every rank calls this, and as often as the others."""
        return Group(self._native.group(name, None if timeout is None else seconds("group", timeout)))

    def leave(self, timeout: float | timedelta = 30.0) -> None:
        """Leaves the world; where its store lives here, the others are waited for, with a timeout of zero nobody."""
        self._native.leave(seconds("leave", timeout, may_be_zero=True))

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        # A program may end well by an exception, too.
        if kind is None or (isinstance(error, SystemExit) and not error.code):
            self.leave()
            return
        # The others will not leave as agreed either: what went wrong is to be seen at once, and not what comes of it.
        with suppress(_native.Error):
            self.leave(timeout=0.0)


class Group:
    """Ranks that work together. Every call is played by the calling thread, and other threads of Python go on meanwhile.

    Arrays are contiguous, writable and of numbers: NumPy's, PyTorch's on the cpu, anything else with the buffer protocol or DLPack. `op` is
    sum, product, min, max, avg, band, bor or bxor.
    """

    def __init__(self, native: _native.Group) -> None:
        self._native = native
        self.rank, self.size = native.rank, native.size
        self._pool = Pool(native)

    def buffer(self, byte_len: int) -> Any:
        """Bytes of any content for this group's operations, which ranks of one host read and write where they are: a third of the time for
        large operations. `numpy.frombuffer(group.buffer(4 * count), numpy.float32)` is an array in them."""
        return self._pool.take(byte_len)

    def all_reduce(self, array: Any, op: str = "sum") -> None:
        dtype, count, span = _lent("all_reduce", array)
        self._native.run(Op.all_reduce(count, _reduction("all_reduce", op)), dtype, span)

    def reduce(self, array: Any, root: int, op: str = "sum") -> None:
        dtype, count, span = _lent("reduce", array)
        self._native.run(Op.reduce(count, _reduction("reduce", op), rank_number("reduce", "root", root)), dtype, span)

    def broadcast(self, array: Any, root: int) -> None:
        dtype, count, span = _lent("broadcast", array)
        self._native.run(Op.broadcast(count, rank_number("broadcast", "root", root)), dtype, span)

    def all_gather(self, output: Any, array: Any) -> None:
        dtype, taken, given, count, _ = self._both("all_gather", output, array)
        self._native.run(Op.all_gather(count), dtype, taken, given)

    def reduce_scatter(self, output: Any, array: Any, op: str = "sum") -> None:
        dtype, taken, given, _, count = self._both("reduce_scatter", output, array)
        self._native.run(Op.reduce_scatter(count, _reduction("reduce_scatter", op)), dtype, taken, given)

    def all_to_all(
        self, output: Any, array: Any, take: Sequence[int] | None = None, give: Sequence[int] | None = None
    ) -> None:
        dtype, taken, given, count, room = self._both("all_to_all", output, array)
        op = Op.all_to_all(
            count // self.size if give is None else list(give), room // self.size if take is None else list(take)
        )
        self._native.run(op, dtype, taken, given)

    def send(self, array: Any, to: int, tag: int = 0) -> None:
        dtype, count, span = _lent("send", array)
        op = Op.send(count, rank_number("send", "to", to), tag_number("send", tag))
        self._native.run(op, dtype, _NOWHERE, span)

    def recv(self, array: Any, source: int | None = None, tag: int = 0) -> int:
        """Receives into the array, and returns who sent it."""
        dtype, count, span = _lent("recv", array)
        sought = None if source is None else rank_number("recv", "source", source)
        sender = self._native.run(Op.recv(count, sought, tag_number("recv", tag)), dtype, span, _NOWHERE)
        return source if sender is None else sender

    def barrier(self) -> None:
        self._native.run(Op.barrier(), _BYTES, _NOWHERE)

    def monitored_barrier(self, timeout: float | timedelta | None = None, wait_all: bool = False) -> None:
        self._native.monitored_barrier(wait_all, None if timeout is None else millis("monitored_barrier", timeout))

    def abort(self, why: str = "the program aborted the group") -> None:
        self._native.abort(why)

    def leave(self) -> None:
        self._native.leave()

    def _both(self, call: str, output: Any, array: Any) -> tuple:
        dtype, room, taken = _lent(call, output)
        other, count, given = _lent(call, array)
        if dtype != other:
            raise TypeError(f"phalanx: {call}: output and array have different element types, must have one")
        return dtype, taken, given, count, room


def _lent(call: str, array: Any) -> tuple[int, int, tuple[int, int]]:
    """The element type's number, how many elements there are, and where."""
    if hasattr(array, "__dlpack__") and not hasattr(array, "__array_interface__"):
        return dlpack.lent(call, array)
    with memoryview(array) as view:
        if not view.c_contiguous or view.readonly:
            raise ValueError(f"phalanx: {call}: array is read-only or has gaps, must be contiguous and writable")
        dtype = _FORMATS.get((view.format.lstrip("@=<"), view.itemsize))
        if dtype is None:
            raise TypeError(f"phalanx: {call}: array has elements of format {view.format!r}, must be numbers")
        count, byte_len = view.nbytes // view.itemsize, view.nbytes
        address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if byte_len else 0
    return dtype, count, (address, byte_len)


def _reduction(call: str, op: str) -> int:
    number = _REDUCTIONS.get(op)
    if number is None:
        raise ValueError(f"phalanx: {call}: op is {op!r}, must be one of {', '.join(_REDUCTIONS)}")
    return number


# By the format of the buffer protocol and the bytes of an element.
_FORMATS = {("d", 8): 1, ("f", 4): 2, ("e", 2): 3, ("?", 1): 17, ("Zf", 8): 18, ("Zd", 16): 19, ("c", 1): 10}
_FORMATS |= {(letter, size): number for size, number in ((1, 9), (2, 11), (4, 13), (8, 15)) for letter in "bhilqn"}
_FORMATS |= {(letter, size): number for size, number in ((1, 10), (2, 12), (4, 14), (8, 16)) for letter in "BHILQN"}
_REDUCTIONS = {"sum": 1, "product": 2, "min": 3, "max": 4, "avg": 5, "band": 6, "bor": 7, "bxor": 8}
_BYTES = 10
_NOWHERE = (0, 0)
