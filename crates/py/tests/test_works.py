"""Operations under way as works and futures: what they end with, who may wait for them, and what they tell meanwhile."""

from __future__ import annotations

import threading
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

import phalanx
from phalanx.works import Work
from ranks import on_ranks


class Works(unittest.TestCase):
    def test_a_future_ends_with_the_tensors(self):
        on_ranks(2, futures)

    def test_a_future_of_a_mistake_ends_with_its_error(self):
        on_ranks(2, failed_future)

    def test_many_works_end_in_any_order_of_waiting(self):
        on_ranks(2, many)

    def test_a_message_from_anybody_says_from_whom(self):
        on_ranks(3, anybody)

    def test_outputs_are_there_once_a_work_is_completed(self):
        on_ranks(2, polled)

    def test_a_callback_may_wait_for_another_future(self):
        on_ranks(2, nested)

    def test_a_wait_for_several_parts_has_one_bound(self):
        bounds = []

        class Part:
            def wait(self, millis: int) -> bool:
                bounds.append(millis)
                return not threading.Event().wait(0.02)

        Work([Part(), Part(), Part()], []).wait(timedelta(milliseconds=200))
        self.assertEqual(bounds[0], 200)
        self.assertLessEqual(bounds[2], 160)

    def test_calls_that_are_coalesced_are_one_work(self):
        on_ranks(2, coalesced)

    def test_parts_that_end_at_once_are_all_told(self):
        """A part that fails on one thread while another one ends on the next."""
        for _ in range(50):
            parts = [Ending(failing=at == 0) for at in range(4)]
            future = Work(parts, []).get_future()
            threads = [threading.Thread(target=part.end) for part in parts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            with self.assertRaisesRegex(RuntimeError, "failed"):
                future.wait()

    def test_a_result_that_cannot_be_brought_back_is_told_each_time(self):
        def finish() -> None:
            raise ValueError("the output has become another")

        work = Work([], [], finish)
        for _ in range(2):
            with self.assertRaisesRegex(ValueError, "another"):
                work.wait()
        self.assertFalse(work.is_success())

    def test_operations_are_seen_by_the_profiler(self):
        on_ranks(2, profiled)


class Ending:
    """A part that ends when it is told to."""

    def __init__(self, failing: bool) -> None:
        self.failing = failing

    def then(self, callback) -> None:
        self.callback = callback

    def end(self) -> None:
        error = phalanx.Error("failed") if self.failing else None
        if error is not None:
            error.kind = "peer"
        self.callback(error)


def futures(rank: int, size: int) -> None:
    data = torch.full((100,), rank + 1.0)
    future = dist.all_reduce(data, async_op=True).get_future()
    doubled = future.then(lambda ended: ended.value()[0] * 2)
    assert (doubled.wait() == 6).all()
    outputs = [torch.zeros(2) for _ in range(size)]
    work = dist.all_gather(outputs, torch.full((2,), float(rank)), async_op=True)
    assert work.get_future() is work.get_future()
    # As from Gloo: the tensors, not a list of lists of them.
    assert all(told is output for told, output in zip(work.get_future().wait(), outputs))
    assert work.wait() and work.is_completed() and work.is_success()
    assert [output.tolist() for output in outputs] == [[0, 0], [1, 1]]


def coalesced(rank: int, size: int) -> None:
    here = torch.device("cpu")
    for device in (None, here):
        sums, rows = [torch.ones(3), torch.ones(4)], torch.zeros(2 * size)
        with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as manager:
            for each in sums:
                dist.all_reduce(each)
        manager.wait()
        assert all((each == size).all() for each in sums)
        with dist.distributed_c10d._coalescing_manager(device=device):
            dist.all_gather_into_tensor(rows, torch.full((2,), float(rank)))
        assert rows.tolist() == [0, 0, 1, 1]
    # What PyTorch does not gather up itself: the group does.
    taken, told = torch.zeros(3), torch.full((2,), float(rank))
    with dist.distributed_c10d._coalescing_manager(device=here, async_ops=True) as manager:
        dist.isend(torch.full((3,), rank + 5.0), 1 - rank)
        dist.irecv(taken, 1 - rank)
        dist.broadcast(told, 1, async_op=True)
    manager.wait()
    assert (taken.tolist(), told.tolist()) == ([6.0 - rank] * 3, [1.0] * 2)


def failed_future(rank: int, size: int) -> None:
    work = dist.all_reduce(torch.ones(4 + rank), async_op=True)
    try:
        work.get_future().wait()
    except Exception as error:
        assert "count" in str(error), error
    else:
        raise AssertionError("a mistake without an error")
    assert isinstance(work.exception(), dist.DistBackendError) and not work.is_success()


def polled(rank: int, size: int) -> None:
    outputs = [torch.zeros(3) for _ in range(size)]
    column = torch.zeros(3, 2)[:, 1]
    work = dist.all_gather(outputs, torch.full((3,), rank + 1.0), async_op=True)
    message = dist.irecv(column, 0) if rank else dist.isend(torch.arange(3.0), 1)
    while not (work.is_completed() and message.is_completed()):
        time.sleep(0)
    assert [output.tolist() for output in outputs] == [[1] * 3, [2] * 3]
    assert column.tolist() == ([0, 1, 2] if rank else [0] * 3)


def nested(rank: int, size: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    data, more = torch.ones(4), torch.ones(4)

    def again(ended: torch.futures.Future) -> float:
        dist.all_reduce(more, async_op=True).get_future().wait()
        return ended.value()[0].sum().item() + more.sum().item()

    if rank == 1:
        # By then rank 0 has said what to do at the end, which thus comes on the thread that tells of ends.
        store.wait(["told"])
    total = dist.all_reduce(data, async_op=True).get_future().then(again)
    if rank == 0:
        store.set("told", "")
    assert total.wait() == 16


def many(rank: int, size: int) -> None:
    data = [torch.full((1 + each,), rank + 1.0) for each in range(200)]
    works = [dist.all_reduce(each, async_op=True) for each in data]
    told = [works[each].get_future() for each in range(0, 200, 3)]
    for work in reversed(works):
        work.wait()
    for future in told:
        future.wait()
    assert all((each == 3).all() for each in data)


def anybody(rank: int, size: int) -> None:
    if rank:
        dist.send(torch.full((3,), float(rank)), 0, tag=5)
        return
    heard = set()
    for _ in range(2):
        data = torch.zeros(3)
        work = dist.irecv(data, tag=5)
        work.wait()
        assert data.tolist() == [work.source_rank()] * 3
        heard.add(work.source_rank())
    assert heard == {1, 2}


def profiled(rank: int, size: int) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(4))
        dist.all_gather([torch.ones(2)] * size, torch.ones(2), async_op=True).wait()
    seen = {event.name for event in profile.events()}
    assert {"phalanx:all_reduce", "phalanx:all_gather"} <= seen, seen


if __name__ == "__main__":
    unittest.main()
