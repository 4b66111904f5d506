"""Tensors that are not plain memory, works and futures, and what is refused."""

from __future__ import annotations

import re
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import phalanx
from ranks import on_ranks


class Tensors(unittest.TestCase):
    def test_tensors_with_gaps_are_worked_on_through_copies(self):
        on_ranks(2, strided)

    def test_inference_tensors_and_parameters_may_be_written(self):
        on_ranks(2, inference)

    def test_sparse_tensors_are_added_up(self):
        on_ranks(3, sparse_sum)

    def test_sparse_tensors_of_different_kinds_are_refused_on_all_ranks(self):
        on_ranks(2, sparse_quarrels)

    def test_results_of_functional_collectives_are_tensors_like_others(self):
        on_ranks(2, functional)

    def test_a_conjugate_view_is_sent_as_what_it_shows(self):
        on_ranks(2, conjugate)

    def test_tensors_that_lie_together_are_gathered_where_they_are(self):
        on_ranks(2, together)

    def test_an_output_that_is_also_the_input_is_right(self):
        on_ranks(2, overlapping)

    def test_factors_of_a_rank_are_multiplied_in(self):
        on_ranks(2, scaled)

    def test_a_group_is_called_as_pytorchs_own_may_be(self):
        on_ranks(2, short_spelling)

    @unittest.skipUnless(hasattr(dist, "gather_single"), "older versions of PyTorch do not have it")
    def test_all_can_be_gathered_into_one_tensor(self):
        on_ranks(2, gathered_at_one)

    def test_the_device_that_a_program_prefers_is_not_ours(self):
        on_ranks(2, elsewhere)


class Refusals(unittest.TestCase):
    def test_what_cannot_be_done_is_said_and_the_group_goes_on(self):
        on_ranks(2, refusals)

    def test_a_mistake_in_a_later_tensor_is_seen_before_the_first_is_sent(self):
        on_ranks(2, later_mistakes)


def strided(rank: int, size: int) -> None:
    whole = torch.zeros(4, 6)
    column = whole[:, 1::2]
    column.fill_(rank + 1)
    dist.all_reduce(column)
    assert (column == 3).all() and (whole[:, ::2] == 0).all()
    work = dist.broadcast(whole.t(), 1, async_op=True)
    work.wait()
    assert (whole[:, 1::2] == 3).all()
    output = torch.zeros(size, 6, 4).transpose(1, 2)
    work = dist.all_gather_into_tensor(output, torch.full((4, 6), float(rank)), async_op=True)
    assert work.get_future().wait()[0] is output
    # Rows of the output are ranks, whatever the strides are.
    assert all((output[each] == each).all() for each in range(size))
    taken = torch.zeros(4, 6)[:, ::2]
    if rank == 0:
        dist.send(torch.arange(24.0).view(4, 6)[:, ::2], 1)
    else:
        dist.recv(taken, 0)
        assert torch.equal(taken, torch.arange(24.0).view(4, 6)[:, ::2])


def inference(rank: int, size: int) -> None:
    with torch.inference_mode():
        data = torch.full((5,), float(rank))
        outputs = [torch.zeros(5) for _ in range(size)]
    dist.all_reduce(data)
    assert (data == 1).all()
    dist.all_gather(outputs, data)
    assert all((output == 1).all() for output in outputs)
    parameter = torch.nn.Parameter(torch.full((3, 3), float(rank)).t())
    dist.broadcast(parameter, 1)
    assert (parameter == 1).all() and parameter.grad_fn is None


def sparse_sum(rank: int, size: int) -> None:
    def entry(each: int) -> torch.Tensor:
        # Ranks share row 0, and have another one of their own; the last has nothing else.
        rows = [0] if each == size - 1 else [0, each + 1]
        values = torch.arange(2.0 * len(rows)).view(len(rows), 2) + each
        return torch.sparse_coo_tensor(torch.tensor([rows]), values, (size + 1, 2))

    data = entry(rank)
    dist.all_reduce(data)
    assert data.is_sparse and torch.equal(data.to_dense(), sum(entry(each).to_dense() for each in range(size)))
    work = dist.all_reduce(entry(rank), async_op=True)
    assert work.wait() and work.get_future().wait()


def short_spelling(rank: int, size: int) -> None:
    group, one, op = dist.group.WORLD, torch.full((3,), rank + 1.0), dist.ReduceOp
    long = timedelta(seconds=30)

    def after(work: dist.Work, data: torch.Tensor) -> list[float]:
        work.wait()
        return data.tolist()

    def rows() -> list[torch.Tensor]:
        return [torch.zeros(3) for _ in range(size)]

    for call in (
        lambda data: group.allreduce(data),
        lambda data: group.allreduce(data, op.SUM, long),
        lambda data: group.allreduce([data], op=op.SUM),
        lambda data: group.reduce(data, 0, op.SUM, long),
        lambda data: group.reduce(data, root=0, op=op.SUM),
    ):
        data = one.clone()
        told = after(call(data), data)
        assert told == [3.0] * 3 or rank, told
    for root, data in ((1, one.clone()), (0, one.clone())):
        assert after(group.broadcast(data, root, timeout=long), data) == [root + 1.0] * 3
        assert after(group.broadcast(data, root=root), data) == [root + 1.0] * 3
    outputs = rows()
    group.allgather(outputs, one).wait()
    assert [output.tolist() for output in outputs] == [[1.0] * 3, [2.0] * 3]
    outputs = rows() if rank == 1 else []
    group.gather(outputs, one, 1, long).wait()
    assert [output.tolist() for output in outputs] == ([[1.0] * 3, [2.0] * 3] if rank == 1 else [])
    data = torch.zeros(3)
    parts = [torch.full((3,), 7.0), torch.full((3,), 8.0)] if rank == 0 else []
    assert after(group.scatter(data, parts, root=0), data) == [7.0 + rank] * 3
    assert after(group.reduce_scatter(data, [one, one], op.MAX), data) == [2.0] * 3
    halves = torch.zeros(2)
    assert after(group.all_to_all_single(halves, one[:2], [], [], timeout=long), halves) == [1.0, 2.0]
    group.barrier(timeout=long).wait()
    group.barrier(long).wait()


def gathered_at_one(rank: int, size: int) -> None:
    for output in (torch.zeros(size * 3), torch.zeros(3, size).t()):
        dist.gather_single(torch.full((3,), rank + 1.0), output if rank == 1 else None, dst=1)
        assert output.flatten().tolist() == ([1.0] * 3 + [2.0] * 3 if rank == 1 else [0.0] * 6)
    work = dist.gather_single(torch.ones(3, 2), torch.zeros(2, 3, 2), dst=0, async_op=True)
    assert work.get_future().wait()[0].sum() == (12 if rank == 0 else 0)
    if rank == 0:
        try:
            dist.gather_single(torch.ones(3), torch.zeros(5), dst=0)
        except ValueError as error:
            assert "output has 5 elements, must have 2 times the 3" in str(error), error
        else:
            raise AssertionError("five elements do not hold six")


def elsewhere(rank: int, size: int) -> None:
    torch.set_default_device("meta")
    here = torch.device("cpu")
    outputs = [torch.zeros(3, device=here) for _ in range(size)]
    dist.all_gather(outputs, torch.full((3,), rank + 1.0, device=here))
    assert [output.tolist() for output in outputs] == [[1.0] * 3, [2.0] * 3]
    indices, values = torch.tensor([[rank]], device=here), torch.ones(1, device=here)
    data = torch.sparse_coo_tensor(indices, values, (size,), device=here)
    dist.all_reduce(data)
    assert data.to_dense().tolist() == [1.0, 1.0]
    assert all(phalanx.empty(count).device == here for count in (0, 5))
    told: list = [None] * size
    torch.set_default_device(None)
    dist.all_gather_object(told, rank)
    assert told == [0, 1]


def sparse_quarrels(rank: int, size: int) -> None:
    indices, values = torch.tensor([[1]]), torch.ones(1)
    beyond = torch.tensor([[7 if rank else 1]])
    for mine, words in (
        (torch.sparse_coo_tensor(indices, values, (4 + rank,)), r"shape .* is \(4,\) on rank 0, \(5,\) on rank 1"),
        (torch.sparse_coo_tensor(indices, values.to(torch.float64 if rank else torch.float32), (4,)), "float64, 1, 0"),
        (torch.zeros(4, 2).to_sparse(2 - rank), r"sparse_dim and dense_dim .* is \(torch.float32, 2, 0\) on rank 0"),
        (torch.zeros((4,) * (rank + 1)).to_sparse(), "must be the same on all"),
        (
            torch.sparse_coo_tensor(beyond, values, (4,), check_invariants=False, is_coalesced=True),
            "size is inconsistent",
        ),
    ):
        try:
            dist.all_reduce(mine)
        except (ValueError, RuntimeError) as error:
            assert re.search(words, str(error)), error
        else:
            raise AssertionError(f"nothing was refused: {words}")
    mine = torch.sparse_coo_tensor(indices, values, (4,))
    dist.all_reduce(mine)
    assert mine.to_dense().tolist() == [0, 2, 0, 0], mine


def functional(rank: int, size: int) -> None:
    group = dist.group.WORLD
    mine = lambda: functional_collectives.all_reduce(torch.full((4,), rank + 1.0), "sum", group)
    for op in (False, True):
        data = mine()
        assert isinstance(data, AsyncCollectiveTensor)
        work = dist.all_reduce(data, async_op=op)
        if work is not None:
            work.wait()
        assert (data == 6).all(), data
    dist.all_reduce(mine()[::2])
    whole, parts, sums = torch.empty(8), [mine(), mine()], mine()
    dist.all_gather_into_tensor(whole, mine())
    dist.all_gather(parts, torch.full((4,), float(rank)))
    dist.reduce_scatter(sums, [mine(), mine()])
    assert (whole == 3).all() and (sums == 6).all(), (whole, sums)
    assert [part.tolist() for part in parts] == [[0.0] * 4, [1.0] * 4]
    if rank == 0:
        dist.send(mine(), 1)
    else:
        data = mine()
        dist.recv(data, 0)
        assert (data == 3).all()
    mesh = init_device_mesh("cpu", (size,))
    try:
        dist.all_reduce(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
    except TypeError as error:
        assert "all_reduce: tensor is a DTensor, which has no memory of its own, must be a plain" in str(error), error
    else:
        raise AssertionError("nothing was refused")


def conjugate(rank: int, size: int) -> None:
    data = torch.complex(torch.arange(4.0), torch.arange(4.0) + rank)
    outputs = [torch.empty(4, dtype=torch.complex64) for _ in range(size)]
    dist.group.WORLD.allgather([outputs], [data.conj()]).wait()
    for each in range(size):
        assert torch.equal(outputs[each], torch.complex(torch.arange(4.0), -(torch.arange(4.0) + each)))


def together(rank: int, size: int) -> None:
    whole = torch.zeros(size * 8)
    place = whole.data_ptr()
    dist.all_gather(list(whole.chunk(size)), torch.full((8,), rank + 1.0))
    assert whole.data_ptr() == place and whole.tolist() == [1.0] * 8 + [2.0] * 8
    # The same memory twice is not a piece that follows itself.
    one = torch.zeros(8)
    dist.all_to_all([torch.empty(8), torch.empty(8)], [one, one])


def overlapping(rank: int, size: int) -> None:
    data = torch.arange(8.0) + 100 * rank
    dist.all_to_all_single(data, data)
    assert data.tolist() == [*range(4 * rank, 4 * rank + 4), *range(100 + 4 * rank, 104 + 4 * rank)]
    data = torch.arange(8.0)
    dist.all_gather_into_tensor(data, data[2:6])
    assert data.tolist() == [2, 3, 4, 5, 2, 3, 4, 5]


def scaled(rank: int, size: int) -> None:
    data = torch.ones(3)
    dist.all_reduce(data, dist._make_nccl_premul_sum(rank + 2.0))
    assert data.tolist() == [5.0] * 3


def refusals(rank: int, size: int) -> None:
    group, sparse, halves = dist.group.WORLD, torch.eye(2).to_sparse(), list(torch.zeros(8).chunk(2))
    for call, words in [
        (lambda: dist.all_reduce(torch.ones(2, device="meta")), "tensor is on meta, must be on the cpu"),
        (lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2)), "which is not defined for f8e5m2"),
        (
            lambda: dist.all_gather_into_tensor(torch.ones(5), torch.ones(2)),
            "output has 5 elements, must have 2 times the 2",
        ),
        (
            lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(5)),
            "input has 5 elements, must have 2 times the 2",
        ),
        (
            lambda: dist.all_gather_into_tensor(torch.ones(4, dtype=torch.float16), torch.ones(2).bfloat16()),
            "all_gather_into_tensor: tensors have dtypes torch.float16 and torch.bfloat16, must have one",
        ),
        (
            lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(4, dtype=torch.int32)),
            "reduce_scatter_tensor: tensors have dtypes torch.float32 and torch.int32, must have one",
        ),
        (
            lambda: dist.all_gather([torch.ones(2)], torch.ones(2)),
            "outputs are a list of 1, must be one for each of the 2",
        ),
        (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), "input has 3 rows, must be a multiple of the 2"),
        (lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 2], [2, 2]), "must add up to its 4 rows"),
        (lambda: group.broadcast([torch.ones(2)], root(9)), "root is 9, must be below the group size 2"),
        (lambda: dist.all_reduce(torch.ones(1).expand(4)), "output has elements that share a place"),
        (
            lambda: dist.all_gather([torch.ones(1).expand(4), torch.ones(4)], torch.ones(4)),
            "output has elements that share a place",
        ),
        (lambda: dist.all_gather(halves, halves[rank][:2]), "input is 2 elements long, must be 4"),
        (lambda: dist.broadcast(torch.ones(2), -1), "broadcast: root is -1, must be at least 0"),
        (lambda: group.reduce([torch.ones(2)], root=-2), "reduce: root is -2, must be at least 0"),
        (lambda: group.send([torch.ones(1)], -1), "send: to is -1, must be at least 0"),
        (lambda: dist.recv(torch.ones(1), -1), "recv: from is -1, must be at least 0"),
        (lambda: dist.all_gather([sparse, sparse], sparse), "all_gather: tensor has layout torch.sparse_coo, must be"),
        (lambda: dist.send(torch.ones(1), 1 - rank, tag=-1), "tag is -1, must be 0 to"),
        (lambda: dist.all_reduce(torch.ones(2).to_sparse(), dist.ReduceOp.MAX), "op is not SUM"),
        (lambda: group.scatter([torch.ones(1)], [[torch.ones(1)]], root(rank)), "must be one for each of the 2 ranks"),
    ]:
        try:
            call()
        except (ValueError, TypeError) as error:
            assert words in str(error) and str(error).startswith("phalanx: "), f"{error}, not: {words}"
        else:
            raise AssertionError(f"nothing was refused: {words}")
    data = torch.ones(2)
    dist.all_reduce(data)
    assert data.tolist() == [2.0, 2.0]


def later_mistakes(rank: int, size: int) -> None:
    group, sparse, spread = dist.group.WORLD, torch.zeros(5).to_sparse(), torch.ones(1).expand(5)

    def lists(count: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        return [torch.zeros(count, dtype=dtype) for _ in range(size)]

    def summed(wrong: torch.Tensor | None) -> list[torch.Tensor]:
        data = [torch.ones(3), torch.ones(5) if wrong is None else wrong]
        group.allreduce(data).wait()
        return data

    def multiplied(wrong: torch.Tensor | None) -> list[torch.Tensor]:
        data = [torch.ones(count, dtype=torch.complex64) for count in (3, 5)]
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist._make_nccl_premul_sum(torch.tensor([1.0 + 0.0j]))
        group.allreduce(data if wrong is None else [data[0], wrong], opts).wait()
        return data

    def told(wrong: torch.Tensor | None) -> list[torch.Tensor]:
        data = [torch.full((3,), 2.0 - rank), torch.full((5,), 2.0 - rank) if wrong is None else wrong]
        group.broadcast(data, root(0)).wait()
        return data

    def gathered(wrong: torch.Tensor | None) -> list[torch.Tensor]:
        outputs, second = [lists(3), lists(5)], torch.full((5,), 2.0) if wrong is None else wrong
        group.allgather(outputs, [torch.full((3,), 2.0), second]).wait()
        return [output for each in outputs for output in each]

    def gathered_by_rank(wrong: torch.Tensor | None) -> list[torch.Tensor]:
        outputs = [[torch.zeros(3), torch.zeros(5)] for _ in range(size)]
        second = torch.full((5,), 2.0) if wrong is None else wrong
        group.allgather_coalesced(outputs, [torch.full((3,), 2.0), second]).wait()
        return [output for each in outputs for output in each]

    def gathered_whole(wrong: torch.Tensor | None) -> list[torch.Tensor]:
        outputs = [torch.zeros(3 * size), torch.zeros(5 * size) if wrong is None else wrong]
        group.allgather_into_tensor_coalesced(outputs, [torch.full((3,), 2.0), torch.full((5,), 2.0)]).wait()
        return outputs

    def scattered(wrong: torch.Tensor | None) -> list[torch.Tensor]:
        outputs, ones = [torch.zeros(3), torch.zeros(5) if wrong is None else wrong], torch.ones(5)
        group.reduce_scatter(outputs, [[torch.ones(3)] * size, [ones] * size]).wait()
        return outputs

    def scattered_whole(wrong: torch.Tensor | None) -> list[torch.Tensor]:
        outputs = [torch.zeros(3), torch.zeros(5) if wrong is None else wrong]
        group.reduce_scatter_tensor_coalesced(outputs, [torch.ones(3 * size), torch.ones(5 * size)]).wait()
        return outputs

    for call, mistakes in (
        (summed, (sparse, spread, torch.ones(5, device="meta"), torch.ones(5).to(torch.float8_e5m2))),
        (multiplied, (torch.ones(5), torch.ones(5).int())),
        (told, (sparse, torch.ones(5, dtype=torch.complex32))),
        (gathered, (sparse, torch.ones(4), torch.ones(5).int())),
        (gathered_by_rank, (sparse, torch.ones(4), torch.ones(5).int())),
        (gathered_whole, (torch.zeros(9), torch.zeros(10).int())),
        (scattered, (spread, torch.zeros(4), torch.zeros(5).int())),
        (scattered_whole, (spread, torch.zeros(4), torch.zeros(5).int())),
    ):
        for wrong in mistakes:
            if rank == 0:
                try:
                    call(wrong)
                except (ValueError, TypeError) as error:
                    assert str(error).startswith("phalanx: "), error
                else:
                    raise AssertionError(f"{call.__name__} took {wrong}")
            assert all((data == 2).all() for data in call(None)), call.__name__


def root(rank: int) -> dist.BroadcastOptions:
    options = dist.BroadcastOptions()
    options.rootRank = rank
    return options


if __name__ == "__main__":
    unittest.main()
