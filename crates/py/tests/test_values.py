"""Every collective gives what plain arithmetic in higher precision gives: all reductions, dtypes, lengths and roots."""

from __future__ import annotations

import unittest

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from ranks import on_ranks

LENGTHS = (0, 1, 1000, 1048577)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
)  # fmt: skip
FLOATS_8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
COMPLEX = (torch.complex64, torch.complex128)
REDUCED = (*FLOATS, *INTEGERS, torch.bool)
MOVED = (*REDUCED, *FLOATS_8, *COMPLEX)

ARITHMETIC = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG)
BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


class Values(unittest.TestCase):
    def test_two_ranks(self):
        on_ranks(2, sweep)

    def test_three_ranks(self):
        on_ranks(3, sweep)

    def test_four_ranks(self):
        on_ranks(4, sweep)

    def test_three_ranks_over_tcp(self):
        import phalanx

        on_ranks(3, sweep, (0, 1, 1000), options=phalanx.Options(transport="tcp"))


def sweep(rank: int, size: int, lengths=LENGTHS) -> None:
    for length in lengths:
        for dtype in REDUCED:
            given = [values(dtype, length, each) for each in range(size)]
            for op in ops_of(dtype):
                expected = reduced(given, op)
                check_all_reduce(rank, size, given, op, expected)
                check_reduce(rank, size, given, op, expected)
                check_reduce_scatter(rank, size, given, op, expected)
        for dtype in MOVED:
            given = [values(dtype, length, each) for each in range(size)]
            check_gathering(rank, size, given)
            check_scattering(rank, size, given)
            check_messages(rank, size, given)
        for dtype in COMPLEX:
            given = [values(dtype, length, each) for each in range(size)]
            for op in (ReduceOp.SUM, ReduceOp.AVG):
                check_all_reduce(rank, size, given, op, reduced(given, op))


def ops_of(dtype: torch.dtype) -> tuple:
    if dtype in FLOATS:
        return ARITHMETIC
    return (
        tuple(op for op in ARITHMETIC if op != ReduceOp.AVG) + BITWISE if dtype is torch.bool else ARITHMETIC + BITWISE
    )


def check_all_reduce(rank, size, given, op, expected):
    for asynchronous in (False, True):
        data = given[rank].clone()
        work = dist.all_reduce(data, op, async_op=asynchronous)
        if asynchronous:
            work.wait()
        agree(data, expected, given, op, "all_reduce")


def check_reduce(rank, size, given, op, expected):
    for root in range(size):
        data = given[rank].clone()
        dist.reduce(data, root, op)
        if rank == root:
            agree(data, expected, given, op, "reduce")
        else:
            same(data, given[rank], "reduce, not the root")


def check_reduce_scatter(rank, size, given, op, expected):
    part = given[0].numel() // size
    mine = slice(rank * part, (rank + 1) * part)
    whole = [each[: part * size] for each in given]
    output = torch.empty_like(whole[rank][mine])
    dist.reduce_scatter_tensor(output, whole[rank].clone(), op)
    agree(output, expected[mine], [each[mine] for each in whole], op, "reduce_scatter_tensor")
    # In place, as the second half of an all_reduce: the output is a part of the input.
    data = whole[rank].clone()
    dist.reduce_scatter_tensor(data[mine], data, op)
    agree(data[mine], expected[mine], [each[mine] for each in whole], op, "reduce_scatter_tensor in place")
    # A part more for each rank than for the one before it.
    counts = uneven(given[0].numel(), size)
    starts = [sum(counts[:each]) for each in range(size)]
    mine = slice(starts[rank], starts[rank] + counts[rank])
    output = torch.empty_like(given[rank][mine])
    parts = [given[rank][start : start + count].clone() for start, count in zip(starts, counts)]
    dist.reduce_scatter(output, parts, op)
    agree(output, expected[mine], [each[mine] for each in given], op, "reduce_scatter")


def check_gathering(rank, size, given):
    length = given[0].numel()
    everything = torch.cat([each.view(torch.uint8) for each in given]).view(given[0].dtype)
    output = torch.empty_like(everything)
    dist.all_gather_into_tensor(output, given[rank])
    same(output, everything, "all_gather_into_tensor")
    # In place: the input lies at its place in the output.
    output = torch.zeros_like(everything.view(torch.uint8)).view(everything.dtype)
    mine = output[rank * length : (rank + 1) * length]
    mine.view(torch.uint8).copy_(given[rank].view(torch.uint8))
    dist.all_gather_into_tensor(output, mine)
    same(output, everything, "all_gather_into_tensor in place")
    outputs = [torch.empty_like(each) for each in given]
    dist.all_gather(outputs, given[rank])
    for each in range(size):
        same(outputs[each], given[each], "all_gather")
    counts = uneven(length, size)
    outputs = [torch.empty_like(each[:count]) for each, count in zip(given, counts)]
    dist.all_gather(outputs, given[rank][: counts[rank]])
    for each in range(size):
        same(outputs[each], given[each][: counts[each]], "all_gather, uneven")
    for root in range(size):
        outputs = [torch.empty_like(each) for each in given] if rank == root else None
        dist.gather(given[rank], outputs, root)
        for each in range(size if rank == root else 0):
            same(outputs[each], given[each], "gather")


def check_scattering(rank, size, given):
    length = given[0].numel()
    for root in range(size):
        data = given[rank].clone()
        dist.broadcast(data, root)
        same(data, given[root], "broadcast")
        inputs = [each.clone() for each in given] if rank == root else None
        output = torch.empty_like(given[rank])
        dist.scatter(output, inputs, root)
        same(output, given[rank], "scatter")
    part = length // size
    output = torch.empty_like(given[rank][: part * size])
    dist.all_to_all_single(output, given[rank][: part * size].clone())
    for each in range(size):
        same(output[each * part :][:part], given[each][rank * part :][:part], "all_to_all_single")
    # Rank `i` gives `i + j` of a piece to rank `j`.
    piece = length // (size * size * 2)
    give = [(rank + each) * piece for each in range(size)]
    output = torch.empty_like(given[rank][: sum(give)])
    dist.all_to_all_single(output, given[rank][: sum(give)].clone(), give, give)
    outputs = [torch.empty_like(given[rank][:count]) for count in give]
    dist.all_to_all(outputs, list(given[rank][: sum(give)].split(give)))
    for each, taken in enumerate(output.split(give)):
        start = sum((each + before) * piece for before in range(rank))
        expected = given[each][start : start + give[each]]
        same(taken, expected, "all_to_all_single, uneven")
        same(outputs[each], expected, "all_to_all")


def check_messages(rank, size, given):
    after, before = (rank + 1) % size, (rank - 1) % size
    data = torch.empty_like(given[rank])
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, data, before), dist.P2POp(dist.isend, given[rank], after)]
    ):
        work.wait()
    same(data, given[before], "message")


def values(dtype: torch.dtype, length: int, rank: int) -> torch.Tensor:
    """What a rank gives: random, and of floats also what arithmetic is difficult about."""
    generator = torch.Generator().manual_seed(1000 * rank + length)
    if dtype in FLOATS_8:
        return torch.randn(length, generator=generator).to(dtype)
    if dtype in COMPLEX:
        return torch.randn(length, generator=generator, dtype=dtype)
    if dtype is torch.bool:
        return torch.rand(length, generator=generator) < 0.5
    if dtype in INTEGERS:
        # Of 64 bits, what does not overflow: there is nothing wider to compare with.
        most = 1 << (59 if dtype.itemsize == 8 else 40)
        least = 0 if not dtype.is_signed else -most
        return torch.randint(least, most, (length,), generator=generator).to(dtype)
    data = torch.randn(length, generator=generator, dtype=torch.float64).to(dtype)
    if length > 100:
        data[7 + rank] = float("nan")
        data[20 + rank] = float("inf")
        data[40:44] = float("inf") * (-1) ** rank
        data[50 + rank] = -0.0
    return data


def reduced(given: list[torch.Tensor], op) -> torch.Tensor:
    """The reduction in the widest type there is."""
    first = given[0].dtype
    if first is torch.bool:
        return folded(given, op)
    wide = torch.complex128 if first in COMPLEX else torch.float64 if first in FLOATS else torch.int64
    total = folded([each.to(wide) for each in given], ReduceOp.SUM if op == ReduceOp.AVG else op)
    if op != ReduceOp.AVG:
        return total
    return total / len(given) if first not in INTEGERS else torch.div(total, len(given), rounding_mode="trunc")


def folded(given: list[torch.Tensor], op) -> torch.Tensor:
    logical = given[0].dtype is torch.bool
    joins = {
        ReduceOp.SUM: torch.logical_or if logical else torch.add,
        ReduceOp.PRODUCT: torch.logical_and if logical else torch.mul,
        ReduceOp.MIN: torch.logical_and if logical else torch.minimum,
        ReduceOp.MAX: torch.logical_or if logical else torch.maximum,
        ReduceOp.BAND: torch.bitwise_and,
        ReduceOp.BOR: torch.bitwise_or,
        ReduceOp.BXOR: torch.bitwise_xor,
    }
    total = given[0]
    for each in given[1:]:
        total = joins[op](total, each)
    return total


def agree(got: torch.Tensor, expected: torch.Tensor, given: list[torch.Tensor], op, what: str) -> None:
    """That a result is the expected one: to the bit where that is defined, else within the roundings it can have."""
    dtype = got.dtype
    if dtype in INTEGERS:
        same(got, expected.to(dtype), f"{what} {op}")
        return
    if dtype is torch.bool or op in (ReduceOp.MIN, ReduceOp.MAX):
        assert torch.equal(nan_apart(got), nan_apart(expected.to(dtype))), f"{what} {op} {dtype} {got.numel()}"
        return
    eps = torch.finfo(dtype).eps
    size = len(given)
    spread = expected.abs() if op == ReduceOp.PRODUCT else sum(each.abs().double() for each in given)
    error = (got.to(expected.dtype) - expected).abs()
    bound = size * eps * spread + torch.finfo(dtype).smallest_normal
    fits = (error <= bound) | (got.to(expected.dtype) == expected) | (got.isnan() & expected.isnan())
    # What is too large for the type becomes infinite.
    fits |= got.isinf() & (expected.abs() > torch.finfo(dtype).max)
    assert bool(fits.all()), f"{what} {op} {dtype} {got.numel()}: {got[~fits][:3]} is not {expected[~fits][:3]}"


def nan_apart(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor.isnan(), torch.full_like(tensor, 12345), tensor) if tensor.is_floating_point() else tensor


def same(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """That two tensors have the same bytes."""
    equal = torch.equal(got.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))
    assert equal, f"{what} {got.dtype} {got.numel()}: {got.flatten()[:3]} is not {expected.flatten()[:3]}"


def uneven(length: int, size: int) -> list[int]:
    """Parts of which each is longer than the one before it, the first empty, which together are the whole."""
    step = length // (size * size)
    counts = [each * step for each in range(size)]
    return [*counts[:-1], length - sum(counts[:-1])]


if __name__ == "__main__":
    unittest.main()
