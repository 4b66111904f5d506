"""One of the Python ranks of `crates/phalanx/tests/mixed.rs`, which starts it: the same collectives over the same numbers.

Rank 1 plays through torch.distributed, rank 3 through the package's own API.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import phalanx

SIZE = 4
LENGTHS = (0, 1, 1000, 1048577)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FLOATS_8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
INTEGERS = (
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
)  # fmt: skip
# In the order of their numbers, which is the order in which all ranks play them.
DTYPES = (*FLOATS, *FLOATS_8, *INTEGERS, torch.bool)
ORDER, BITS = ("sum", "product", "min", "max"), ("band", "bor", "bxor")


class Torch:
    """The collectives of torch.distributed, whose default group is the world's."""

    def __init__(self, world: phalanx.World) -> None:
        phalanx.init_process_group(world)
        self.barrier = dist.barrier

    def all_reduce(self, data, op):
        dist.all_reduce(data, getattr(ReduceOp, op.upper()))

    def reduce_scatter(self, output, data, op):
        dist.reduce_scatter_tensor(output, data, getattr(ReduceOp, op.upper()))

    def broadcast(self, data, root):
        dist.broadcast(data, root)

    def all_gather(self, output, data):
        dist.all_gather_into_tensor(output, data)

    def all_to_all(self, output, data):
        dist.all_to_all_single(output, data)


def play(group, rank: int, given: list[torch.Tensor]) -> None:
    length, part = given[0].numel(), given[0].numel() // SIZE
    ours = slice(rank * part, (rank + 1) * part)
    for op in reductions(given[0].dtype):
        expected = reduced(given, op)
        data = given[rank].clone()
        group.all_reduce(data, op)
        same(data, expected, "all_reduce", op)
        output = torch.empty_like(given[rank][:part])
        group.reduce_scatter(output, given[rank][: part * SIZE].clone(), op)
        same(output, expected[ours], "reduce_scatter", op)
    for root in range(SIZE):
        data = given[rank].clone()
        group.broadcast(data, root)
        same(data, given[root], "broadcast", root)
    everything = torch.cat([each.view(torch.uint8) for each in given]).view(given[0].dtype)
    output = torch.empty_like(everything)
    group.all_gather(output, given[rank])
    same(output, everything, "all_gather", length)
    output = torch.empty_like(given[rank][: part * SIZE])
    group.all_to_all(output, given[rank][: part * SIZE].clone())
    for each in range(SIZE):
        same(output[each * part :][:part], given[each][ours], "all_to_all", each)


def values(rank: int, length: int, dtype: torch.dtype, wild: bool) -> torch.Tensor:
    at = torch.arange(length)
    numbers = (at * 5 + rank * 3) % 4
    if dtype is torch.bool:
        return numbers // 2 == 1
    if dtype in FLOATS_8:
        return numbers.to(torch.uint8).view(dtype)
    if wild:
        numbers = numbers.double()
        numbers[(at % 7 == 3) & (at % SIZE == rank)] = float("nan")
        if rank < 2:
            numbers[at % 7 == 5] = float("inf")
            numbers[(at % 7 == 5) & (at % 2 == 1) & ((rank + at) % 2 == 1)] = float("-inf")
    return numbers.to(dtype)


def reductions(dtype: torch.dtype) -> tuple[str, ...]:
    if dtype in FLOATS_8:
        return ()
    if dtype is torch.bool:
        return ORDER + BITS
    return ORDER + ("avg",) if dtype in FLOATS else ORDER + ("avg",) + BITS


def reduced(given: list[torch.Tensor], op: str) -> torch.Tensor:
    dtype = given[0].dtype
    wide = torch.float64 if dtype in FLOATS else torch.int64
    numbers = torch.stack([each.to(wide) for each in given])
    if op == "sum":
        return numbers.sum(0).to(dtype)
    if op == "product":
        return numbers.prod(0).to(dtype)
    if op in ("min", "max"):
        return getattr(torch, f"a{op}")(numbers, 0).to(dtype)
    if op == "avg":
        return torch.div(numbers.sum(0), SIZE, rounding_mode=None if dtype in FLOATS else "trunc").to(dtype)
    join = {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}[op]
    result = numbers[0]
    for each in numbers[1:]:
        result = join(result, each)
    return result.to(dtype)


def same(data: torch.Tensor, expected: torch.Tensor, *call) -> None:
    equal = data.view(torch.uint8).equal(expected.contiguous().view(torch.uint8)) if data.dtype in FLOATS_8 else None
    if equal is None:
        equal = (
            torch.allclose(data.double(), expected.double(), 0, 0, True)
            if data.dtype in FLOATS
            else data.equal(expected)
        )
    assert equal, f"{call} of {data.dtype}: {data}, must be {expected}"


def main() -> None:
    torch.set_num_threads(1)
    with phalanx.init(os.environ["PHALANX_TEST_MIXED_URL"]) as world:
        group = Torch(world) if world.rank == 1 else world.group()
        for length in LENGTHS:
            for dtype in DTYPES:
                for wild in (False, True) if dtype in FLOATS else (False,):
                    play(group, world.rank, [values(rank, length, dtype, wild) for rank in range(SIZE)])
        group.barrier()


if __name__ == "__main__":
    main()
