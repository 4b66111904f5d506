"""From Gloo to Phalanx: one word changes, and an error says which rank is to blame.

torchrun --standalone --nproc-per-node 2 examples/python/switch_from_gloo.py
"""

import torch
import torch.distributed as dist

import phalanx


def main() -> None:
    dist.init_process_group("phalanx")  # was: "gloo"
    rank, size = dist.get_rank(), dist.get_world_size()

    gradient = torch.full((1000,), float(rank))
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    assert gradient.eq((size - 1) / 2).all()

    # The ranks disagree: each is told, nobody gets wrong data, and the group goes on.
    try:
        dist.all_reduce(torch.ones(10 + rank))
    except phalanx.Error as error:
        print(f"rank {rank}: {error.kind} of ranks {error.ranks}: {error}", flush=True)
    dist.all_reduce(gradient)
    if rank == 0:
        print(f"all {size} ranks go on", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
