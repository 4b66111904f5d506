"""What a process group says of itself to PyTorch, which asks before it saves checkpoints, loads them and divides groups; and its parts."""

from __future__ import annotations

import tempfile
import unittest
import warnings
from collections.abc import Callable
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import phalanx
from phalanx import joining
from phalanx.failures import unequipped
from phalanx.joining import meet
from ranks import on_ranks

# Before, PyTorch only splits groups that are on a device, and keeps monitored barriers for one backend.
KNOWS_THE_CPU = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 15)


class Groups(unittest.TestCase):
    def test_a_group_serves_the_cpu(self):
        on_ranks(2, described)

    def test_checkpoints_are_saved_beside_the_training(self):
        with tempfile.TemporaryDirectory() as place:
            on_ranks(2, saved, place)

    def test_weights_of_one_rank_are_loaded_by_all(self):
        weights = on_ranks(2, loaded)
        self.assertEqual(weights[0], weights[1])

    def test_a_group_is_split(self):
        on_ranks(4, split, options=phalanx.Options(transport="tcp", protection="authenticated"))

    def test_parts_without_a_name_are_of_their_own_ranks(self):
        on_ranks(4, split_namelessly)

    @unittest.skipUnless(KNOWS_THE_CPU, "older versions of PyTorch split no groups of the cpu")
    def test_pytorch_splits_a_group(self):
        on_ranks(4, split_by_pytorch)

    def test_an_error_of_a_part_names_ranks_of_the_whole(self):
        on_ranks(4, quarrelling_part)

    def test_errors_of_memory_and_of_parts_are_pytorchs(self):
        on_ranks(1, failing_beside)

    def test_a_rank_beside_the_group_waits_at_no_barrier_of_it(self):
        on_ranks(3, beside)

    @unittest.skipUnless(KNOWS_THE_CPU, "older versions of PyTorch ask for another backend")
    def test_pytorchs_monitored_barrier_is_the_groups(self):
        on_ranks(2, monitored)


class Backends(unittest.TestCase):
    def test_another_backend_beside_this_one_is_refused(self):
        for backend, other in (
            ("cpu:phalanx,cuda:nccl", "nccl"),
            ("cuda:gloo,cpu:phalanx", "gloo"),
            ("cuda:phalanx,cpu:gloo", "gloo"),
            ("cpu:phalanx,cuda:nccl,xpu:xccl", "nccl or xccl"),
        ):
            with self.subTest(backend):
                told = (
                    f"init_process_group: backend is {backend}, must be phalanx alone: PyTorch would not make {other} "
                )
                with self.assertRaisesRegex(ValueError, f"^phalanx: {told}"):
                    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
                self.assertFalse(dist.is_initialized())

    def test_a_backend_that_is_named_with_its_devices_is_alone(self):
        for backend in ("cpu:phalanx", "cpu:phalanx,cuda:phalanx"):
            with self.subTest(backend):
                on_ranks(2, divided, backend=backend)


class Options(unittest.TestCase):
    def test_a_wrong_word_is_refused_where_it_is_said(self):
        with self.assertRaisesRegex(ValueError, "transport is 'tpc', must be one of automatic, shared_memory, tcp"):
            phalanx.Options(transport="tpc")
        with self.assertRaisesRegex(ValueError, "protection is 'none', must be one of encrypted, authenticated, hand"):
            phalanx.Options(protection="none")
        for name in ("check_nan", "compare_call_sites"):
            with self.assertRaisesRegex(TypeError, f"Options: {name} is 'yes', must be True or False"):
                phalanx.Options(**{name: "yes"})
        for remembered, kind in (
            (0, ValueError),
            (-1, ValueError),
            (1 << 40, ValueError),
            (2.5, TypeError),
            (True, TypeError),
        ):
            with self.assertRaisesRegex(
                kind, f"Options: remembered is {remembered}, must be a number from 1 to 4294967296"
            ):
                phalanx.Options(remembered=remembered)

    def test_options_of_another_backend_are_refused(self):
        for options in ("tcp", dist.ProcessGroupGloo._Options()):
            with self.assertRaisesRegex(TypeError, f"pg_options is a {type(options).__name__}, must be a phalanx.Opt"):
                dist.init_process_group("phalanx", store=dist.HashStore(), rank=0, world_size=1, pg_options=options)
            self.assertFalse(dist.is_initialized())

    def test_ranks_that_would_wire_a_group_differently_are_told_so(self):
        on_ranks(3, wired_differently)

    def test_a_first_rank_that_cannot_be_reached_is_everybodys_error_at_once(self):
        on_ranks(2, unreachable)

    def test_no_time_at_all_is_refused(self):
        for timeout in (timedelta(0), timedelta(seconds=-1)):
            with self.assertRaisesRegex(ValueError, "timeout is .*, must be above zero"):
                meet(dist.HashStore(), 1, 2, "hurried", timeout, phalanx.Options())

    def test_a_rank_beyond_the_group_waits_for_nobody(self):
        with self.assertRaisesRegex(ValueError, "rank is 2, must be below the group size 2"):
            meet(dist.HashStore(), 2, 2, "crowded", timedelta(seconds=30), phalanx.Options())


def divided(rank: int, size: int) -> None:
    try:
        dist.new_group(backend="cpu:gloo,cuda:phalanx")
    except ValueError as error:
        assert "phalanx: new_group: backend is cpu:gloo,cuda:phalanx, must be phalanx alone" in str(error), error
    else:
        raise AssertionError("gloo was dropped without a word")
    for group in (None, dist.new_group(), dist.new_group(backend="gloo")):
        data = torch.ones(1)
        dist.all_reduce(data, group=group)
        assert data.item() == size
    # Gloo fails a rank whose peer leaves while it still connects or reads.
    dist.barrier()


def wired_differently(rank: int, size: int) -> None:
    for options, words in (
        ({"transport": "tcp" if rank == 2 else "automatic"}, "transport is automatic on rank 0, tcp on rank 2, must"),
        (
            {"protection": "handshake" if rank else "encrypted"},
            "protection is encrypted on rank 0, handshake on rank 1",
        ),
        ({"compare_call_sites": rank == 1}, "compare_call_sites is False on rank 0, True on rank 1"),
    ):
        try:
            dist.new_group(pg_options=phalanx.Options(**options))
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"nothing was refused: {words}")
    data = torch.ones(1)
    dist.all_reduce(data)
    assert data.item() == size


def unreachable(rank: int, size: int) -> None:
    def nameless() -> str:
        raise OSError("its name does not resolve")

    joining._native.host_identity = lambda: f"host {rank}"
    joining._own_address = nameless
    try:
        dist.new_group([0, 1], timeout=timedelta(seconds=60))
    except phalanx.BackendError as error:
        assert "rank 0 cannot let the others in: its name does not resolve" in str(error), error
        assert error.ranks == [0], error.ranks
    else:
        raise AssertionError("there is a group")


def described(rank: int, size: int) -> None:
    group, here = dist.group.WORLD, torch.device("cpu")
    assert group._device_types == [here]
    assert dist.distributed_c10d._device_capability(group) == ["cpu"]
    assert group._get_backend(here) is group.get_backend(here) is group
    group.get_group_store().set(f"said/{rank}", "here")
    assert group.get_group_store().get(f"said/{1 - rank}") == b"here"


def saved(rank: int, size: int, place: str) -> None:
    beside = dist.new_group(timeout=timedelta(seconds=30))
    state = {"weights": torch.arange(4.0) + rank, "steps": 7}
    saving = checkpoint.async_save(state, checkpoint_id=place, process_group=beside)
    dist.all_reduce(torch.ones(3))
    saving.result()
    state = {"weights": torch.zeros(4), "steps": 0}
    checkpoint.load(state, checkpoint_id=place)
    assert state["steps"] == 7 and state["weights"].tolist() == [0, 1, 2, 3], state


def loaded(rank: int, size: int) -> list[float]:
    with torch.device("meta"):
        model = nn.Linear(4, 3)
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    model.to_empty(device="cpu")
    full = {"weight": torch.arange(12.0).view(3, 4), "bias": torch.ones(3)} if rank == 0 else {}
    set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    whole = model.weight.full_tensor()
    assert torch.equal(whole, torch.arange(12.0).view(3, 4)), whole
    return whole.flatten().tolist()


def split(rank: int, size: int) -> None:
    world = dist.group.WORLD
    ranks = [2, 0] if rank % 2 == 0 else [1, 3]
    part = world.split_group(ranks, timedelta(seconds=30), group_name=f"part-{ranks}", group_desc="halves")
    assert (part.rank(), part.size(), part.group_name) == (ranks.index(rank), 2, f"part-{ranks}")
    assert part._options == phalanx.Options(transport="tcp", protection="authenticated")
    data = torch.full((3,), float(rank))
    part.allreduce([data]).wait()
    assert data.tolist() == [float(sum(ranks))] * 3
    for members, options, words in (
        (ranks, "tcp", "pg_options is a str"),
        ([0, 4], None, "must be below the group size 4"),
        ([0, 1, 0], None, "ranks are [0, 1, 0], must be different ones"),
    ):
        try:
            world.split_group(members, opts=options)
        except (TypeError, ValueError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"nothing was refused: {words}")
    some = world.split_group([3, 1], timedelta(seconds=30), group_name="odd")
    assert (some is None) == (rank % 2 == 0)
    if some is not None:
        some.broadcast([data], 0).wait()
        some.shutdown()
    part.shutdown()


def split_namelessly(rank: int, size: int) -> None:
    for _ in range(8):
        ranks = [0, 1] if rank < 2 else [2, 3]
        part = dist.group.WORLD.split_group(ranks, timedelta(seconds=30))
        data = torch.tensor([10.0**rank])
        part.allreduce([data]).wait()
        assert data.item() == sum(10.0**each for each in ranks), data
        # A part has parts of its own, whose ranks are those of the whole in what is told.
        alone = part.split_group([1, 0], timedelta(seconds=30))
        try:
            alone.allreduce([torch.zeros(rank + 1)]).wait()
        except dist.DistBackendError as error:
            assert (error.kind, error.ranks) == ("desync", ranks), error
        else:
            raise AssertionError("nobody noticed")
        alone.shutdown()
        part.shutdown()


def split_by_pytorch(rank: int, size: int) -> None:
    for _ in range(2):
        part = dist.split_group(split_ranks=[[0, 3], [2, 1]], group_desc="pairs")
        assert dist.get_process_group_ranks(part) == ([0, 3] if rank in (0, 3) else [2, 1])
        assert (dist.get_backend(part), part.group_desc) == ("phalanx", "pairs")
        sums = torch.tensor([float(rank)])
        dist.all_reduce(sums, group=part)
        assert sums.item() == 3
        # A part is split like the whole.
        alone = dist.split_group(part, [[0], [1]])
        assert dist.get_process_group_ranks(alone) == [rank]
        dist.destroy_process_group(alone)
        dist.destroy_process_group(part)
    one = dist.split_group(split_ranks=[[1, 2]])
    assert (one is dist.GroupMember.NON_GROUP_MEMBER) == (rank in (0, 3))


def quarrelling_part(rank: int, size: int) -> None:
    part = dist.new_group([1, 3])
    if rank in (1, 3):
        try:
            dist.all_reduce(torch.zeros(rank), group=part)
        except dist.DistBackendError as error:
            assert (error.kind, error.ranks) == ("desync", [1, 3]), error
            told = str(error).replace(" called", "")
            assert all(f"rank {each} with count {each}" in told for each in (1, 3)), error
        else:
            raise AssertionError("nobody noticed")


def failing_beside(rank: int, size: int) -> None:
    group = dist.group.WORLD
    with mock.patch("phalanx.identity.shown", side_effect=unequipped([0])):
        raises_of_backend("setup", lambda: group.split_group([0], timedelta(seconds=30)))
    group.shutdown()
    raises_of_backend("aborted", lambda: phalanx.empty(4))


def raises_of_backend(kind: str, call: Callable[[], object]) -> None:
    try:
        call()
    except phalanx.BackendError as error:
        assert error.kind == kind and str(error).startswith("phalanx: "), error
    else:
        raise AssertionError("nothing was raised")


def beside(rank: int, size: int) -> None:
    part = dist.new_group([0, 1])
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        phalanx.monitored_barrier(part, timeout=30)
    told = [str(warning.message) for warning in heard]
    words = "Running monitored_barrier on global rank 2 which does not belong to the given group."
    assert told == ([words] if rank == 2 else []), told
    phalanx.monitored_barrier()


def monitored(rank: int, size: int) -> None:
    dist.monitored_barrier()
    dist.barrier()
    if rank == 0:
        try:
            dist.monitored_barrier(timeout=timedelta(milliseconds=300), wait_all_ranks=True)
        except dist.DistBackendError as error:
            assert (error.kind, error.ranks) == ("timeout", [1]), error
            return
        raise AssertionError("nobody was missing")
    try:
        dist.recv(torch.zeros(1), 0)
    except dist.DistBackendError:
        return
    raise AssertionError("rank 0 sent nothing")


if __name__ == "__main__":
    unittest.main()
