"""Worlds and groups of `phalanx.init`: NumPy arrays, plain buffers and tensors, and PyTorch's process groups over them."""

from __future__ import annotations

import array
import math
import os
import socket
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from unittest.mock import Mock

import numpy
import torch
import torch.distributed as dist

import phalanx
from phalanx import dlpack
from phalanx.tensors import DTYPES
from phalanx.times import span


class Worlds(unittest.TestCase):
    def test_arrays_are_reduced_gathered_and_sent(self):
        self.on_three_ranks(live)

    def test_tensors_lend_their_memory_where_there_is_no_buffer_protocol(self):
        for dtype, number in DTYPES.items():
            tensor = torch.zeros(2, 3, dtype=torch.uint8).to(dtype)
            with self.subTest(dtype):
                lent = dlpack.lent("all_reduce", tensor[1:])
                self.assertEqual(lent, (number, 3, (tensor[1:].data_ptr(), 3 * tensor.itemsize)))
        self.assertEqual(dlpack.lent("all_reduce", torch.zeros(0, 3))[1:], (0, (0, 0)))
        self.assertEqual(dlpack.lent("all_reduce", torch.tensor(1.0))[1], 1)
        with self.assertRaisesRegex(ValueError, "array has gaps"):
            dlpack.lent("broadcast", torch.zeros(4, 4)[:, ::2])

    def test_a_world_of_pytorch_has_groups_of_its_ranks_and_is_no_other_size(self):
        self.on_three_ranks(torch_live)

    def test_a_group_of_a_world_looks_for_what_its_options_say(self):
        self.in_files(2, checked)

    def test_the_wait_for_a_rank_that_does_not_come_is_bounded(self):
        self.in_files(2, lonely, *get_context("fork").Pipe(duplex=False))

    def test_threads_form_groups_at_the_same_time(self):
        self.in_files(2, crosswise)

    def test_a_world_that_is_dropped_holds_up_no_thread(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.on_ranks(2, f"tcp://127.0.0.1:{port}", dropped, *get_context("fork").Pipe(duplex=False))

    def test_what_goes_wrong_in_a_world_is_not_held_back(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.on_ranks(2, f"tcp://127.0.0.1:{port}", failing, *get_context("fork").Pipe(duplex=False))

    def on_three_ranks(self, target: Callable[[str], None]) -> None:
        self.in_files(3, target)

    def in_files(self, size: int, target: Callable[..., None], *arguments: object) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            self.on_ranks(size, f"file://{os.path.join(scratch, 'store')}", target, *arguments)

    def on_ranks(self, size: int, url: str, target: Callable[..., None], *arguments: object) -> None:
        urls = [f"{url}?rank={rank}&world_size={size}" for rank in range(size)]
        ranks = [get_context("fork").Process(target=target, args=(url, *arguments)) for url in urls]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(60)
            rank.kill()
        self.assertEqual([rank.exitcode for rank in ranks], [0] * size)


class Times(unittest.TestCase):
    def test_seconds_and_timedeltas_say_the_same(self):
        native = Mock()
        world, group = phalanx.World(native), phalanx.Group(native)
        for timeout in (2, 2.0, numpy.float32(2), timedelta(seconds=2)):
            with self.subTest(timeout):
                native.reset_mock()
                world.group(timeout=timeout)
                native.group.assert_called_with(None, 2.0)
                group.monitored_barrier(timeout)
                native.monitored_barrier.assert_called_with(False, 2000)
                world.leave(timeout)
                native.leave.assert_called_with(2.0)
                self.assertEqual(span("call", timeout), timedelta(seconds=2))

    def test_what_is_no_time_is_refused_by_the_call_that_it_was_given_to(self):
        native = Mock()
        world, group = phalanx.World(native), phalanx.Group(native)
        options = phalanx.Options(world=world)
        calls = {
            "init": lambda timeout: phalanx.init("tcp://127.0.0.1:1?rank=1&world_size=2", timeout),
            "group": lambda timeout: world.group(timeout=timeout),
            "leave": world.leave,
            "monitored_barrier": group.monitored_barrier,
            "init_process_group": lambda timeout: phalanx.init_process_group(world, timeout),
            "joining": lambda timeout: phalanx.joining.next_of(options, world.rank, world.size, timeout),
        }
        for name, call in calls.items():
            least = "at least zero" if name == "leave" else "above zero"
            for timeout in (-1, math.nan, -math.inf, timedelta(seconds=-1)):
                with self.subTest(name, timeout=timeout), self.assertRaises(ValueError) as caught:
                    call(timeout)
                self.assertEqual(str(caught.exception), f"phalanx: {name}: timeout is {timeout}, must be {least}")
            with self.subTest(name), self.assertRaises(TypeError) as caught:
                call("60")
            told = f"phalanx: {name}: timeout is a str, must be a number of seconds or a timedelta"
            self.assertEqual(str(caught.exception), told)
        # Only who leaves may wait for nobody.
        for name in calls.keys() - {"leave"}:
            with self.subTest(name), self.assertRaisesRegex(ValueError, f"{name}: timeout is 0, must be above zero"):
                calls[name](0)
        self.assertEqual(native.method_calls, [])
        world.leave(0)
        native.leave.assert_called_once_with(0.0)

    def test_the_shortest_time_is_some_and_the_longest_a_century(self):
        self.assertEqual(span("call", 1e-9), timedelta(milliseconds=1))
        for timeout in (math.inf, 1e300, 10**400, timedelta.max):
            self.assertEqual(span("call", timeout), timedelta(days=36500))


def torch_live(url: str) -> None:
    with phalanx.init(url, timeout=timedelta(seconds=30)) as world:
        phalanx.init_process_group(world, timeout=30)
        phalanx.monitored_barrier(timeout=30)
        for timeout, words in ((-1, "is -1, must be above zero"), ("60", "is a str, must be a number of seconds")):
            try:
                phalanx.monitored_barrier(timeout=timeout)
            except (ValueError, TypeError) as error:
                assert str(error).startswith(f"phalanx: monitored_barrier: timeout {words}"), error
            else:
                raise AssertionError(f"nothing was refused: {timeout}")
        data = torch.ones(3)
        dist.all_reduce(data)
        assert data.tolist() == [3, 3, 3]
        pair = dist.new_group([0, 2], timeout=timedelta(seconds=30))
        if world.rank != 1:
            dist.all_reduce(data, group=pair)
            assert data.tolist() == [6, 6, 6]
        try:
            phalanx.joining.next_of(phalanx.Options(world=world), 0, 2, timedelta(seconds=30))
        except ValueError as error:
            assert f"rank {world.rank} of 3, must be rank 0 of 2" in str(error), error
        else:
            raise AssertionError("nothing was refused")
        dist.destroy_process_group()


def checked(url: str) -> None:
    with phalanx.init(url, timeout=30.0) as world:
        dist.init_process_group(
            "phalanx",
            store=phalanx.WorldStore(world),
            rank=world.rank,
            world_size=world.size,
            pg_options=phalanx.Options(world=world, check_nan=True),
        )
        try:
            dist.all_reduce(torch.tensor([1.0, math.nan]))
        except phalanx.BackendError as error:
            assert f"NaN at element 1 on rank {world.rank}" in str(error), error
        else:
            raise AssertionError("a NaN was sent")
        dist.destroy_process_group()


def lonely(url: str, hearing: Connection, telling: Connection) -> None:
    with phalanx.init(url, timeout=30.0) as world:
        if world.rank == 1:
            assert hearing.poll(40)
            return
        began = time.monotonic()
        try:
            world.group(timeout=1.0)
        except phalanx.Error as error:
            assert error.ranks == [1], error
            assert time.monotonic() - began < 20.0
        else:
            raise AssertionError("a group of two formed of one")
        telling.send(None)


def failing(url: str, hearing: Connection, telling: Connection) -> None:
    try:
        with phalanx.init(url, timeout=30.0) as world:
            if world.rank == 1:
                assert hearing.poll(40)
                return
            began = time.monotonic()
            raise ValueError("a bad batch")
    except ValueError as error:
        # The store lives here, and yet nobody is waited for.
        telling.send(None)
        assert (str(error), error.__context__) == ("a bad batch", None)
        assert time.monotonic() - began < 15.0
    except phalanx.Error:
        # The other one leaves as agreed, where there may be no store any more.
        assert world.rank == 1


def crosswise(url: str) -> None:
    with phalanx.init(url, timeout=30.0) as world:
        sums: dict[str, list[float]] = {}

        def form(name: str) -> None:
            data = numpy.ones(2)
            world.group(name, timeout=20.0).all_reduce(data)
            sums[name] = data.tolist()

        names = ["a", "b"] if world.rank == 0 else ["b", "a"]
        threads = [threading.Thread(target=form, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sums == {"a": [2, 2], "b": [2, 2]}, sums


def dropped(url: str, hearing: Connection, telling: Connection) -> None:
    world = phalanx.init(url, timeout=30.0)
    if world.rank == 1:
        assert hearing.poll(40)
        return
    gaps, is_dropped = [], threading.Event()

    def tick() -> None:
        before = time.monotonic()
        while not is_dropped.wait(0.01):
            gaps.append(time.monotonic() - before)
            before += gaps[-1]

    ticking = threading.Thread(target=tick)
    ticking.start()
    # The store lives here: the other rank is waited for, which does not leave until this has ended.
    del world
    telling.send(None)
    is_dropped.set()
    ticking.join()
    assert max(gaps, default=0.0) < 2.5, gaps


def live(url: str) -> None:
    with phalanx.init(url, timeout=30.0) as world:
        group = world.group(timeout=30.0)
        rank, size = group.rank, group.size
        data = numpy.arange(6, dtype=numpy.float32).reshape(2, 3) + rank
        group.all_reduce(data)
        assert (data == size * numpy.arange(6).reshape(2, 3) + 3).all()
        numbers = array.array("q", [rank, -rank])
        group.all_reduce(numbers, "max")
        assert list(numbers) == [2, 0]
        everything = numpy.zeros(2 * size, dtype=numpy.int16)
        group.all_gather(everything, numpy.array([rank, 7], dtype=numpy.int16))
        assert everything.tolist() == [0, 7, 1, 7, 2, 7]
        part = numpy.zeros(1, dtype=numpy.complex128)
        group.reduce_scatter(part, numpy.full(size, 1j * rank))
        assert part[0] == 3j
        taken = numpy.zeros(size, dtype=numpy.uint8)
        group.all_to_all(taken, numpy.arange(size, dtype=numpy.uint8) + 10 * rank)
        assert taken.tolist() == [rank, 10 + rank, 20 + rank]
        word = bytearray(b"hello" if rank == 1 else b".....")
        group.broadcast(word, 1)
        assert word == b"hello"
        if rank == 0:
            heard = numpy.zeros(2)
            assert {group.recv(heard) for _ in range(size - 1)} == {1, 2}
        else:
            group.send(numpy.ones(2), 0)
        for wrong, words in [
            (lambda: group.all_reduce(b"constant"), "read-only"),
            (lambda: group.all_reduce(numpy.zeros((4, 4))[:, ::2]), "gaps"),
            (lambda: group.all_reduce(numpy.zeros(2), "median"), "op is 'median'"),
            (lambda: group.all_gather(numpy.zeros(5), numpy.zeros(2)), "must be 6"),
            (lambda: group.broadcast(numpy.zeros(2), 9), "root is 9"),
            (lambda: group.broadcast(numpy.zeros(2), -1), "broadcast: root is -1, must be at least 0"),
            (lambda: group.send(numpy.zeros(2), -1), "send: to is -1, must be at least 0"),
            (lambda: group.recv(numpy.zeros(2), tag=-1), "recv: tag is -1, must be 0 to"),
        ]:
            try:
                wrong()
            except (ValueError, TypeError, phalanx.Error) as error:
                assert words in str(error), error
            else:
                raise AssertionError(f"nothing was refused: {words}")
        group.monitored_barrier(timeout=timedelta(seconds=10))
        group.leave()


if __name__ == "__main__":
    unittest.main()
