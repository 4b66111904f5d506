"""Twenty losses of a GPT trained by PyTorch, with the weights and batches to train it again elsewhere.

python training.py FILE    writes one safetensors file: the initial weights by name, `batches` of [steps, rows, context + 1], and `losses`.
"""
import json
import os
import struct
import sys

import torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
sys.path.insert(0, os.path.join(os.environ.get("SHARED", os.path.join(ROOT, os.pardir, "shared")), "bench"))

# The model that PyTorch's own sharded training is measured with.
from torch_fsdp import Gpt

VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS = 65, 32, 48, 3, 4
ROWS, STEPS = 4, 20


def write(path, tensors):
    """A safetensors file, by its format: this needs no package besides PyTorch."""
    kinds = {torch.float32: "F32", torch.int64: "I64"}
    header, end = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Gpt(VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS)
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    draw = torch.Generator().manual_seed(1000)
    batches = torch.randint(0, VOCABULARY, (STEPS, ROWS, CONTEXT + 1), generator=draw)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses = []
    for batch in batches:
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    write(sys.argv[1], {**tensors, "batches": batches, "losses": torch.tensor(losses)})


if __name__ == "__main__":
    main()
