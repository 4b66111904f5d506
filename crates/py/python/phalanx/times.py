"""Times that programs say, as a number of seconds or as a timedelta, checked before anybody waits for anything."""

from __future__ import annotations

from datetime import timedelta
from numbers import Real


def seconds(call: str, timeout: float | timedelta, may_be_zero: bool = False) -> float:
    """What `timeout` is in seconds, where it is a time that the call can take."""
    number = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not isinstance(number, Real):
        kind = type(timeout).__name__
        raise TypeError(f"phalanx: {call}: timeout is a {kind}, must be a number of seconds or a timedelta")
    # Said so that NaN is none of these.
    if not (number > 0 or (may_be_zero and number == 0)):
        least = "at least zero" if may_be_zero else "above zero"
        raise ValueError(f"phalanx: {call}: timeout is {timeout}, must be {least}")
    return float(min(number, _FOREVER))


def millis(call: str, timeout: float | timedelta) -> int:
    """Whole milliseconds, at least one: none at all would be no time to PyTorch and to the native half."""
    return max(1, round(1000 * seconds(call, timeout)))


def span(call: str, timeout: float | timedelta) -> timedelta:
    """The same as PyTorch takes it."""
    return timedelta(milliseconds=millis(call, timeout))


# A century, which can still be added to a moment.
_FOREVER = 100 * 365 * 24 * 3600.0
