"""Operations under way as PyTorch's ``Work``: waited for, or turned into a future."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from . import _native
from .eager import eager
from .failures import BackendError, late, translated


@eager
class Work(dist.Work):
    """One or several operations that were called together.

    ``wait`` and ``get_future`` are what C++ calls; the rest is for Python, which gets this very object.
    """

    def __init__(
        self,
        parts: Sequence[_native.Work],
        outputs: list,
        finish: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._parts = parts
        self._outputs = outputs
        # What is still to be done with the outputs once all parts have ended, and who may do it.
        self._finish = finish
        self._lock = threading.Lock()
        self._future: torch.futures.Future | None = None
        # What ends the future: the first thread that is to tell of the end of all parts takes it out, and says when all callbacks are over.
        self._ends: torch.futures.Future | None = None
        self._teller: int | None = None
        self._told: threading.Event | None = None
        self._failure: BaseException | None = None
        if IS_BEFORE_2_7:
            _UNDER_WAY.add(self)

    @staticmethod
    def of(works: Sequence[Work], outputs: list | None = None) -> Work:
        """One work for several that were called together, with these outputs, or those of all."""
        if outputs is None:
            outputs = [output for work in works for output in work._outputs]
        if len(works) == 1:
            works[0]._outputs = outputs
            return works[0]
        _UNDER_WAY.difference_update(works)
        unsettled = [work for work in works if work._finish is not None]

        def finish() -> None:
            # Each may have been waited for alone, too: its outputs are brought back once.
            for work in unsettled:
                work._settle()

        return Work([part for work in works for part in work._parts], outputs, finish if unsettled else None)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        millis = milliseconds(timeout)
        until = None if millis is None else time.monotonic() + millis / 1000
        for part in self._parts:
            try:
                has_ended = part.wait(_millis_until(until))
            except _native.Error as error:
                self._failure = translated(error)
                _UNDER_WAY.discard(self)
                if all(each.is_done() for each in self._parts):
                    self._tell_before(until)
                raise self._failure from None
            if not has_ended:
                told = f"phalanx: Timed out waiting {millis}ms for an operation under way"
                raise BackendError(told, late("call", after=timeout.total_seconds()))
        self._tell_before(until)
        self._settle()
        return True

    def get_future(self) -> torch.futures.Future:
        """What ends with the outputs, or with an error that C++ sees as one too: it has the words, and `exception` the kind and the ranks."""
        if self._future is None:
            ends = torch.futures.Future()
            self._told, self._ends = threading.Event(), ends
            # An exception that is set from Python is a value to C++, which takes it for tensors; one that a callback raises is an error.
            self._future = ends.then(self._outcome)
            left = len(self._parts)

            def ended(error: _native.Error | None) -> None:
                nonlocal left
                # Ends are told by several threads.
                with self._lock:
                    if error is not None and self._failure is None:
                        self._failure = translated(error)
                    left -= 1
                    is_last = left == 0
                if is_last:
                    self._tell()

            try:
                for part in self._parts:
                    part.then(ended)
            except _native.Error:
                # Nobody tells of the end of a part, so nobody is to wait for that.
                self._future = self._told = self._ends = None
                raise
            if not self._parts:
                self._tell()
        return self._future

    def is_completed(self) -> bool:
        """Whether all has ended; then the outputs are what they are to be, without a call of `wait`.

        Callbacks are left to the thread that tells of ends, and until they are over nothing is completed: whoever asks waits for none of them.
        """
        if not all(part.is_done() for part in self._parts) or self._is_to_be_told():
            return False
        if self._failure is None:
            with suppress(Exception):
                return self.wait(_AT_ONCE)
        return self._failure is not None

    def is_success(self) -> bool:
        return self.is_completed() and self._failure is None

    def exception(self) -> BaseException | None:
        self.is_completed()
        return self._failure

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def result(self) -> list:
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        self.wait()
        source = self._parts[0].source() if self._parts else None
        if source is None:
            raise ValueError("phalanx: source_rank: work is no message that was received")
        return source

    _source_rank = source_rank

    def _outcome(self, _ends: torch.futures.Future) -> list:
        """What the future ends with, on the thread that tells of ends."""
        self._settle()
        return self._outputs

    def _tell(self) -> None:
        """Ends the future, on the thread that comes here first."""
        with self._lock:
            ends, self._ends = self._ends, None
            if ends is None:
                return
            self._teller = threading.get_ident()
        try:
            ends.set_result(None)
        finally:
            self._told.set()

    def _tell_before(self, until: float | None) -> None:
        """Has the future ended and its callbacks called before a wait is over: programs go on with what these have made.

        A wait that has a limit calls none itself, because they know of no limit.
        """
        if until is None:
            self._tell()
        if self._is_to_be_told():
            self._told.wait(None if until is None else max(0.0, until - time.monotonic()))

    def _is_to_be_told(self) -> bool:
        """Whether another thread is at it, or will be: each part tells of its end. A callback that asks for its own work waits for nobody."""
        return self._told is not None and not self._told.is_set() and self._teller != threading.get_ident()

    def _settle(self) -> None:
        """Does what is left to do, once, where nothing has failed; tells everybody who comes what has, or does so itself."""
        _UNDER_WAY.discard(self)
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None and self._failure is None:
                try:
                    finish()
                except Exception as error:
                    self._failure = error
        if self._failure is not None:
            raise self._failure


def milliseconds(timeout: timedelta | None) -> int | None:
    """A timeout as the native half takes it; PyTorch says with zero or less that there is none."""
    if timeout is None or timeout <= _NONE:
        return None
    return max(1, round(timeout.total_seconds() * 1000))


def _millis_until(until: float | None) -> int | None:
    return None if until is None else max(0, round((until - time.monotonic()) * 1000))


IS_BEFORE_2_7 = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 7)
# PyTorch before 2.7 keeps the C++ half of a work alone, which never ends by itself: until it has ended, the whole is kept here.
_UNDER_WAY: set[Work] = set()
# What a call gives back that has ended before it does so: nothing, but to versions of PyTorch that wait for whatever they are given.
ENDED = None if hasattr(dist.AllreduceOptions, "asyncOp") else Work([], [])
_NONE = timedelta(0)
# The shortest limit there is, for what has ended.
_AT_ONCE = timedelta(milliseconds=1)
