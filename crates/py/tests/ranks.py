"""Ranks for tests: a process each, forked once PyTorch is loaded, which form a group and say how it went."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

# Read by the libraries under PyTorch when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

import phalanx  # noqa: F401  makes the backend known

# No test waits longer for its ranks, whatever else the machine has to do.
PATIENCE = 900.0


def on_ranks(
    size: int,
    work: Callable[..., Any],
    *arguments: Any,
    backend: str = "phalanx",
    timeout: float = 60.0,
    options: Any = None,
    dying: tuple[int, ...] = (),
) -> list[Any]:
    """What `work(rank, size, *arguments)` returned on each rank. Fails when a rank that is not one of the `dying` does."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as scratch:
        processes, pipes = [], []
        for rank in range(size):
            receiver, sender = context.Pipe(duplex=False)
            seat = (rank, size, f"file://{scratch}/store", backend, timeout, options)
            process = context.Process(target=_live, args=(sender, seat, work, arguments), daemon=True)
            process.start()
            sender.close()
            processes.append(process)
            pipes.append(receiver)
        try:
            return _hear(pipes, dying)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _hear(pipes: list, dying: tuple[int, ...]) -> list[Any]:
    until = time.monotonic() + PATIENCE
    heard: list[Any] = [None] * len(pipes)
    failed = []
    for rank, pipe in enumerate(pipes):
        if rank in dying:
            continue
        if not pipe.poll(max(0.0, until - time.monotonic())):
            failed.append(f"rank {rank} said nothing for {PATIENCE:.0f} s")
            continue
        try:
            went_well, heard[rank] = pipe.recv()
        except EOFError:
            went_well, heard[rank] = False, "died"
        if not went_well:
            failed.append(f"rank {rank}: {heard[rank]}")
    if failed:
        raise AssertionError("\n".join(failed))
    return heard


def _live(sender: Any, seat: tuple, work: Callable[..., Any], arguments: tuple) -> None:
    rank, size, place, backend, timeout, options = seat
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            backend,
            init_method=place,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
            pg_options=options,
        )
        sender.send((True, work(rank, size, *arguments)))
        dist.destroy_process_group()
    except BaseException:
        sender.send((False, traceback.format_exc()))
