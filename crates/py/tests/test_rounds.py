"""Meetings on a store that earlier ones left things on, as killed jobs and jobs that nobody came to do."""

from __future__ import annotations

import json
import os
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

# PyTorch logs each wait that ends in vain.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch.distributed as dist

import phalanx
from phalanx.rounds import Rounds

# Longer than anything takes that comes to pass.
LONG = timedelta(seconds=60)
SHORT = timedelta(milliseconds=300)


class OnAnyStore(unittest.TestCase):
    def test_an_answer_that_was_given_to_others_is_not_believed(self):
        for store in stores():
            with self.subTest(store().__class__.__name__), ThreadPoolExecutor() as others:
                # The first rank of this job is killed behind its answer.
                killed = Rounds(store(), 0, [0, 1], LONG)
                asked = others.submit(Rounds(store(), 1, [0, 1], LONG).ask, "a")
                self.assertEqual(killed.gather("b"), ["b", "a"])
                killed.answer("old")
                self.assertEqual(asked.result(), "old")

                asked = others.submit(Rounds(store(), 1, [0, 1], LONG).ask, "c")
                await_words(store(), killed._seats[1], "c")
                new = Rounds(store(), 0, [0, 1], LONG)
                self.assertEqual(new.gather("d"), ["d", "c"])
                new.answer("new")
                self.assertEqual(asked.result(), "new")

    def test_those_who_came_to_a_meeting_that_failed_are_waited_for_again(self):
        for store in stores():
            with self.subTest(store().__class__.__name__), ThreadPoolExecutor() as others:
                members = [0, 1, 2]
                asked = others.submit(Rounds(store(), 1, members, LONG).ask, "old")
                with self.assertRaisesRegex(dist.DistStoreError, "rank 2 of 3 did not come"):
                    Rounds(store(), 0, members, timedelta(seconds=2)).gather("old")
                # The first rank is the first to give up, and says so.
                self.assertEqual((asked.exception().kind, asked.exception().ranks), ("timeout", [2]))
                with self.assertRaises(phalanx.StoreFailure) as caught:
                    Rounds(store(), 1, members, SHORT).ask("late")
                self.assertEqual(caught.exception.ranks, [0])

                asked = [others.submit(Rounds(store(), rank, members, LONG).ask, f"new {rank}") for rank in (1, 2)]
                first = Rounds(store(), 0, members, LONG)
                self.assertEqual(first.gather("new"), ["new", "new 1", "new 2"])
                first.answer("come in")
                self.assertEqual([each.result() for each in asked], ["come in"] * 2)

    def test_who_is_missing_is_told_although_all_came_before(self):
        for store in stores():
            with self.subTest(store().__class__.__name__), ThreadPoolExecutor() as others:
                rounds = [Rounds(store(), rank, [3, 5], LONG) for rank in range(2)]
                asked = others.submit(rounds[1].ask, "")
                rounds[0].gather("")
                rounds[0].answer("here")
                asked.result()
                for each in rounds:
                    each.forget()
                with self.assertRaises(phalanx.StoreFailure) as caught:
                    Rounds(store(), 1, [3, 5], SHORT).ask("")
                self.assertEqual((caught.exception.kind, caught.exception.ranks), ("timeout", [3]))
                with self.assertRaises(phalanx.StoreFailure) as caught:
                    Rounds(store(), 0, [3, 5], SHORT).gather("")
                self.assertEqual((caught.exception.kind, caught.exception.ranks), ("timeout", [5]))

    def test_the_first_is_named_where_it_alone_is_missing(self):
        for store in stores():
            with self.subTest(store().__class__.__name__), self.assertRaises(phalanx.StoreFailure) as caught:
                Rounds(store(), 1, [4, 6, 7], SHORT).ask("")
            self.assertEqual((caught.exception.ranks, caught.exception.after), ([4], 0.3))

    def test_a_store_that_ends_is_not_waited_for(self):
        server = dist.TCPStore("127.0.0.1", 0, None, True, LONG, wait_for_workers=False)
        store = dist.TCPStore("127.0.0.1", server.port, None, False, LONG, wait_for_workers=False)
        with ThreadPoolExecutor() as others:
            asked = others.submit(Rounds(store, 1, [0, 1], LONG).ask, "")
            del server
            with self.assertRaises(phalanx.StoreFailure) as caught:
                asked.result(30)
        self.assertEqual(caught.exception.ranks, [])


def stores() -> Iterator[Callable[[], dist.Store]]:
    """Ways to a store: the client of PyTorch's server serves one thread after the other."""
    shared = dist.HashStore()
    yield lambda: shared
    with tempfile.TemporaryDirectory() as scratch:
        yield lambda: dist.FileStore(f"{scratch}/store", 1)
    theirs = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    yield lambda: dist.TCPStore("127.0.0.1", theirs.port, None, False, wait_for_workers=False)
    ours = phalanx.TCPStore("127.0.0.1", 0, is_master=True)
    yield lambda: phalanx.TCPStore("127.0.0.1", ours.port)


def await_words(store: dist.Store, seat: str, words: str) -> None:
    until = time.monotonic() + 60
    while json.loads(store.get(seat))[0] != words:
        assert time.monotonic() < until, f"nobody said {words}"
        time.sleep(0.001)


if __name__ == "__main__":
    unittest.main()
