"""Sharded training: each rank keeps a part of every parameter, and gathers a layer when it is needed.

torchrun --standalone --nproc-per-node 2 examples/python/fsdp2.py
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import phalanx  # noqa: F401  not needed where the package was installed by pip


def main() -> None:
    dist.init_process_group("phalanx")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    for layer in [model[0], model[2], model]:
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

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
        kept = sum(parameter.to_local().numel() for parameter in model.parameters())
        whole = sum(parameter.numel() for parameter in model.parameters())
        print(f"the loss fell from {first:.2f} to {last:.2f}; this rank keeps {kept} of {whole} parameters", flush=True)
        assert last < first and kept < whole
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
