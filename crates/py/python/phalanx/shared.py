"""Memory of a group's making as Python objects. No communication."""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from functools import lru_cache
from typing import Any

from . import _native


class Pool:
    """Memory that the ranks of one host read and write where it is, kept for the next one who asks: making it takes longer than an
    operation gains by it."""

    def __init__(self, group: _native.Group) -> None:
        self._group = group
        # Taken from and put back by threads and by the garbage collector: each move is one step.
        self._free: deque[_native.Memory] = deque(maxlen=_KEPT)

    def take(self, byte_len: int) -> Any:
        """A writable object with the buffer protocol, of so many bytes of any content. The memory comes back with the last reference."""
        if not 0 <= byte_len <= _MOST:
            raise ValueError(f"phalanx: byte_len is {byte_len}, must be at least 0 and at most {_MOST}")
        whole = max(byte_len + -byte_len % _PAGE, _PAGE)
        memory = self._reused(whole) or self._made(whole)
        room = _kind(byte_len).from_address(memory.address)
        weakref.finalize(room, self._free.append, memory).atexit = False
        return room

    def _reused(self, byte_len: int) -> _native.Memory | None:
        for _ in range(len(self._free)):
            try:
                memory = self._free.popleft()
            except IndexError:
                break
            if memory.byte_len == byte_len:
                return memory
            self._free.append(memory)
        return None

    def _made(self, byte_len: int) -> _native.Memory:
        try:
            return self._group.buffer(byte_len)
        except _native.Error:
            if not self._free:
                raise
            # What is kept in other lengths may be what is missing.
            self._free.clear()
            return self._group.buffer(byte_len)


@lru_cache(maxsize=256)
def _kind(byte_len: int) -> Any:
    """An array that can be told when it goes, which those of ctypes itself cannot."""
    return type("Room", (ctypes.c_char * byte_len,), {})


_PAGE = 4096
_KEPT = 64
_MOST = (1 << 63) - _PAGE
