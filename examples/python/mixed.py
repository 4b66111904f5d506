"""One world of Rust and Python programs: these ranks are in Python, and those of `crates/phalanx/examples/mixed.rs` are in Rust.

    phalanx run --standalone --nproc-per-node 4 -- \
        sh -c 'if [ $RANK -lt 2 ]; then exec target/debug/examples/mixed; else exec python examples/python/mixed.py; fi'

Without a launcher each rank is told the world as an argument: `mixed.py 'file:///tmp/world?rank=2&world_size=4'`.
"""

import sys

import torch
import torch.distributed as dist

import phalanx


def main() -> None:
    world = phalanx.init(*sys.argv[1:])
    phalanx.init_process_group(world)  # Rust: let group = world.group()?;
    rank, last = dist.get_rank(), dist.get_world_size() - 1

    weights = torch.arange(4.0) if rank == last else torch.zeros(4)
    dist.broadcast(weights, last)

    gradient = torch.full((1000,), float(rank))
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    print(f"rank {rank}, Python: weights {weights.tolist()}, mean gradient {gradient[0]}", flush=True)

    if rank == last:
        returned = torch.zeros(4)
        dist.recv(returned, 0, tag=7)
        assert returned.equal(weights)
    dist.barrier()
    dist.destroy_process_group()
    world.leave()


if __name__ == "__main__":
    main()
