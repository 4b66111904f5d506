"""What ranks tell each other on a store before they meet, where earlier meetings may have left what they told: the first rank opens a round
with a name of its own, and nobody believes what is not an answer to what was said in it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from secrets import token_hex
from typing import Any

import torch.distributed as dist

from .failures import StoreFailure, late


class Rounds:
    """One rank's view of the meetings on a store: who is to come to the next one, and until when that is waited for."""

    def __init__(self, store: dist.Store, rank: int, members: Sequence[int], timeout: timedelta) -> None:
        self._store, self._rank, self._members, self._timeout = store, rank, members, timeout
        self._until = time.monotonic() + timeout.total_seconds()
        # By this what is said now is told from what a rank of this number said before.
        self._word = token_hex(8)
        self._round = ""
        self._former: str | None = None

    @property
    def name(self) -> str:
        """What the round is called in which this rank has said something, and no other one is."""
        return self._round

    def gather(self, said: Any) -> list[Any]:
        """What every rank says, for the first one, whose round this is from now on."""
        former = self._store.get(_ROUND).decode() if self._store.check([_ROUND]) else None
        self._round = token_hex(8)
        self._say(said)
        if former is not None:
            # Who came before this rank waits there, and looks for another round once it hears of none of its words.
            self._former = _answer(former)
            self._store.set(self._former, json.dumps([None, [], []]))
        self._store.set(_ROUND, self._round)
        try:
            self._store.wait(self._seats, self._timeout)
        except RuntimeError as error:
            failure = self._failure(error)
            with suppress(RuntimeError):
                self._words = [json.loads(said)[1] for seat in self._seats if (said := self._look(seat))]
                # Where all came in the last moment, there is nobody to name.
                if failure.ranks:
                    self._tell(None, failure.ranks)
            raise failure from error
        heard = [json.loads(self._store.get(seat)) for seat in self._seats]
        self._words = [word for _, word in heard]
        return [told for told, _ in heard]

    def answer(self, told: Any) -> None:
        """Tells all who were heard."""
        self._tell(told, [])

    def ask(self, said: Any) -> Any:
        """What the first rank answers to this rank's words."""
        try:
            told, missing = self._answered(said)
        except RuntimeError as error:
            raise self._failure(error) from error
        if missing:
            raise self._named(missing, "the first rank waited for them in vain")
        return told

    def forget(self) -> None:
        """Takes away what this rank said, after a meeting to which all have come. What others said is left to them, and all of a meeting
        that failed, by which they see who came."""
        self._delete(self._seats[self._rank])
        if self._rank == 0:
            self._delete(_answer(self._round))
            if self._former is not None:
                self._delete(self._former)

    def _answered(self, said: Any) -> tuple[Any, list[int]]:
        self._store.wait([_ROUND], self._timeout)
        while True:
            self._follow(said)
            told, words, missing = self._heard()
            if self._word in words:
                return told, missing
            self._await_another()

    def _follow(self, said: Any) -> None:
        """Says it in the round that stands now."""
        if self._round:
            self._delete(self._seats[self._rank])
        self._round = self._store.get(_ROUND).decode()
        self._say(said)

    def _await_another(self) -> None:
        """Waits until another round stands than the one whose answer was to others: to a meeting that nobody lived to end, if there is none
        yet. Stores tell of keys that come, not of those that change."""
        pause = 0.001
        while self._store.get(_ROUND).decode() == self._round:
            if self._left() <= 0:
                raise RuntimeError(f"nobody opened another round within {self._timeout.total_seconds()} s")
            time.sleep(pause)
            pause = min(2 * pause, 0.1)

    def _say(self, said: Any) -> None:
        self._store.set(self._seats[self._rank], json.dumps([said, self._word]))

    def _tell(self, told: Any, missing: list[int]) -> None:
        self._store.set(_answer(self._round), json.dumps([told, self._words, missing]))

    def _heard(self) -> list[Any]:
        """What was answered in the round. One of a former meeting may be taken away between two looks."""
        while True:
            self._store.wait([_answer(self._round)], timedelta(seconds=max(0.001, self._left())))
            said = self._look(_answer(self._round))
            if said is not None:
                return json.loads(said)

    def _look(self, key: str) -> bytes | None:
        """What stands under a key, if there is one: ``get`` would wait for it by the store's time."""
        nothing = f"no {self._word}"
        said = self._store.compare_set(key, nothing, nothing)
        return None if said == nothing.encode() else said

    def _failure(self, error: RuntimeError) -> StoreFailure:
        """Names the ranks that have said nothing, also where it is another one that waits for them."""
        missing: list[int] = []
        # A store that is gone has nothing to tell of the ranks.
        with suppress(RuntimeError):
            missing = self._missing()
        return self._named(missing, error)

    def _named(self, missing: list[int], why: object) -> StoreFailure:
        count, seconds = len(self._members), self._timeout.total_seconds()
        names = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} of {count} did not come: "
        return StoreFailure(f"phalanx: joining: {names if missing else ''}{why}", late("process", missing, seconds))

    def _missing(self) -> list[int]:
        silent: list[int] = []
        # A round that was answered is over.
        if self._store.check([_ROUND]) and self._round and not self._store.check([_answer(self._round)]):
            silent = [member for member, seat in zip(self._members, self._seats) if not self._store.check([seat])]
        # Where nobody else is missed it is the first, who opens rounds.
        return sorted(silent) or ([] if self._rank == 0 else [self._members[0]])

    def _left(self) -> float:
        return self._until - time.monotonic()

    @property
    def _seats(self) -> list[str]:
        """Where the ranks say it in the round."""
        return [f"{self._round}/host/{rank}" for rank in range(len(self._members))]

    def _delete(self, key: str) -> None:
        # Some stores cannot, and one may be gone already; what is only believed by those who asked may stay.
        with suppress(RuntimeError, NotImplementedError):
            self._store.delete_key(key)


def _answer(round: str) -> str:
    """Where the first rank answers in a round."""
    return f"{round}/door"


_ROUND = "round"
