"""What the environment says of PyTorch's groups: the job key, which nobody learns from their store, and the profile of limits."""

from __future__ import annotations

import os
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

import phalanx
from phalanx import _native
from phalanx.joining import Options, meet
from phalanx.rounds import Rounds
from ranks import on_ranks

# Longer than anything takes that comes to pass.
LONG = timedelta(seconds=60)
KEY, OTHER_KEY = "5a" * 32, "a5" * 32
UNSET = "PHALANX_KEY_FD, PHALANX_KEY_FILE and PHALANX_KEY are not set"


class Keys(unittest.TestCase):
    def test_who_reads_all_that_is_said_on_the_store_does_not_come_in(self):
        with environment():
            stranger, manner = _native.JobKey(), _native.Manner("tcp", "encrypted", False, False, None)
        store = dist.HashStore()
        with ThreadPoolExecutor() as ranks, environment(PHALANX_KEY=KEY):
            first = ranks.submit(meet, store, 0, 2, "guarded", timedelta(seconds=6), Options(transport="tcp"))
            rounds = Rounds(store, 1, [0, 1], LONG)
            host, port, told, refusal = rounds.ask(
                [_native.host_identity(), "PHALANX_KEY", ["tcp", "encrypted", False]]
            )
            self.assertIsNone(refusal)
            # The last digits of what is told are all that could be a key.
            key = stranger.recall(f"key:{told[-64:]}", f"{rounds.name}/guarded")
            with self.assertRaises(phalanx.Error):
                _native.join((host, port, key), 1, 2, "guarded", 4.0, manner)
            error = first.exception(60)
        self.assertIsInstance(error, phalanx.Error)
        self.assertEqual(error.ranks, [1], error)

    def test_only_a_nonce_is_told_where_there_is_a_job_key_and_each_time_another_one(self):
        with environment(PHALANX_KEY=KEY):
            said = on_ranks(2, told_of_doors)[0]
        self.assertEqual([told[:6] for told in said], ["nonce:"] * 2)
        self.assertNotEqual(*said)
        with environment():
            said = on_ranks(2, told_of_doors)[0]
        self.assertEqual([told[:4] for told in said], ["key:"] * 2)

    def test_groups_form_whichever_variable_leads_to_the_key(self):
        with tempfile.TemporaryDirectory() as scratch, environment():
            path = Path(scratch) / "job.key"
            path.touch(0o600)
            path.write_text(f"{KEY}\n")
            on_ranks(3, keyed_in_three_ways, str(path))

    def test_ranks_that_have_a_key_and_ranks_that_have_none_are_all_told_which_have_none(self):
        for having, lacking in (([0, 1], [2]), ([0], [1, 2]), ([1, 2], [0]), ([2], [0, 1])):
            with self.subTest(having), environment():
                for message in on_ranks(3, partly_keyed, having, lacking):
                    names = f"rank{'s' if len(lacking) > 1 else ''} {', '.join(map(str, lacking))}"
                    expected = (
                        f"phalanx: job key: {UNSET} on {names}, and PHALANX_KEY is on rank {having[0]}: all ranks"
                    )
                    self.assertTrue(message.startswith(expected), message)

    def test_a_rank_with_a_key_joins_nothing_in_the_clear_whoever_says_so(self):
        with environment(PHALANX_KEY=KEY):
            error = answered(f"key:{OTHER_KEY}")
        self.assertEqual((error.kind, error.scope), ("setup", "process"))
        self.assertRegex(str(error), "^PHALANX_KEY: names a job key, and the first rank of the group has none: ")

    def test_a_rank_without_a_key_is_told_which_variables_lead_to_one(self):
        with environment():
            error = answered(f"nonce:{OTHER_KEY}")
        self.assertEqual(error.kind, "setup")
        self.assertIn(f"job key: the first rank of the group has one, and this process has none: {UNSET}", str(error))

    def test_an_answer_that_is_neither_a_key_nor_a_nonce_is_refused_without_being_shown(self):
        for variables in ({}, {"PHALANX_KEY": KEY}):
            with self.subTest(variables), environment(**variables):
                error = answered(OTHER_KEY)
                self.assertEqual(
                    (error.kind, str(error)), ("setup", "key of the door: neither a key nor a nonce was told")
                )
        with environment():
            self.assertRegex(str(answered("key:5a5a")), "^key of the door: job key has 4 of 64 digits")

    def test_a_key_that_cannot_be_read_is_told_with_its_variable_before_anybody_is_met(self):
        for variable, text, why in (
            ("PHALANX_KEY", "5a", "PHALANX_KEY: job key has 2 of 64 digits, must be 64 hexadecimal digits"),
            ("PHALANX_KEY_FILE", "/proc/none", "PHALANX_KEY_FILE: key file /proc/none: No such file or directory"),
            ("PHALANX_KEY_FD", "one", 'environment: PHALANX_KEY_FD is "one", must be a whole number'),
            ("PHALANX_KEY_FD", "987", "PHALANX_KEY_FD: descriptor 987 is not open"),
        ):
            with self.subTest(variable), environment(**{variable: text}):
                with self.assertRaises(phalanx.Error) as caught:
                    meet(dist.HashStore(), 1, 2, "unread", LONG, Options())
                self.assertEqual(caught.exception.kind, "setup")
                self.assertTrue(str(caught.exception).startswith(why), caught.exception)

    def test_ranks_with_different_keys_do_not_meet(self):
        with environment():
            told = on_ranks(2, differently_keyed)
        self.assertEqual(told[0], [1])


class Profiles(unittest.TestCase):
    def test_a_profile_with_a_bad_line_is_told_before_anybody_is_met(self):
        with tempfile.TemporaryDirectory() as scratch, environment(PHALANX_PROFILE=f"{scratch}/profile"):
            Path(scratch, "profile").write_text("# measured\nsegment = big\n")
            why = 'PHALANX_PROFILE ".*/profile": line 2: segment is "big", must be a number of bytes'
            for rank, size in ((0, 1), (1, 2)):
                with self.assertRaisesRegex(phalanx.Error, f"^{why}") as caught:
                    meet(dist.HashStore(), rank, size, "misled", LONG, Options())
                self.assertEqual(caught.exception.kind, "setup")
            with self.assertRaisesRegex(AssertionError, f"BackendError: phalanx: {why}"):
                on_ranks(2, added_up, None)

    def test_a_profile_that_is_not_there_is_told_by_its_name(self):
        with environment(PHALANX_PROFILE="/proc/none"), self.assertRaises(phalanx.Error) as caught:
            meet(dist.HashStore(), 0, 1, "alone", LONG, Options())
        self.assertRegex(str(caught.exception), '^PHALANX_PROFILE "/proc/none": No such file')

    def test_groups_choose_by_the_profile_and_ranks_that_differ_in_it_do_not_meet(self):
        with tempfile.TemporaryDirectory() as scratch, environment():
            told = on_ranks(2, profiled, scratch)
        # Who sees it first leaves, and the other may be told of that.
        self.assertTrue(any("has a profile with hash" in message for message in told), told)


def environment(**variables: str) -> Any:
    """An environment in which these variables alone are of those that are tried here."""
    tried = ("PHALANX_KEY", "PHALANX_PROFILE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(tried)}
    return patch.dict(os.environ, {**kept, **variables}, clear=True)


def answered(told: str) -> BaseException:
    """How the second rank of two ends where whoever is taken for the first tells it this of a door."""
    store = dist.HashStore()
    with ThreadPoolExecutor() as others:
        second = others.submit(meet, store, 1, 2, "pair", LONG, Options())
        first = Rounds(store, 0, [0, 1], LONG)
        first.gather("")
        first.answer(["127.0.0.1", 1, told, None])
        error = second.exception(60)
    assert isinstance(error, phalanx.Error), error
    return error


def told_of_doors(rank: int, size: int) -> list[str]:
    """What rank 0 tells the others of two doors that it opens."""
    said: list[str] = []
    answer = Rounds.answer

    def heard(rounds: Rounds, told: Any) -> None:
        said.append(told[2])
        answer(rounds, told)

    with patch.object(Rounds, "answer", heard):
        for _ in range(2):
            added_up(rank, size, phalanx.Options(transport="tcp"))
    return said


def keyed_in_three_ways(rank: int, size: int, path: str) -> None:
    with open(path) as file:
        ways = [("PHALANX_KEY", KEY), ("PHALANX_KEY_FILE", path), ("PHALANX_KEY_FD", str(file.fileno()))]
        with patch.dict(os.environ, dict(ways[rank : rank + 1])):
            for options in (None, phalanx.Options(transport="tcp")):
                added_up(rank, size, options)


def partly_keyed(rank: int, size: int, having: list[int], lacking: list[int]) -> str:
    with patch.dict(os.environ, {"PHALANX_KEY": KEY} if rank in having else {}):
        try:
            dist.new_group()
        except phalanx.BackendError as error:
            assert (error.kind, error.scope, error.ranks) == ("setup", "process", lacking), error
            told = str(error)
        else:
            raise AssertionError("some came without the key")
    # They are told so at once, and may mend it.
    added_up(rank, size, None)
    return told


def differently_keyed(rank: int, size: int) -> list[int]:
    with patch.dict(os.environ, {"PHALANX_KEY": OTHER_KEY if rank else KEY}):
        try:
            dist.new_group(timeout=timedelta(seconds=5))
        except phalanx.Error as error:
            return error.ranks
    raise AssertionError("two keys are not one")


def profiled(rank: int, size: int, scratch: str) -> str:
    tcp = phalanx.Options(transport="tcp")
    Path(scratch, str(rank)).write_text(f"segment = {8192 + rank}\n")
    with patch.dict(os.environ, {"PHALANX_PROFILE": f"{scratch}/{rank}"}):
        try:
            dist.new_group(timeout=timedelta(seconds=10), pg_options=tcp)
        except phalanx.BackendError as error:
            told = str(error)
        else:
            raise AssertionError("the ranks do not choose alike")
    # Both have met at the latest when one of them was told.
    dist.barrier()
    with patch.dict(os.environ, {"PHALANX_PROFILE": f"{scratch}/0"}):
        added_up(rank, size, tcp)
    return told


def added_up(rank: int, size: int, options: phalanx.Options | None) -> None:
    """Forms a group of all ranks, which works."""
    group = dist.new_group(timeout=LONG, pg_options=options)
    data = torch.ones(3000)
    dist.all_reduce(data, group=group)
    assert data.eq(size).all(), data


if __name__ == "__main__":
    unittest.main()
