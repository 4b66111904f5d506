"""Training over this backend gives the losses that it gives over PyTorch's own: DDP, FSDP2 and HSDP, on a small language model."""

from __future__ import annotations

import unittest

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from ranks import on_ranks

VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS = 65, 32, 48, 3, 4
STEPS, BATCH = 20, 2


class Training(unittest.TestCase):
    def test_ddp_in_worlds_of_two_and_four(self):
        self.compare("ddp", 2)
        self.compare("ddp", 4)

    def test_fsdp_in_worlds_of_two_and_four(self):
        self.compare("fsdp", 2)
        self.compare("fsdp", 4)

    def test_hsdp_in_a_world_of_four(self):
        self.compare("hsdp", 4)

    def test_ddp_with_a_hook_that_waits_in_its_callbacks(self):
        weights = on_ranks(2, train_compressed)
        self.assertEqual(weights[0], weights[1])

    def test_ddp_that_is_compiled(self):
        self.compare("compiled", 2)

    def compare(self, mode: str, size: int):
        ours = on_ranks(size, train, mode)
        theirs = on_ranks(size, train, mode, backend="gloo")
        for rank in range(size):
            self.assertEqual(len(ours[rank]), STEPS)
            for step, (our, their) in enumerate(zip(ours[rank], theirs[rank])):
                self.assertAlmostEqual(our, their, delta=1e-6, msg=f"{mode}, rank {rank} of {size}, step {step}")
        self.assertLess(ours[0][-1], ours[0][0], "nothing was learned")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.attention(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).flatten(2))
        return x + self.network(self.norms[1](x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def train(rank: int, size: int, mode: str) -> list[float]:
    torch.manual_seed(0)
    model: nn.Module = Model()
    if mode == "ddp":
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)
    elif mode == "compiled":
        model = torch.compile(nn.parallel.DistributedDataParallel(model), backend="eager")
    else:
        shape, names = ((size,), ("shard",)) if mode == "fsdp" else ((2, size // 2), ("copies", "shard"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(STEPS):
        text = torch.randint(0, VOCABULARY, (BATCH, CONTEXT + 1), generator=generator)
        loss = model(text[:, :-1], text[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def train_compressed(rank: int, size: int) -> list[list[float]]:
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    state = powerSGD.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, powerSGD.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        model(torch.full((2, 64), float(rank + step))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.module.weight.tolist()


if __name__ == "__main__":
    unittest.main()
