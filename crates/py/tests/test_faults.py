"""Mistakes and deaths: every rank that is left gets an exception that names the rank, and its process goes on."""

from __future__ import annotations

import math
import os
import signal
import tempfile
import threading
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import phalanx
from phalanx.joining import meet
from ranks import on_ranks

# The rank that is wrong, or dies.
ODD = 1
SIZE = 3
# A rank that is stopped is no longer waited for after three seconds.
STOPPED_FOR = 6.0
# What a busy machine may take.
LATE = 4.0


class Mismatches(unittest.TestCase):
    """One rank calls something else. All are told, and work together again afterwards."""

    def test_count(self):
        self.disagree(lambda rank, odd: dist.all_reduce(torch.ones(11 if odd else 10)), "count")

    def test_dtype(self):
        self.disagree(
            lambda rank, odd: dist.all_reduce(torch.ones(10, dtype=torch.float64 if odd else torch.float32)), "dtype"
        )

    def test_reduction(self):
        op = dist.ReduceOp
        self.disagree(lambda rank, odd: dist.all_reduce(torch.ones(10), op.MAX if odd else op.SUM), "max")

    def test_root(self):
        self.disagree(lambda rank, odd: dist.broadcast(torch.ones(10), 1 if odd else 0), "root")

    def test_kind(self):
        def call(rank, odd):
            if odd:
                dist.barrier()
            else:
                dist.all_reduce(torch.ones(10))

        self.disagree(call, "barrier")

    def test_split(self):
        def call(rank, odd):
            # The odd rank expects three elements of rank 0, which gives two.
            take = [3, 2, 2] if odd else [2, 2, 2]
            dist.all_to_all_single(torch.empty(sum(take)), torch.ones(6), take, [2, 2, 2])

        self.disagree(call, None)

    def test_count_of_asynchronous_calls(self):
        def call(rank, odd):
            dist.all_reduce(torch.ones(11 if odd else 10), async_op=True).wait()

        self.disagree(call, "count")

    def test_count_over_tcp(self):
        self.disagree(
            lambda rank, odd: dist.all_reduce(torch.ones(11 if odd else 10)), "count", phalanx.Options(transport="tcp")
        )

    def test_lines_that_call_alike_are_told_apart_where_the_options_say_so(self):
        def call(rank, odd):
            if odd:
                dist.all_reduce(torch.ones(10))
            else:
                dist.all_reduce(torch.ones(10))

        told = self.disagree(call, "call site", phalanx.Options(compare_call_sites=True))
        lines = [int(message.rsplit(":", 1)[1]) for message in told]
        self.assertEqual((lines[0], lines[2]), (lines[ODD] + 2, lines[ODD] + 2), told)
        on_ranks(SIZE, unnoticed, call)

    def disagree(self, call, words: str | None, options: phalanx.Options | None = None) -> list[str]:
        told = on_ranks(SIZE, disagreement, call, options=options)
        for rank, (kind, ranks, message) in enumerate(told):
            self.assertEqual(kind, "desync", message)
            self.assertIn("rank", message)
            if words is not None:
                self.assertIn(words, message)
            # The odd one and one of those that it disagrees with.
            self.assertIn(ODD, ranks, message)
            self.assertEqual(len(ranks), 2, message)
            self.assertRegex(message, r"; called here at .*test_faults\.py:\d+$")
        return [message for _, _, message in told]


def disagreement(rank: int, size: int, call) -> tuple:
    dist.barrier()
    try:
        call(rank, rank == ODD)
        # Who got what it asked for before the others disagreed is told at its next call.
        dist.barrier()
    except dist.DistBackendError as error:
        told = (error.kind, error.ranks, str(error))
    else:
        raise AssertionError(f"rank {rank} was told nothing")
    data = torch.ones(4)
    dist.all_reduce(data)
    assert data.tolist() == [size] * 4, "the group does not work any more"
    return told


def unnoticed(rank: int, size: int, call) -> None:
    call(rank, rank == ODD)
    dist.barrier()


class Numbers(unittest.TestCase):
    def test_a_nan_is_refused_on_the_rank_that_gives_it_in_groups_that_look_for_it(self):
        told = on_ranks(SIZE, given_a_nan)
        expected = f"phalanx: all_reduce: data is NaN at element 2 on rank {ODD}, must be numbers, as this group checks"
        self.assertEqual(told, [("usage", expected) if rank == ODD else None for rank in range(SIZE)])


def given_a_nan(rank: int, size: int) -> tuple | None:
    group = dist.new_group(pg_options=phalanx.Options(check_nan=True))
    told, data = None, torch.ones(4)
    if rank == ODD:
        data[2] = math.nan
        # Of several tensors none is sent then.
        for call in (
            lambda: dist.all_reduce(data, group=group),
            lambda: dist.all_reduce(data, group=group, async_op=True),
            lambda: group.allreduce([torch.ones(3), data]).wait(),
        ):
            try:
                call()
            except phalanx.BackendError as error:
                told = (error.kind, str(error))
            else:
                raise AssertionError("a NaN was sent")
        data[2] = 1.0
    # The others have waited for it.
    dist.all_reduce(data, group=group)
    assert data.tolist() == [size] * 4
    # Options are those of one group.
    data = torch.full((4,), math.nan if rank == ODD else 1.0)
    dist.all_reduce(data)
    assert data.isnan().all()
    return told


class Deaths(unittest.TestCase):
    def test_a_killed_rank_is_named_on_every_survivor(self):
        self.die(False, None)

    def test_a_killed_rank_is_named_where_calls_are_asynchronous(self):
        self.die(True, None)

    def test_a_killed_rank_is_named_over_tcp(self):
        self.die(False, phalanx.Options(transport="tcp"))

    def test_a_stopped_rank_is_named_on_every_survivor_within_the_bound(self):
        for options in (None, phalanx.Options(transport="tcp")):
            with self.subTest(options=options):
                told = on_ranks(SIZE, stop, options=options, timeout=STOPPED_FOR, dying=(ODD,))
                for rank in (0, 2):
                    kind, ranks, message, took = told[rank]
                    self.assertIn(kind, ("peer", "timeout", "aborted"), message)
                    self.assertEqual(ranks, [ODD], message)
                    self.assertLess(took, STOPPED_FOR + LATE, message)

    def test_a_rank_killed_in_backward_is_named_by_ddp(self):
        told = on_ranks(2, death_in_backward, dying=(ODD,))
        self.assertIn(f"rank {ODD} is dead", told[0])

    def die(self, asynchronous: bool, options):
        with tempfile.TemporaryDirectory() as scratch:
            told = on_ranks(SIZE, death, asynchronous, f"file://{scratch}/again", options=options, dying=(ODD,))
        for rank in (0, 2):
            kind, ranks, message, took = told[rank]
            self.assertIn(kind, ("peer", "aborted"), message)
            self.assertEqual(ranks, [ODD], message)
            self.assertIn(f"rank {ODD} is dead", message)
            self.assertLess(took, 30.0)


def death(rank: int, size: int, asynchronous: bool, again: str) -> tuple:
    dist.barrier()
    if rank == ODD:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        while True:
            work = dist.all_reduce(torch.ones(1000), async_op=asynchronous)
            if asynchronous:
                work.wait()
    except phalanx.Error as error:
        told = (error.kind, error.ranks, str(error), time.monotonic() - began)
    # Those who are left go on without it.
    dist.destroy_process_group()
    dist.init_process_group("phalanx", init_method=again, rank=rank // 2, world_size=2)
    data = torch.ones(1)
    dist.all_reduce(data)
    assert data.item() == 2
    return told


def death_in_backward(rank: int, size: int) -> str:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    for step in range(3):
        loss = model(torch.ones(2, 64)).sum()
        if rank == ODD and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            loss.backward()
        except RuntimeError as error:
            return str(error)
    raise AssertionError("nobody was missing")


def stop(rank: int, size: int) -> tuple:
    dist.barrier()
    if rank == ODD:
        os.kill(os.getpid(), signal.SIGSTOP)
    began = time.monotonic()
    try:
        while True:
            dist.all_reduce(torch.ones(1000))
    except phalanx.Error as error:
        return error.kind, error.ranks, str(error), time.monotonic() - began


class Ends(unittest.TestCase):
    def test_a_call_that_takes_too_long_says_whom_it_waited_for(self):
        told = on_ranks(2, lateness)
        kind, ranks, message = told[0]
        self.assertEqual((kind, ranks), ("timeout", [1]), message)
        self.assertIn("Timed out waiting 300ms", message)
        # Where it hangs: behind the call that both have made.
        self.assertRegex(message, r"rank 1, whose last was barrier \(operation 1, called at .*test_faults\.py:\d+\)")

    def test_who_waits_for_a_rank_that_never_comes_is_told_which(self):
        with tempfile.TemporaryDirectory() as scratch:
            store = dist.FileStore(f"{scratch}/store", 2)
            with self.assertRaises(dist.DistStoreError) as caught:
                meet(store, 0, 2, "alone", timedelta(milliseconds=300), phalanx.Options())
        self.assertIn("rank 1 of 2 did not come", str(caught.exception))
        self.assertEqual((caught.exception.kind, caught.exception.ranks), ("timeout", [1]))

    def test_all_who_come_are_told_by_pytorch_who_does_not(self):
        for error in filter(None, on_ranks(4, waiting_in_vain)):
            self.assertIsInstance(error, phalanx.StoreFailure)
            self.assertRegex(str(error), "phalanx: joining: ranks 1, 3 of 4 did not come: ")
            self.assertEqual((error.kind, error.ranks, error.after), ("timeout", [1, 3], 1.0))

    def test_a_monitored_barrier_names_who_is_missing(self):
        told = on_ranks(3, absence)
        self.assertEqual(told[0][:2], ("timeout", [1, 2]), told[0][2])

    def test_abort_ends_what_another_thread_waits_in(self):
        on_ranks(2, abortion)

    def test_destroying_a_group_waits_for_nobody_and_another_can_be_made(self):
        on_ranks(2, renewal)

    def test_a_wait_of_a_work_is_bounded(self):
        on_ranks(2, impatience)

    @unittest.skipUnless(hasattr(dist, "set_timeout"), "older versions of PyTorch ask their own backends alone")
    def test_the_time_of_a_group_can_be_set_later(self):
        told = on_ranks(2, hurried)
        # Rank 1 waits for rank 0 as well, so that neither is to blame.
        self.assertEqual(told[0][:2], ("timeout", []), told[0][2])
        self.assertRegex(told[0][2], "Timed out waiting 1000ms: .* a deadlock")

    def test_errors_go_from_process_to_process_with_what_they_say(self):
        told = on_ranks(2, mistaken)
        for rank in range(2):
            self.assertIsInstance(told[rank], phalanx.BackendError)
            self.assertEqual((told[rank].kind, told[rank].ranks), ("desync", [0, 1]))
            self.assertRegex(str(told[rank]), r"^phalanx: .*count .*; called here at .*test_faults\.py:\d+$")


def lateness(rank: int, size: int):
    dist.barrier()
    if rank == 0:
        try:
            dist.barrier(timeout=timedelta(milliseconds=300))
        except dist.DistBackendError as error:
            return error.kind, error.ranks, str(error)
        raise AssertionError("nobody was missing")
    # Until rank 0 has given the group up.
    try:
        while True:
            dist.recv(torch.zeros(1), 0)
    except dist.DistBackendError as error:
        return error.kind, error.ranks, str(error)


def waiting_in_vain(rank: int, size: int) -> BaseException | None:
    store = dist.distributed_c10d._get_default_store()
    told = None
    if rank % 2 == 0:
        # Neither is to wait for the other in the time that they wait in vain.
        store.set(f"here/{rank}", "")
        store.wait(["here/0", "here/2"])
        try:
            dist.new_group(timeout=timedelta(seconds=1))
        except dist.DistStoreError as error:
            told = error
        else:
            raise AssertionError("a group of four formed of two")
        store.set(f"given up/{rank}", "")
    # The others are there until then.
    store.wait(["given up/0", "given up/2"])
    return told


def absence(rank: int, size: int):
    if rank == 0:
        try:
            phalanx.monitored_barrier(timeout=timedelta(milliseconds=300), wait_all_ranks=True)
        except dist.DistBackendError as error:
            return error.kind, error.ranks, str(error)
        raise AssertionError("nobody was missing")
    try:
        dist.recv(torch.zeros(1), 0)
    except dist.DistBackendError as error:
        return error.kind, error.ranks, str(error)
    raise AssertionError("rank 0 sent nothing")


def hurried(rank: int, size: int):
    for refused in (timedelta(0), timedelta(seconds=-1)):
        try:
            dist.set_timeout(refused)
        except ValueError as error:
            assert "must be above zero" in str(error), error
        else:
            raise AssertionError("no operation can take no time")
    dist.set_timeout(timedelta(seconds=1))
    try:
        if rank == 0:
            dist.recv(torch.zeros(1), 1)
        # A time of its own counts more.
        dist.barrier(timeout=timedelta(seconds=30))
    except dist.DistBackendError as error:
        return error.kind, error.ranks, str(error)
    raise AssertionError("rank 1 sent nothing")


def mistaken(rank: int, size: int) -> BaseException:
    try:
        dist.all_reduce(torch.ones(4 + rank))
    except dist.DistBackendError as error:
        return error
    raise AssertionError("a mistake without an error")


def abortion(rank: int, size: int) -> None:
    dist.barrier()
    if rank == 1:
        try:
            dist.recv(torch.zeros(1), 0)
        except dist.DistBackendError as error:
            assert error.kind == "aborted", error
            return
    group = dist.group.WORLD
    ended = []

    def wait() -> None:
        try:
            dist.recv(torch.zeros(1), 1)
        except dist.DistBackendError as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    group.abort()
    thread.join(30)
    assert not thread.is_alive() and ended and ended[0].kind == "aborted", ended


def renewal(rank: int, size: int) -> None:
    for each in range(3):
        group = dist.new_group([0, 1], timeout=timedelta(seconds=30))
        data = torch.ones(1)
        dist.all_reduce(data, group=group)
        assert data.item() == 2
        began = time.monotonic()
        dist.destroy_process_group(group)
        assert time.monotonic() - began < 10
        try:
            group.allreduce([data])
        except dist.DistBackendError as error:
            assert "has left" in str(error), error
        else:
            raise AssertionError("a group that was left still works")


def impatience(rank: int, size: int) -> None:
    data = torch.zeros(1)
    if rank == 0:
        work = dist.irecv(data, 1)
        try:
            work.wait(timedelta(milliseconds=50))
        except dist.DistBackendError as error:
            assert "Timed out waiting 50ms" in str(error), error
            assert (error.kind, error.scope, error.after) == ("timeout", "call", 0.05)
        else:
            raise AssertionError("nothing was sent so far")
        assert not work.is_completed()
        dist.barrier()
        work.wait()
        assert data.item() == 7
    else:
        dist.barrier()
        dist.send(torch.full((1,), 7.0), 0)


if __name__ == "__main__":
    unittest.main()
