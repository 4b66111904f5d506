"""Data-parallel training: each rank has its own data, and all keep the same model.

torchrun --standalone --nproc-per-node 2 examples/python/ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import phalanx  # noqa: F401  not needed where the package was installed by pip


def main() -> None:
    dist.init_process_group("phalanx")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    # Every rank sees other samples of the same function.
    samples = torch.Generator().manual_seed(1 + dist.get_rank())
    first = last = None
    for _ in range(50):
        inputs = torch.randn(64, 32, generator=samples)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach(), op=dist.ReduceOp.AVG)
        first, last = first if first is not None else loss.item(), loss.item()
    if dist.get_rank() == 0:
        print(f"the loss fell from {first:.2f} to {last:.2f}", flush=True)
        assert last < first
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
