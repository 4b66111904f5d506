"""Ranks of PyTorch as those who look from outside see them: `phalanx top`, `phalanx trace collect`, dumps of calls that fail."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist

import phalanx
from ranks import on_ranks

# Built by whoever runs these tests.
PHALANX = os.environ.get("PHALANX_TEST_BINARY", "phalanx")


class Seen(unittest.TestCase):
    def test_groups_are_shown_and_can_be_asked_for_their_traces(self):
        job = f"seen-{os.getpid()}"
        with patch.dict(os.environ, TORCHELASTIC_RUN_ID=job), tempfile.TemporaryDirectory() as scratch:
            shown = on_ranks(3, looked_at, job, scratch)[0]
            dumps = dumped(Path(scratch))
        self.assertEqual([(rank["rank"], rank["world_size"]) for rank in shown["ranks"]], [(0, 3), (1, 3), (2, 3)])
        self.assertEqual([len(rank["groups"]) for rank in shown["ranks"]], [2, 1, 2])
        self.assertEqual(sorted(dumps), [0, 1, 2])
        self.assertEqual([group["members"] for group in dumps[2]["groups"]], [[0, 1, 2], [0, 2]])
        self.assertIn("all_reduce", [entry["kind"] for entry in dumps[0]["entries"]])
        told = {(Path(entry["site"]["file"]).name, entry["site"]["function"]) for entry in dumps[0]["entries"]}
        # That of joining comes first.
        self.assertEqual(told, {("ranks.py", "_live"), ("test_seen.py", "looked_at")})

    def test_what_pytorch_calls_is_told_by_the_line_of_the_program_that_has_it_called(self):
        job = f"sites-{os.getpid()}"
        with patch.dict(os.environ, TORCHELASTIC_RUN_ID=job), tempfile.TemporaryDirectory() as scratch:
            line = on_ranks(2, trained, job, scratch)[0]
            sites = [entry["site"] for dump in dumped(Path(scratch)).values() for entry in dump["entries"]]
        self.assertIn((__file__, line, "trained"), [(site["file"], site["line"], site["function"]) for site in sites])
        self.assertEqual({Path(site["file"]).parent for site in sites}, {Path(__file__).parent})

    def test_a_job_whose_id_is_no_name_is_seen_under_one_of_its_own(self):
        # As a rank of a world names it.
        for job, name in (("a/b", "a-b-e620c3190468cf61"), ("a b", "a-b-e63f991904833892"), ("nightly.7", "nightly.7")):
            with self.subTest(job), patch.dict(os.environ, TORCHELASTIC_RUN_ID=job):
                self.assertEqual(on_ranks(1, own_job), [name])

    def test_a_forked_child_leaves_its_parents_desk_alone(self):
        with patch.dict(os.environ, TORCHELASTIC_RUN_ID=f"fork-{os.getpid()}"):
            on_ranks(1, forking)

    def test_a_call_that_fails_leaves_a_dump_where_the_environment_says(self):
        with tempfile.TemporaryDirectory() as scratch, patch.dict(os.environ, PHALANX_TRACE_DIR=scratch):
            on_ranks(2, disagreeing)
            dumps = dumped(Path(scratch))
        self.assertEqual(sorted(dumps), [0, 1])
        for dump in dumps.values():
            self.assertIn("dtype", dump["groups"][0]["verdict"])

    def test_so_many_operations_are_remembered_as_the_options_say(self):
        for remembered, kept in ((2, 2), (None, 5)):
            with tempfile.TemporaryDirectory() as scratch, patch.dict(os.environ, PHALANX_TRACE_DIR=scratch):
                on_ranks(2, long_at_work, options=phalanx.Options(remembered=remembered))
                dumps = dumped(Path(scratch))
            with self.subTest(remembered):
                self.assertEqual([len(dump["entries"]) for dump in dumps.values()], [kept, kept])


def looked_at(rank: int, size: int, job: str, scratch: str) -> dict:
    """Has this host's ranks looked at, while all are in groups of all and of two of them."""
    pair = dist.new_group([0, 2])
    dist.all_reduce(torch.ones(3))
    if rank != 1:
        dist.all_reduce(torch.ones(3), group=pair)
    dist.barrier()
    shown = {}
    if rank == 0:
        told = subprocess.run(
            [PHALANX, "top", "--json", "--interval", "0.1", "--job-id", job], check=True, capture_output=True
        )
        shown = json.loads(told.stdout)
        subprocess.run(
            [PHALANX, "trace", "collect", "--job-id", job, "--output", scratch, "--timeout", "60"],
            check=True,
            capture_output=True,
        )
    # The others wait here, and are seen all the same.
    dist.barrier()
    return shown


def own_job(rank: int, size: int) -> str:
    """The job that this process is seen to be of."""
    told = subprocess.run([PHALANX, "top", "--json", "--interval", "0.1"], check=True, capture_output=True)
    return next(rank["job"] for rank in json.loads(told.stdout)["ranks"] if rank["pid"] == os.getpid())


def forking(rank: int, size: int) -> None:
    """The child forms a group of its own, and gives up what was its parent's."""
    child = os.fork()
    if child == 0:
        dist.destroy_process_group()
        dist.init_process_group("phalanx", store=dist.HashStore(), rank=0, world_size=1)
        dist.barrier()
        os._exit(7)
    until = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 7, ended


def trained(rank: int, size: int, job: str, scratch: str) -> int:
    """The line from which PyTorch calls this backend by itself."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
    loss = model(torch.ones(3)).sum()
    loss.backward()
    line = inspect.currentframe().f_lineno - 1
    dist.barrier()
    if rank == 0:
        command = [PHALANX, "trace", "collect", "--job-id", job, "--output", scratch, "--timeout", "60"]
        subprocess.run(command, check=True, capture_output=True)
    dist.barrier()
    return line


def disagreeing(rank: int, size: int) -> None:
    try:
        dist.all_reduce(torch.ones(3, dtype=torch.float32 if rank else torch.float64))
    except dist.DistBackendError:
        return
    raise AssertionError("nothing was refused")


def long_at_work(rank: int, size: int) -> None:
    # Joining was the first, and the one that fails is the last.
    for _ in range(3):
        dist.barrier()
    disagreeing(rank, size)


def dumped(directory: Path) -> dict[int, dict]:
    dumps = [json.loads(path.read_text()) for path in directory.glob("trace_*.json")]
    return {dump["rank"]: dump for dump in dumps}


if __name__ == "__main__":
    unittest.main()
