"""Operations under way as works and futures: what they end with, who may wait for them, and what they tell meanwhile."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
import unittest
import weakref
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

    def test_a_future_has_ended_once_its_work_was_waited_for(self):
        on_ranks(2, waited_for)

    def test_who_hears_of_the_end_first_ends_the_future(self):
        part = Ending()
        work = Work([part], ["output"])
        told = work.get_future().then(lambda ended: ended.value())
        # The part has ended, and nobody has been told of it yet.
        self.assertTrue(work.wait())
        self.assertTrue(told.done())
        part.end()
        self.assertEqual(told.wait(), ["output"])

    def test_a_future_of_a_failure_has_ended_once_its_work_was_waited_for(self):
        part = Ending(failing=True)
        work = Work([part], [])
        future = work.get_future()
        with self.assertRaises(phalanx.BackendError):
            work.wait()
        self.assertTrue(future.done())
        part.end()

    def test_a_work_whose_callbacks_are_being_called_is_not_completed_yet(self):
        called, may_end = threading.Event(), threading.Event()
        part = Ending()
        work = Work([part], [])

        def slow(_ended: torch.futures.Future) -> bool:
            called.set()
            may_end.wait()
            return True

        told = work.get_future().then(slow)
        teller = threading.Thread(target=part.end)
        teller.start()
        called.wait()
        self.assertFalse(work.is_completed())
        # They are waited for, but no longer than for the end itself.
        self.assertTrue(work.wait(timedelta(milliseconds=20)))
        self.assertFalse(told.done())
        may_end.set()
        self.assertTrue(work.wait())
        self.assertTrue(told.done())
        teller.join()
        self.assertTrue(work.is_completed())

    def test_a_poll_and_a_wait_with_a_limit_leave_callbacks_to_who_tells_of_ends(self):
        part, callers = Ending(), []
        work = Work([part], ["output"])
        work.get_future().then(lambda _ended: callers.append(threading.get_ident()))
        # The part has ended, and nobody has been told of it yet.
        self.assertFalse(work.is_completed() or work.is_success())
        self.assertIsNone(work.exception())
        self.assertTrue(work.wait(timedelta(milliseconds=20)))
        self.assertEqual(callers, [])
        teller = threading.Thread(target=part.end)
        teller.start()
        teller.join()
        self.assertTrue(work.is_completed() and work.is_success())
        self.assertEqual(callers, [teller.ident])

    def test_who_waits_with_a_limit_calls_no_callback_of_another_thread(self):
        on_ranks(2, limited)

    def test_a_work_whose_end_nobody_can_tell_is_completed_all_the_same(self):
        class Untold(Ending):
            def then(self, _callback) -> None:
                raise phalanx.Error("no thread is left")

        work = Work([Ending(), Untold()], ["output"])
        for _ in range(2):
            with self.assertRaisesRegex(phalanx.Error, "no thread is left"):
                work.get_future()
        self.assertTrue(work.is_completed() and work.wait(timedelta(milliseconds=20)))

    def test_memory_is_kept_until_the_end_whatever_becomes_of_the_tensor(self):
        on_ranks(2, given_up)

    def test_calls_that_are_coalesced_are_one_work(self):
        on_ranks(2, coalesced)

    def test_outputs_are_brought_back_once_whoever_waits(self):
        brought = []
        works = [Work([], [each], lambda each=each: brought.append(each)) for each in range(2)]
        whole = Work.of(works)
        works[0].wait()
        self.assertEqual(whole.result(), [0, 1])
        works[1].wait()
        self.assertEqual(brought, [0, 1])

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
    """A part that has ended for those who wait, and tells the others when it is told to."""

    def __init__(self, failing: bool = False) -> None:
        self.error = phalanx.Error("failed") if failing else None
        if self.error is not None:
            self.error.kind = "peer"

    def is_done(self) -> bool:
        return True

    def wait(self, _millis: int | None) -> bool:
        if self.error is not None:
            raise self.error
        return True

    def then(self, callback) -> None:
        self.callback = callback

    def end(self) -> None:
        self.callback(self.error)


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


def waited_for(rank: int, size: int) -> None:
    data, other = torch.ones(4), torch.ones(4)
    for turn in range(300):
        told: list[int] = []
        slow = None
        if turn % 3 == 0:
            slow = dist.all_reduce(other, async_op=True).get_future().then(lambda _ended: time.sleep(0.003))
        work = dist.all_reduce(data, async_op=True)
        future = work.get_future()
        future.then(lambda _ended, told=told, turn=turn: told.append(turn))
        if turn % 2 == 0:
            work.wait()
        while not work.is_completed():
            time.sleep(0)
        assert future.done() and told == [turn], (turn, future.done(), told)
        if slow is not None:
            slow.wait()
        data.fill_(1.0)
        other.fill_(1.0)
    # A callback may ask of its own work.
    work = dist.all_reduce(data, async_op=True)
    asked = work.get_future().then(lambda _ended: work.wait() and work.is_completed() and work.is_success())
    work.wait()
    assert asked.wait()


def limited(rank: int, size: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    for turn in range(20):
        if rank == 1:
            store.wait([f"registered {turn}"])
            dist.all_reduce(torch.ones(4))
            continue
        work, callers = dist.all_reduce(torch.ones(4), async_op=True), []
        waiter = threading.Thread(target=work.wait, args=(timedelta(seconds=60),))
        waiter.start()
        # As long as this thread runs, one that is there is in the native half.
        while sys._current_frames()[waiter.ident].f_code is not Work.wait.__code__:
            time.sleep(0)
        work.get_future().then(lambda _ended, callers=callers: callers.append(threading.get_ident()))
        store.set(f"registered {turn}", "")
        waiter.join()
        assert callers and waiter.ident not in callers
        assert work.is_completed()


def given_up(rank: int, size: int) -> None:
    store, count = dist.distributed_c10d._get_default_store(), 1000
    if rank:
        store.wait(["given up"])
        dist.all_reduce(torch.ones(count))
        return
    # Those of ctypes itself cannot be told when they go.
    room = type("Room", (ctypes.c_char * (4 * count),), {})()
    gone: list[bool] = []
    weakref.finalize(room, gone.append, True)
    data = torch.frombuffer(room, dtype=torch.float32).fill_(1.0)
    del room
    work = dist.all_reduce(data, async_op=True)
    data.data = torch.empty(0)
    gc.collect()
    assert not gone
    store.set("given up", "")
    work.wait()
    del work
    gc.collect()
    assert gone


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
        shares, sums = [torch.ones(2 * size) for _ in range(2)], [torch.zeros(2) for _ in range(2)]
        for count in (1, 2):
            with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as gathering:
                for _ in range(count):
                    dist.all_gather_into_tensor(rows, torch.full((2,), float(rank)))
            with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as scattering:
                for each in range(count):
                    dist.reduce_scatter_tensor(sums[each], shares[each])
            # Each once, however it was begun.
            assert [len(manager.works[0].result()) for manager in (gathering, scattering)] == [count] * 2
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
