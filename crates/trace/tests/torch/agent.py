"""One rank of a Gloo group whose flight recorder is dumped: agent.py RANK SIZE DIRECTORY SCENARIO."""

import json
import os
import sys
import time

os.environ["TORCH_FR_BUFFER_SIZE"] = "200"

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d


def play(rank, scenario):
    """What the ranks do; the work that is left is returned, so that it lives until the dump."""
    data = torch.ones(3, 4)
    dist.all_reduce(data)
    pair = dist.new_group([0, 1], group_desc="pair")
    dist.broadcast(data, 0, group=pair)
    dist.barrier()
    if scenario == "absent" and rank == 0:
        return dist.all_reduce(data, async_op=True)
    if scenario == "divergent":
        return dist.all_reduce(torch.ones(3 + rank), async_op=True)
    return None


def wait_for_records(pending):
    """Gloo's own thread notes the end of an operation, which may be after the caller has gone on.

    The last `pending` operations have no end to wait for.
    """
    until = time.monotonic() + 20
    while time.monotonic() < until:
        entries = json.loads(c10d._dump_fr_trace_json(True, False))["entries"]
        if all(entry["retired"] for entry in entries[: len(entries) - pending]):
            return
        os.sched_yield()
    sys.exit(f"no end of some operation was noted in 20 s: {entries}")


def main():
    rank, size, directory, scenario = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    dist.init_process_group("gloo", init_method=f"file://{directory}/.store", rank=rank, world_size=size)
    work = play(rank, scenario)
    wait_for_records(pending=0 if work is None else 1)
    with open(f"{directory}/gloo_{rank}", "wb") as file:
        file.write(c10d._dump_fr_trace())
    print("dumped", flush=True)
    # Whoever left now would end what the others wait in, before they have written down that they wait.
    sys.stdin.read()
    del work
    os._exit(0)


main()
