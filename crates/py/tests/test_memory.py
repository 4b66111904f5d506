"""Memory of a group's making: tensors and arrays in it, used again, outliving their group, and what FSDP2 does with it."""

from __future__ import annotations

import gc
import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import phalanx
from phalanx.shared import Pool
from ranks import on_ranks

LARGE = 100_003


class Memory(unittest.TestCase):
    def test_operations_in_it_have_the_results_that_they_have_elsewhere(self):
        for size in (2, 3):
            on_ranks(size, compute)

    def test_it_is_as_asked_for_and_stays_when_the_group_is_gone(self):
        on_ranks(2, ask)

    def test_it_is_used_again_when_the_last_reference_is_gone(self):
        group = Counting()
        pool = Pool(group)
        first = pool.take(5000)
        address = addressed(first)
        view = memoryview(first)[1:]
        del first
        gc.collect()
        self.assertNotEqual(addressed(pool.take(5000)), address, "still seen through the view")
        self.assertEqual(len(view), 4999)
        view.release()
        del view
        gc.collect()
        self.assertEqual(group.made, [8192, 8192])
        rooms = [pool.take(8000), pool.take(1), pool.take(0)]
        self.assertEqual(group.made, [8192, 8192, 4096, 4096])
        self.assertEqual(len({addressed(room) for room in rooms}), 3)
        with self.assertRaisesRegex(ValueError, "byte_len is -1"):
            pool.take(-1)

    def test_what_is_kept_is_given_up_when_there_is_no_more(self):
        group = Counting(limit=3 * 4096)
        pool = Pool(group)
        pool.take(8192)
        gc.collect()
        room = pool.take(3 * 4096)
        self.assertEqual((len(room), group.made), (3 * 4096, [8192, 3 * 4096]))
        with self.assertRaises(phalanx.Error):
            pool.take(1)

    def test_fsdp_takes_its_memory_from_the_group_if_it_shall(self):
        plain, pooled = (on_ranks(2, shard, takes) for takes in (False, True))
        self.assertEqual([losses for losses, _ in plain], [losses for losses, _ in pooled])
        self.assertEqual([taken > 0 for _, taken in plain], [False, False])
        self.assertEqual([taken > 0 for _, taken in pooled], [True, True])


def compute(rank: int, size: int) -> None:
    total = size * (size + 1) / 2
    for count in (1, 1000, LARGE):
        data = phalanx.empty(count).fill_(rank + 1.0)
        dist.all_reduce(data)
        assert torch.equal(data, torch.full((count,), total))
        # Some ranks have it and some have not.
        data = (phalanx.empty(count) if rank == 0 else torch.empty(count)).fill_(rank + 1.0)
        dist.all_reduce(data, async_op=True).wait()
        assert torch.equal(data, torch.full((count,), total))
        data = phalanx.empty(count, dtype=torch.int64).copy_(torch.arange(count) + rank)
        dist.broadcast(data, src=size - 1)
        assert torch.equal(data, torch.arange(count) + size - 1)
        whole = phalanx.empty(size, count)
        dist.all_gather_into_tensor(whole, torch.full((count,), rank + 1.0))
        assert torch.equal(whole, (torch.arange(size) + 1.0)[:, None].expand(size, count))
        part = phalanx.empty(count)
        dist.reduce_scatter_tensor(part, whole)
        assert torch.equal(part, torch.full((count,), size * (rank + 1.0)))
    # A part of it, and a group that has not made it.
    data = phalanx.empty(2, LARGE).fill_(rank + 1.0)
    dist.all_reduce(data[1])
    dist.all_reduce(data[0], group=dist.new_group(list(range(size))))
    assert torch.equal(data, torch.full((2, LARGE), total))


def ask(rank: int, size: int) -> None:
    assert phalanx.empty(2, 3).shape == phalanx.empty((2, 3)).shape == phalanx.empty(torch.Size([2, 3])).shape == (2, 3)
    assert phalanx.empty().shape == () and phalanx.empty(0, 3).shape == (0, 3)
    assert phalanx.empty(4).dtype is torch.float32 and phalanx.empty(4, dtype=torch.bool).dtype is torch.bool
    group = dist.new_group([0, 1])
    data = phalanx.empty(LARGE, group=group).fill_(1.0)
    dist.all_reduce(data, group=group)
    dist.destroy_process_group(group)
    assert torch.equal(data.add_(1.0), torch.full((LARGE,), 3.0))
    world = dist.distributed_c10d._get_default_group()
    raises(
        "device is cuda, must be cpu", lambda: world.allocate_tensor(1, dtype=torch.int8, device=torch.device("cuda"))
    )
    raises("byte_len is -4", lambda: world.allocate_tensor(-1, dtype=torch.float32, device=torch.device("cpu")))
    raises("group is a str", lambda: phalanx.empty(1, group="world"))


def raises(words: str, call: Any) -> None:
    try:
        call()
    except (TypeError, ValueError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing was raised that says {words}")


def shard(rank: int, size: int, takes: bool) -> tuple[list[float], int]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    fully_shard(model)
    model.set_allocate_memory_from_process_group_for_comm(takes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    taken = 0
    allocate = phalanx.ProcessGroup.allocate_tensor

    def counted(*arguments: Any, **named: Any) -> torch.Tensor:
        nonlocal taken
        taken += 1
        return allocate(*arguments, **named)

    phalanx.ProcessGroup.allocate_tensor = counted
    losses = []
    for _ in range(5):
        loss = model(torch.randn(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, taken


def addressed(room: Any) -> int:
    return torch.frombuffer(room, dtype=torch.uint8).data_ptr() if len(room) else id(room)


class Counting:
    """A group that makes ordinary memory, and not more than so much of it at a time."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.made: list[int] = []
        self.limit = limit

    def buffer(self, byte_len: int) -> Any:
        if byte_len > self.limit:
            raise phalanx.Error("no memory")
        self.made.append(byte_len)
        return Room(self, byte_len)


class Room:
    def __init__(self, group: Counting, byte_len: int) -> None:
        self.group, self.byte_len = group, byte_len
        self.tensor = torch.empty(byte_len, dtype=torch.uint8)
        self.address = self.tensor.data_ptr()
        group.limit -= byte_len

    def __del__(self) -> None:
        self.group.limit += self.byte_len


if __name__ == "__main__":
    unittest.main()
